"""Programs on other machines: JAX, StableHLO text, and exact arithmetic.

Nothing here imports a target at load; `lower_jax` imports JAX when it is called.
"""

from autodiff.lower.jax import lower_jax
from autodiff.lower.stablehlo import lower_stablehlo

__all__ = ["lower_jax", "lower_stablehlo"]
