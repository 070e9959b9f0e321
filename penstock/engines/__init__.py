"""How regions compute: generated Python code over NumPy, and libraries that take over single kernels."""
