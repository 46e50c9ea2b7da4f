"""How far a tensor may be off: tolerance files, calibration, what they would let through."""
