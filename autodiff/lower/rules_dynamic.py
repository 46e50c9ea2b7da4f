"""JAX functions of the windows at run-time positions."""

from typing import Any

from jax import lax


def dynamic_slice(x: Any, *starts: Any, sizes: tuple[int, ...]) -> Any:
    """The window that begins at the clamped starts."""
    # jaxlib prints a dynamic_slice without axes as text that does not parse
    return x if x.ndim == 0 else lax.dynamic_slice(x, starts, sizes)


def dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    """x with the window that begins at the clamped starts replaced."""
    return update if x.ndim == 0 else lax.dynamic_update_slice(x, update, starts)
