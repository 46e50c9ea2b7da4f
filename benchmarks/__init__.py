"""Benchmarks: ours beside the peers, in one process, as ratios; they never fail on a time."""
