"""Benchmarks: ours beside the peers, in one process, as ratios; they never fail on a time."""

import os

# Before NumPy, JAX or torch are loaded: one thread each, so that ratios compare the same thing.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
