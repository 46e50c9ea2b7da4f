"""The least limits of tensors that were computed in bfloat16 or float16.

Late in a network the difference of two right runs is made of few roundings that fell on the other
side: rare, and large where they occur, so that a few runs do not show the largest. With the
format's unit roundoff u (2^-8 of bfloat16, 2^-11 of float16) no limit is below

    max_abs:  4 u p99|x|, and 2 u max|x| (one unit in the last place) of a tensor stored so
    mean_abs: 1.5 u rms(x).
"""

import re
from collections.abc import Iterable

import ml_dtypes
import numpy as np

from checks.gates.formats.manifest import DEBUG, Statistics, dtype_name, dtype_of
from checks.gates.formats.readers import Side
from checks.gates.limits.contract import Limit, rounded_up
from checks.tolerances import constant

_WORDS = {
    "bfloat16": r"bf16|bfloat16",
    "float16": r"f16|fp16|float16|half",
}  # in a dtype policy; the coarser one first


def narrow(dtype: str) -> str:
    """Return a dtype's name where it is a float narrower than float32, else ""."""
    kind = dtype_of(dtype)
    coarse = kind.kind in "fV" and kind.itemsize < np.dtype(np.float32).itemsize
    return kind.name if coarse else ""


def roundoff(dtype: str) -> float:
    """Return the unit roundoff of a float: half the gap between 1 and the next number."""
    return float(ml_dtypes.finfo(dtype_of(dtype)).eps) / 2  # type: ignore[no-untyped-call]


def formats(side: Side, dtype: str | None = None) -> dict[str, str]:
    """Return what each floating tensor of a side was computed in, where narrower than float32.

    A tensor of that dtype was; so were all where `dtype`, or else the run's dtype policy, says so.
    Without either, those after a narrow one were too: a float32 head behind bfloat16 blocks has
    their rounding.

    Arguments:
        side: the dump.
        dtype: such as "bfloat16"; "float32" that nothing but what is stored so was narrow.

    Returns:
        The dtype by key; other tensors are left out.

    Raises:
        GateError: there is no such dtype.
    """
    if dtype is not None:
        common = narrow(dtype_name(dtype, "--dtype"))
    else:
        common = _of_policy(side.run.dtype_policy if side.run else "")
    stored = {k: s.tensor for k, s in side.tensors.items()}
    if dtype is None and not side.ordered:
        own = (narrow(t.dtype) for t in stored.values() if t.role != DEBUG)
        common = _coarser(common, *own)
    found = {}
    for key, tensor in stored.items():
        made = _coarser(common, narrow(tensor.dtype))
        if dtype is None and tensor.role != DEBUG:
            common = made
        if made and dtype_of(tensor.dtype).kind in "fVc":
            found[key] = made
    return found


def _of_policy(text: str) -> str:
    named = (n for n, words in _WORDS.items() if re.search(rf"\b(?:{words})\b", text.lower()))
    return next(named, "")


def _coarser(*dtypes: str) -> str:
    return max((d for d in dtypes if d), key=roundoff, default="")


def floor(figures: Iterable[tuple[Statistics, str, str]]) -> Limit | None:
    """Return the least limit of one tensor, the widest over its calls and runs.

    Arguments:
        figures: for each, its statistics, the dtype it is stored in and that it was computed in
            ("" where no narrower than float32).

    Returns:
        The limit, which says where it is from; None where nothing was narrow.
    """
    largest = mean = 0.0
    made = ""
    for s, stored, computed in figures:
        if not computed:
            continue
        made, u = _coarser(made, computed), roundoff(computed)
        largest = max(largest, constant("gate_floor_max") * u * (s.p99_abs or 0.0))
        if narrow(stored):
            ulp = constant("gate_floor_ulp") * roundoff(stored)
            largest = max(largest, ulp * (s.absmax or 0.0))
        mean = max(mean, constant("gate_floor_mean") * u * (s.rms or 0.0))
    return Limit(rounded_up(largest), rounded_up(mean)) if made else None


def formula(dtype: str) -> str:
    """Return one line on the floor of a dtype."""
    u = f"u = {roundoff(dtype):.3g}"
    most, mean = (constant(f"gate_floor_{n}") for n in ("max", "mean"))
    ulp = f"{constant('gate_floor_ulp'):g} u absmax where stored so"
    return f"Floor of {dtype}: max_abs >= {most:g} u p99, {ulp}; mean_abs >= {mean:g} u rms; {u}."
