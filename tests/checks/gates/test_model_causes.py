"""Causes that know a model's parts: rotary embeddings, normalisations, activations, the cache."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from tests.checks.gates.sides import judged, normal, pair

HEADS = normal(3, 9, 8)


def rope(x: Any, base: float = 10000.0, first: int = 0, interleaved: bool = False) -> Any:
    n = x.shape[-1]
    angle = (first + np.arange(x.shape[-2]))[:, None] * base ** (-2 * np.arange(n // 2) / n)
    x = x.astype(np.float64)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : n // 2], x[..., n // 2 :])
    y = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    if interleaved:
        return np.stack(y, axis=-1).reshape(x.shape)
    return np.concatenate(y, axis=-1)


def halves(x: Any) -> Any:
    """Entries of a head that stand as pairs, as halves."""
    return x.reshape(*x.shape[:-1], -1, 2).swapaxes(-1, -2).reshape(x.shape)


BIAS = normal(3, 1, 8, seed=5)
ROTARY: dict[str, tuple[Any, Any, str, str]] = {
    "pairs": (
        *(rope(HEADS), rope(HEADS, interleaved=True), "rotary"),
        "turns pairs (2 i, 2 i + 1) with base 1e+04",
    ),
    "halves": (rope(HEADS, interleaved=True), rope(HEADS), "rotary", "turns halves"),
    "base": (rope(HEADS), rope(HEADS, 5e5), "rotary", "with base 5e+05"),
    "first": (rope(HEADS), rope(HEADS, first=1), "rotary", "positions from 1,"),
    "none": (rope(HEADS), HEADS, "rotary", "does not turn them"),
    "half": (
        *(rope(HEADS), np.concatenate([rope(HEADS[..., :4]), HEADS[..., 4:]], -1), "rotary"),
        "of the first half alone",
    ),
    "weights": (rope(HEADS), rope(halves(HEADS)), "rotary", "weights are laid out for"),
    "bias": (rope(HEADS + BIAS), rope(HEADS), "offset per slice", "before the rotary embedding"),
    "flat": (
        *(rope(HEADS).transpose(1, 0, 2).reshape(9, 24), HEADS.transpose(1, 0, 2).reshape(9, 24)),
        *("rotary", "does not turn them"),
    ),
    "time first": (rope(HEADS).transpose(1, 0, 2), HEADS.transpose(1, 0, 2), "rotary", "not turn"),
}


@pytest.mark.parametrize("name", ROTARY)
def test_a_rotary_embedding_of_another_kind(tmp_path: Path, name: str) -> None:
    reference, candidate, cause, words = ROTARY[name]
    result = pair(tmp_path, np.float32(reference), np.float32(candidate))
    assert result.cause is not None
    assert (result.cause.name, words in result.cause.text) == (cause, True), result.cause


def test_vectors_of_one_length_are_no_rotation(tmp_path: Path) -> None:
    other = normal(3, 9, 8, seed=4)
    other *= np.linalg.norm(HEADS, axis=-1, keepdims=True) / np.linalg.norm(
        other, axis=-1, keepdims=True
    )
    result = pair(tmp_path, HEADS, other)
    assert (result.exit_code, result.cause) == (1, None)


X = (normal(12, 32, seed=1) * np.logspace(-2, 0, 12)[:, None] + 0.1).astype(np.float32)
WEIGHT, SHIFT = 1 + 0.3 * normal(32, seed=2), 0.3 * normal(32, seed=3)


def layer(x: Any, eps: float, ddof: int = 0) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + eps)


def root(x: Any, eps: float) -> Any:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


NORMS: dict[str, tuple[Any, Any, str]] = {
    "RMS": (layer(X, 1e-5) * WEIGHT + SHIFT, root(X, 1e-5) * WEIGHT + SHIFT, "is the RMS norm of"),
    "RMS, no offset": (layer(X, 1e-5) * WEIGHT + SHIFT, root(X, 1e-5) * WEIGHT, "and no offset"),
    "layer": (root(X, 1e-6) * WEIGHT, layer(X, 1e-6) * WEIGHT, "is the layer norm of"),
    "epsilon": (
        *(layer(X, 1e-5) * WEIGHT + SHIFT, layer(X, 1e-3) * WEIGHT + SHIFT),
        "with epsilon 0.001",
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalisation_of_another_kind(tmp_path: Path, name: str) -> None:
    reference, candidate, words = NORMS[name]
    sides = [{"x": X, "y": normal(12, 32), "h": np.float32(v)} for v in (reference, candidate)]
    result = judged(tmp_path, *sides)
    assert result.first is not None and result.first.name == "h"
    assert result.cause is not None
    assert (result.cause.name, words in result.cause.text) == ("normalisation", True), result.cause
    assert " of x with" in result.cause.text


def test_a_normalisation_needs_its_input(tmp_path: Path) -> None:
    reference, candidate, _ = NORMS["RMS"]
    sides = [{"y": normal(12, 32), "h": np.float32(v)} for v in (reference, candidate)]
    assert judged(tmp_path, *sides).cause is None


def gelu(x: Any) -> Any:
    return x * special.ndtr(x)


Z = normal(24, 64).astype(np.float64)
OFFSETS = 0.5 * np.random.default_rng(7).normal(size=64)
ACTIVATIONS: dict[str, tuple[Any, Any, str, str]] = {
    "relu": (gelu(Z), np.maximum(Z, 0), "activation", "candidate is relu"),
    "tanh": (Z * special.expit(Z), np.tanh(Z), "activation", "candidate is tanh"),
    "none": (np.tanh(Z), Z, "activation", "no activation of what the reference is tanh of"),
    "bias": (gelu(Z + OFFSETS), gelu(Z), "offset per slice", "before the gelu (erf form)"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_of_another_kind(tmp_path: Path, name: str) -> None:
    reference, candidate, cause, words = ACTIVATIONS[name]
    result = pair(tmp_path, np.float32(reference), np.float32(candidate))
    assert result.cause is not None
    assert (result.cause.name, words in result.cause.text) == (cause, True), result.cause


def cut(x: Any, dtype: Any) -> Any:
    return x.astype(dtype).astype(np.float32)


ROWS = normal(16, 24, seed=8)
LATE = np.concatenate([normal(4, 24, seed=9), ROWS[:-4]])
CACHE = np.concatenate([normal(2, 8, 4), np.zeros((2, 6, 4), np.float32)], axis=1)
PLACES: dict[str, tuple[Any, Any, str, str]] = {
    "table in bfloat16": (
        *(ROWS * np.float32(24**0.5), cut(ROWS, ml_dtypes.bfloat16) * np.float32(24**0.5)),
        *("scaled and rounded to bfloat16", "over sqrt(24)"),
    ),
    "four late": (ROWS, LATE, "shifted", "shifted by 4 along axis 0"),
    "late but for the ends": (
        *(ROWS, np.concatenate([normal(2, 24, seed=9), ROWS[1:-2], normal(1, 24, seed=10)])),
        *("shifted", "but for 1 at either end"),
    ),
    "written one late": (
        *(CACHE, CACHE[:, [0, 1, 2, 3, 4, 5, 6, 8, 7, *range(9, 14)]], "slices permuted"),
        "along axis 1",
    ),
    "after the first": (
        *(ROWS, np.concatenate([ROWS[:1], normal(15, 24, seed=11)]), "after the first"),
        "rows 1-15 of 16 are off and the first agrees",
    ),
    "before the last": (
        *(ROWS, np.concatenate([normal(15, 24, seed=11), ROWS[-1:]]), "before the last"),
        "the last agrees",
    ),
    "zeros beside what is alike": (
        *(np.concatenate([normal(2, 5, 8), np.broadcast_to(ROWS[:1, :8], (2, 1, 8))], 1),),
        *(np.concatenate([np.zeros((2, 5, 8)), np.broadcast_to(ROWS[:1, :8], (2, 1, 8))], 1),),
        *("partial", "they are zero"),
    ),
    "most are zero": (
        *(ROWS, np.concatenate([0 * ROWS[:12], ROWS[12:]]), "partial"),
        "they are zero",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_values_in_other_places(tmp_path: Path, name: str) -> None:
    reference, candidate, cause, words = PLACES[name]
    result = pair(tmp_path, np.float32(reference), np.float32(candidate))
    assert result.cause is not None
    assert (result.cause.name, words in result.cause.text) == (cause, True), result.cause


def test_a_few_flips_do_not_hide_a_rounding(tmp_path: Path) -> None:
    moved = ROWS + 2e-6 * normal(16, 24, seed=12)
    limit = {"max_abs": 1e-5, "mean_abs": 1e-5}
    result = pair(tmp_path, ROWS, cut(moved.astype(np.float32), ml_dtypes.bfloat16), limit)
    assert result.cause is not None and result.cause.name == "rounded to bfloat16"


def dead(x: Any) -> Any:
    """A channel that a rectifier leaves at zero on both sides."""
    y = np.maximum(x, 0)
    y[:, -1] = 0
    return y


NOTHING: dict[str, tuple[Any, Any]] = {
    "dead channel on both sides": (dead(normal(2, 8, 5)), dead(normal(2, 8, 5, seed=1))),
    "equal items of a batch": (
        np.broadcast_to(ROWS, (2, 16, 24)),
        np.broadcast_to(normal(16, 24, seed=13), (2, 16, 24)),
    ),
    "most rows of many": (ROWS, np.concatenate([normal(10, 24, seed=14), ROWS[10:]])),
    "few channels, one large": (normal(2, 5), normal(2, 5, seed=1) + np.eye(5)[0] * 20),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_tells_nothing(tmp_path: Path, name: str) -> None:
    reference, candidate = NOTHING[name]
    result = pair(tmp_path, np.float32(reference), np.float32(candidate))
    assert (result.exit_code, result.cause) == (1, None)


@pytest.mark.parametrize("seed", range(8))
def test_two_entries_follow_no_other_tensor(tmp_path: Path, seed: int) -> None:
    """With two entries and many others, one of them explains any difference."""
    others = {f"o{n}": normal(2, 1, seed=100 * seed + n) for n in range(60)}
    x = normal(2, 1, seed=seed)
    result = judged(tmp_path, {"x": x, **others}, {"x": x + normal(2, 1, seed=seed + 50), **others})
    assert result.cause is None


def test_a_norm_without_its_weight_is_normalised_all_the_same(tmp_path: Path) -> None:
    """The reference is the norm of the candidate, too: a norm leaves a norm as it is."""
    x = normal(20, 24)
    norm = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6))
    weight = np.linspace(0.5, 1.5, 24, dtype=np.float32)
    result = pair(tmp_path, norm * weight, norm)
    assert result.cause is not None and result.cause.name == "factor per slice"
    assert result.cause.text.startswith("a factor for each entry of axis 1, from 0.6")


def test_a_factor_near_one_is_told_by_its_distance(tmp_path: Path) -> None:
    x = normal(20, 24)
    factors = 1 - np.linspace(1e-5, 5e-5, 20, dtype=np.float32)[:, None]
    limit = {"max_abs": 1e-6, "mean_abs": 1e-7}
    result = pair(tmp_path, x, x * factors, limit)
    assert result.cause is not None and "from 1 - 5" in result.cause.text
    assert "e-05 to 1 - 1" in result.cause.text
