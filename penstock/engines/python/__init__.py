"""Tier 1: a region of the graph as generated Python source.

structure    control flow read back: from Switch, Merge and loop frames to branches and loops
codegen      structured statements -> source, one line per node
elementwise  runs of elementwise nodes on big arrays, tile by tile
"""
