"""Benchmarks: ours beside the peers, in one process, as ratios. They report; they never fail on a time."""
