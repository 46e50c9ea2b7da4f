"""Getting tensors out of a running program: a dump, PyTorch hooks, taps."""
