"""Regions through XLA, by way of JAX: programs for hot regions on CPUs, and all that GPUs compute (docs/decisions/0010).

backend    JAX when it is there: settings, the thread that compiles, forks
rule       what an op means to XLA; `rules/` has a file a family, `values`, `checks` and `philox` help them
segments   which statements go to XLA together, by the policy of a CPU or a GPU
lower      statements -> a traced computation
program    segments and their compiled forms; `device` runs them on accelerators, `hot` on CPUs if that is faster
offload    the engine as generated code sees it (`python.codegen.Offload`)
"""
