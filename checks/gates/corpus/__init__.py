"""Faults injected into small models: what the gate catches, places and explains."""
