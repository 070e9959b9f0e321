"""Backprop: walks a graph from results to sources and applies the ops' own gradient rules.

Read engine.py first; rules.py says how a rule is called, loops.py and control_flow.py what loops and branches need.
"""
