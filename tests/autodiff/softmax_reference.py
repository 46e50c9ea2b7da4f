"""Softmax, its logarithm and its derivatives in 60 digits, and the three float32 roads."""

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

import autodiff as ad

Number = Any
MP = mpmath.mp.clone()
MP.dps = 60


def numbers(x: Any) -> list[Number]:
    return [MP.mpf(float(v)) for v in np.ravel(np.asarray(x))]


def log_softmax(x: Any) -> list[Number]:
    """Relative accuracy at any margin: the maximum is left out of the sum here too."""
    z = numbers(x)
    k = max(range(len(z)), key=z.__getitem__)
    rest = MP.fsum(MP.exp(v - z[k]) for i, v in enumerate(z) if i != k)
    return [v - z[k] - MP.log1p(rest) for v in z]


def softmax(x: Any) -> list[Number]:
    return [MP.exp(v) for v in log_softmax(x)]


def softmax_vjp(x: Any, g: Any) -> list[Number]:
    p, c = softmax(x), numbers(g)
    mean = MP.fsum(a * b for a, b in zip(p, c, strict=True))
    return [a * (b - mean) for a, b in zip(p, c, strict=True)]


def log_softmax_vjp(x: Any, g: Any) -> list[Number]:
    c = numbers(g)
    return [b - a * MP.fsum(c) for a, b in zip(softmax(x), c, strict=True)]


def log_softmax_jvp(x: Any, t: Any) -> list[Number]:
    p, c = softmax(x), numbers(t)
    mean = MP.fsum(a * b for a, b in zip(p, c, strict=True))
    return [b - mean for b in c]


def student_gradient(s: Any, t: Any) -> list[Number]:
    return [a - b for a, b in zip(softmax(s), softmax(t), strict=True)]


def kl(t: Any, s: Any) -> Number:
    rows = zip(softmax(t), log_softmax(t), log_softmax(s), strict=True)
    return MP.fsum(p * (a - b) for p, a, b in rows)


def kl_teacher_gradient(t: Any, s: Any) -> list[Number]:
    p = softmax(t)
    w = [a - b for a, b in zip(log_softmax(t), log_softmax(s), strict=True)]
    mean = MP.fsum(a * b for a, b in zip(p, w, strict=True))
    return [a * (b - mean) for a, b in zip(p, w, strict=True)]


def relative(got: Any, want: Sequence[Number]) -> float:
    """Largest relative error of an entry."""
    pairs = zip(numbers(got), want, strict=True)
    return max(float(abs(a - b) / abs(b)) if b else float(abs(a)) for a, b in pairs)


def of_largest(got: Any, want: Sequence[Number]) -> float:
    """Largest error relative to the largest entry."""
    size = max(abs(b) for b in want)
    return float(max(abs(a - b) for a, b in zip(numbers(got), want, strict=True)) / size)


def roads(f: Callable[..., Any], *args: Any) -> dict[str, np.ndarray]:
    """The function at float32: natively, and in the interpreter with each primitive rounded."""
    narrow = [np.asarray(a, np.float32) for a in args]
    wide = [a.astype(np.float64) for a in narrow]
    program = ad.trace(f, *wide)
    native = np.asarray(f(*narrow))
    assert native.dtype == np.float32
    return {"native": native, "interpreter": ad.interpret(program, *wide, precision="float32")}


def margins(rng: np.random.Generator, values: Sequence[float], n: int = 6) -> np.ndarray:
    """Rows whose third class exceeds the others by these margins."""
    rows = rng.normal(size=(len(values), n))
    rows[:, 2] = np.max(np.delete(rows, 2, axis=1), axis=1) + np.asarray(values)
    return rows.astype(np.float32).astype(np.float64)
