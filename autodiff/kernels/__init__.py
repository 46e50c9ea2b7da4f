"""NumPy and SciPy evaluations of primitives that no single library call gives.

`render` prints the source of these functions into the programs it writes, so a kernel may use
only NumPy, SciPy and other kernels and constants of its own module.
"""
