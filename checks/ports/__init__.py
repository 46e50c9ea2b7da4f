"""Real models in plain NumPy on the ops here, held against their references by the tensor gate."""
