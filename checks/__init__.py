"""The checks: surfaces that compare two roads to one value, and judge by tolerances."""
