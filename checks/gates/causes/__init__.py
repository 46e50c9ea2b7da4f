"""Why a tensor is off: one module for each kind of cause."""
