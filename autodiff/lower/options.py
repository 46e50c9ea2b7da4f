"""What a lowering rule may ask while a program is lowered: how products are to be computed."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from autodiff.rounding import PrecisionError

ALGORITHMS = ("default", "f32")
_portable: contextvars.ContextVar[bool] = contextvars.ContextVar("portable", default=False)


@contextlib.contextmanager
def lowering(portable: bool) -> Iterator[None]:
    """Lower rules called inside portably (`precision=HIGHEST`), or with algorithm presets."""
    token = _portable.set(portable)
    try:
        yield
    finally:
        _portable.reset(token)


def portable() -> bool:
    """Whether the program is lowered without dot algorithm presets."""
    return _portable.get()


def product_precision(algorithm: str, *dtypes: Any) -> Any:
    """The `precision=` argument of jnp and lax products for an op's `algorithm` parameter.

    "default" leaves the choice to the device (None). "f32" asks for float32 products and sums on
    every device: `DotAlgorithmPreset.F32_F32_F32`, or `Precision.HIGHEST` when lowered portably.
    A preset names real operand types alone, and would narrow wider ones, so that float64 and
    complex operands get HIGHEST too.

    Args:
        algorithm: one of `ALGORITHMS`.
        dtypes: of the operands; float32 where none is given.

    Returns:
        None, a `jax.lax.Precision` or a `jax.lax.DotAlgorithmPreset`.

    Raises:
        PrecisionError: unknown algorithm.
    """
    import numpy as np
    from jax import lax

    if algorithm not in ALGORITHMS:
        raise PrecisionError("product algorithm", algorithm, ALGORITHMS)
    if algorithm == "default":
        return None
    wide = any(np.dtype(d).kind == "c" or np.dtype(d).itemsize > 4 for d in dtypes)
    if portable() or wide:
        return lax.Precision.HIGHEST
    return lax.DotAlgorithmPreset.F32_F32_F32
