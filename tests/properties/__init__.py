"""Properties of random programs, checked with Hypothesis."""
