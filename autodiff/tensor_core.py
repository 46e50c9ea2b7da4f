"""The accumulation of GPU tensor cores, to the last bit: blocks of aligned, truncated products."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from autodiff.rounding import FORMATS, Array, PrecisionError, round_mantissa, round_to


@dataclass(frozen=True)
class TensorCore:
    """How one GPU adds products of one format.

    Attributes:
        terms: products added in one block.
        guard: bits kept below the 24 of a float32 when the terms of a block are aligned; where
            negative, the sum has no more bits than its terms.
    """

    terms: int
    guard: int

    def __post_init__(self) -> None:
        # The sum of a block must be exact in float64: 2 + log2(terms + 1) + 24 + guard bits.
        for name, low, high in (("terms", 1, 128), ("guard", -23, 16)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise PrecisionError(
                    f"number of {name} of a tensor core",
                    value,
                    (f"{low} to {high}",),
                    "the H100 has TensorCore(terms=16, guard=2)",
                )


def _core(
    terms: int, guard: int, tf32: int = 0, fp8: TensorCore | None = None
) -> MappingProxyType[str, TensorCore]:
    table = {"float16": TensorCore(terms, guard)}
    if tf32:
        table |= {"bfloat16": TensorCore(terms, guard), "tf32": TensorCore(tf32, guard)}
    if fp8:
        table |= {"float8_e4m3fn": fp8, "float8_e5m2": fp8}
    return MappingProxyType(table)


_HOPPER = _core(16, 2, 8, TensorCore(32, -10))
TENSOR_CORES = MappingProxyType(
    {
        "V100": _core(4, 0),
        "A100": _core(8, 1, 4),
        "H100": _HOPPER,
        "H200": _HOPPER,
        "B200": _core(16, 2, 8),
    }
)
OUTPUTS = ("float32", "float16")
# Exponent that stands for "no term here": below every product, small enough for ldexp.
_NOTHING = -2000


def tensor_core_dot(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    model: str | TensorCore = "H100",
    inputs: str = "float16",
    out: str = "float32",
) -> Array:
    """Sum c + sum_k a_k b_k over the last axis, as the tensor core of a given GPU adds it up.

    Products are exact. The terms of a block, the running sum among them, are aligned to the
    largest exponent (that of a product is e_a + e_b, not normalised), each truncated to
    24 + guard bits, added exactly, and the sum truncated to float32, or to 24 + guard bits where
    these are fewer (rounded to nearest for a float16 output). Blocks follow each other; subnormal
    numbers are kept. Equal to the last bit to recorded outputs of each GPU in `TENSOR_CORES` for
    each of its formats (5000 random rows each, one block, terms of moderate size).

    Args:
        a, b: (..., k) factors; rounded to `inputs` first: to nearest, TF32 toward zero since the
            unit reads its leading 19 bits.
        c: (...) initial sum, rounded to `out` first.
        model: a key of `TENSOR_CORES`, or a block of your own.
        inputs: format of a and b: "float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2".
        out: format of the running sum and the result, "float32" or, for inputs of 16 bits or
            more, "float16".

    Returns:
        A (...) float64 array of values of format `out`. A sum with NaN or an infinity in it is what
        IEEE arithmetic gives.

    Raises:
        PrecisionError: unknown model, a format the model has no unit for, or unknown output.

    Reference: Khattak and Mikaitis, Accurate models of NVIDIA tensor cores, ACM TACO, 2026; Fasi,
        Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021.
    """
    core = _find(model, inputs)
    outputs = OUTPUTS[:1] if inputs.startswith("float8") else OUTPUTS
    if out not in outputs:
        raise PrecisionError(f"tensor core output for {inputs}", out, outputs)
    total = round_to(c, out)
    x, y = np.broadcast_arrays(_operand(a, inputs), _operand(b, inputs))
    lead = np.broadcast_shapes(x.shape[:-1], total.shape)
    total = np.broadcast_to(total, lead)
    floor = -126 if inputs == "tf32" else FORMATS[inputs].min_exponent
    # The running sum of one block enters the next, so that only the rows run in parallel.
    for start in range(0, x.shape[-1], core.terms):
        block = slice(start, start + core.terms)
        total = _block(x[..., block], y[..., block], total, core.guard, floor, out)
    return np.array(total)


def _find(model: str | TensorCore, inputs: str) -> TensorCore:
    if isinstance(model, TensorCore):
        formats = tuple(TENSOR_CORES["H100"])
        if inputs not in formats:
            raise PrecisionError("tensor core input", inputs, formats)
        return model
    if model not in TENSOR_CORES:
        raise PrecisionError("tensor core model", model, tuple(TENSOR_CORES))
    if inputs not in TENSOR_CORES[model]:
        raise PrecisionError(f"{model} tensor core input", inputs, tuple(TENSOR_CORES[model]))
    return TENSOR_CORES[model][inputs]


def _operand(x: ArrayLike, inputs: str) -> Array:
    if inputs == "tf32":
        return round_mantissa(x, 10, "rz").astype(np.float64)
    return round_to(x, inputs)


def _block(x: Array, y: Array, total: Array, guard: int, floor: int, out: str) -> Array:
    """One block: (..., terms) factors and the (...) running sum to the next running sum."""
    with np.errstate(invalid="ignore"):
        products = x * y
        ieee = products.sum(axis=-1) + total
    exponents = np.where(products == 0, _NOTHING, _exponent(x, floor) + _exponent(y, floor))
    own = np.where(total == 0, _NOTHING, _exponent(total, FORMATS[out].min_exponent))
    top = np.maximum(exponents.max(axis=-1), own)
    shift = FORMATS["float32"].mantissa + guard - top
    finite = np.isfinite(ieee)
    with np.errstate(invalid="ignore"):
        units = np.trunc(np.ldexp(products, shift[..., None])).sum(axis=-1)
        units = units + np.trunc(np.ldexp(total, shift))
    value = np.ldexp(np.where(finite, units, 0.0), -shift)
    narrow = round_to(value, "float16") if out == "float16" else _toward_zero(value, guard)
    return np.where(finite, narrow, ieee)


def _exponent(x: Array, floor: int) -> Array:
    """The exponent of a stored number, subnormal ones having the smallest normal one's."""
    return np.asarray(np.maximum(np.frexp(x)[1] - 1, floor))


def _toward_zero(x: Array, guard: int) -> Array:
    """Truncation to float32, or to 24 + guard bits; what is too large becomes an infinity."""
    form = FORMATS["float32"]
    keep = form.mantissa + min(guard, 0)
    spacing = np.ldexp(1.0, _exponent(x, form.min_exponent) - keep)
    kept = np.trunc(x / spacing) * spacing
    return np.where(np.abs(kept) > form.largest, np.copysign(np.inf, x), kept)
