"""Executing partitions: devices, executor, rendezvous, call frames, resources, cancellation, threads, step stats."""
