"""NumPy bodies of kernels that are too long for their op's declaration: plain functions from arrays to arrays.

Nothing here knows graphs or sessions. Inputs come by position, attributes by keyword, strings as bytes, as the op
declarations hand them over.
"""
