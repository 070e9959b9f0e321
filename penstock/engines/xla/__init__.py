"""Regions through XLA, by way of JAX: programs for hot regions on CPUs, and all that GPUs compute."""
