"""Each cause is named where it was injected, and no cause where there is only noise."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from tests.checks.gates.sides import judged, normal, pair

X = normal(24, 64)
SQUARE = normal(3, 16, 16)


def rounded(x: Any, dtype: Any) -> Any:
    return x.astype(dtype).astype(np.float32)


def changed(x: Any, where: Any, value: Any) -> Any:
    y = x.copy()
    y[where] = value
    return y


def layer_norm(x: Any, eps: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + eps)


def gelu(x: Any) -> Any:
    return x * special.ndtr(x)


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


LOW = (X * np.logspace(-3, 0, 24)[:, None]).astype(np.float32)
CHANNELS = np.random.default_rng(3).normal(size=64).astype(np.float32)
HEADS = np.random.default_rng(4).permutation(8)
CODES = np.rint(X * 8)
TIED = np.where(X > 0, np.floor(X * 8) + 0.5, np.ceil(X * 8) - 0.5)

CASES: dict[str, tuple[Any, Any, str, str]] = {
    "negated": (X, -X, "sign", "candidate = -reference"),
    "magnitudes": (X, np.abs(X), "signs", "entries is turned"),
    "scale": (X, 2 * X, "scale", "candidate = 2 x reference"),
    "log base": (X, X / np.log(10), "scale", "log base 10 for e"),
    "unbiased variance": (X, X * np.sqrt(63 / 64), "scale", "sqrt(63 / 64): biased"),
    "sum for mean": (X, X * 24, "scale", "a sum over axis 0 for a mean"),
    "offset": (X, X + 0.25, "offset", "candidate = reference + 0.25"),
    "affine": (X, 1.5 * X - 2, "affine", "1.5 x reference - 2"),
    "bias": (X, X + CHANNELS, "offset per slice", "each entry of axis 1"),
    "channel scale": (X, X * CHANNELS, "factor per slice", "each entry of axis 1"),
    "batch norm": (X, X * CHANNELS + CHANNELS[::-1], "affine per slice", "each entry of axis 1"),
    "epsilon": (layer_norm(LOW, 1e-6), layer_norm(LOW, 1e-3), "factor per slice", "axis 0"),
    "square transpose": (
        *(SQUARE, SQUARE.transpose(0, 2, 1), "transposed"),
        "permuted by (0, 2, 1)",
    ),
    "reread": (X, X.T.reshape(X.shape), "reinterpreted", "[64, 24]"),
    "reversed": (X, X[:, ::-1], "reversed", "axis 1 runs backwards"),
    "rolled": (X, np.roll(X, 1, 0), "shifted", "rolled by 1 along axis 0"),
    "late": (
        *(X, np.concatenate([np.zeros((1, 64), np.float32), X[:-1]]), "shifted"),
        "shifted by 1 along axis 0 (entry n holds entry n - 1)",
    ),
    "early": (
        *(X, np.concatenate([X[:, 1:], X[:, -1:]], 1), "shifted"),
        "shifted by -1 along axis 1 (entry n holds entry n + 1)",
    ),
    "pairs": (
        *(X, X.reshape(24, 32, 2).swapaxes(1, 2).reshape(X.shape), "interleaved"),
        "pairs against halves",
    ),
    "heads": (
        *(X, X.reshape(24, 4, 16).swapaxes(1, 2).reshape(X.shape), "interleaved"),
        "heads and their dimension exchanged",
    ),
    "head order": (
        *(X, X.reshape(24, 8, 8)[:, HEADS].reshape(X.shape), "slices permuted"),
        "along axis 1 come in another order",
    ),
    "channels": (X, X[np.random.default_rng(0).permutation(24)], "slices permuted", "axis 0"),
    "shuffled": (
        *(X, np.random.default_rng(0).permutation(X.ravel()).reshape(X.shape)),
        *("same values elsewhere", "no permutation of axes"),
    ),
    "zeros": (X, np.zeros_like(X), "constant", "every entry of the candidate is 0"),
    "bfloat16": (X, rounded(X, ml_dtypes.bfloat16), "rounded to bfloat16", "rounded to bfloat16"),
    "float16": (X, rounded(X, np.float16), "rounded to float16", "rounded to float16"),
    "tf32": (
        *(X, (X.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)),
        *("truncated to tf32", "13 low bits"),
    ),
    "clipped": (X, np.clip(X, -2, 2), "clipped", "clipped to [-2, 2]"),
    "broadcast": (X, np.broadcast_to(X[:1], X.shape), "broadcast", "the reference's slice 0"),
    "gelu": (gelu(X), gelu_tanh(X), "activation", "gelu (tanh form) of what the reference is gelu"),
    "silu": (X * special.expit(X), gelu(X), "activation", "gelu (erf form)"),
    "truncated": (CODES, np.trunc(X * 8), "truncated", "truncated where it should round"),
    "ties": (
        *(np.rint(TIED), np.sign(TIED) * np.floor(np.abs(TIED) + 0.5), "ties"),
        "half to even",
    ),
    "dead channel": (X, changed(X, (slice(None), 17), 0), "partial", "axis 1 17 of 64"),
    "repeated token": (X, changed(X, 23, X[22]), "partial", "they repeat the slice before"),
    "last frames": (
        *(X, changed(X, slice(21, 24), normal(3, 64, seed=9)), "partial"),
        "rows 21, 22, 23",
    ),
    "causal": (
        *(SQUARE, SQUARE + np.triu(np.abs(SQUARE) + 0.1, 1), "mask"),
        "above the diagonal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_cause_is_named(tmp_path: Path, name: str) -> None:
    reference, candidate, cause, words = CASES[name]
    result = pair(tmp_path, np.float32(reference), np.float32(candidate))
    assert result.exit_code == 1
    assert result.cause is not None
    assert (result.cause.name, words in result.cause.text) == (cause, True), result.cause
    assert len(result.answers) == 6


SHAPES: dict[str, tuple[Any, str]] = {
    "transposed": (X.T, "permuted by (1, 0)"),
    "extra axis": (X[None], "reshaped to [24, 64]"),
    "flat": (X.ravel(), "reshaped to [24, 64]"),
    "heads": (X.reshape(24, 8, 8).transpose(1, 0, 2), "permuted by"),
    "one frame less": (X[:-1], "axis 0 is 1 longer on the reference; the overlap agrees"),
    "one frame late": (X[1:], "agrees from entry 1"),
    "longer": (np.concatenate([X, X[:1]]), "1 longer on the candidate"),
    "broadcast": (np.broadcast_to(X, (2, 24, 64)), "broadcast from [24, 64]"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_explained(tmp_path: Path, name: str) -> None:
    candidate, words = SHAPES[name]
    result = pair(tmp_path, X, candidate)
    assert (result.exit_code, result.rows[0].status) == (1, "SHAPE")
    assert result.cause is not None and words in result.cause.text
    assert result.answers[1].text.startswith("yes: [24, 64] on the reference")


def test_a_shape_without_explanation(tmp_path: Path) -> None:
    result = pair(tmp_path, X, normal(5, 7, seed=3))
    assert result.cause is None
    assert "no permutation, reshape or overlap" in result.answers[1].text


def products(seed: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(24, 96)), rng.normal(size=(96, 64)) / 10
    exact = (a @ b).astype(np.float32)
    return exact, (rounded(a, dtype) @ rounded(b, dtype)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("seed", range(10))
def test_noise_has_no_cause(tmp_path: Path, dtype: Any, seed: int) -> None:
    reference, candidate = products(seed, dtype)
    result = pair(tmp_path, reference, candidate, {"max_abs": 1e-9, "mean_abs": 1e-10})
    assert result.exit_code == 1
    assert result.cause is None
    assert not result.rows[0].systematic
    rung = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
    assert rung[np.dtype(dtype).name] in result.answers[3].text
    assert "noise-like" in result.answers[3].text


@pytest.mark.parametrize("shape", [(4,), (8,), (16,), (3, 5), (2, 8, 16), (64, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_noise_over_a_limit_of_its_own_size_has_no_cause(
    tmp_path: Path, shape: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(*shape[:-1], 64)), rng.normal(size=(64, shape[-1]))
    reference = (a @ b).astype(np.float32)
    candidate = a.astype(np.float32) @ b.astype(np.float32)
    e = np.abs(candidate.astype(np.float64) - reference)
    share = rng.uniform(0.05, 0.95)
    limit = {"max_abs": share * float(e.max()), "mean_abs": float(e.mean()) * rng.uniform(0.3, 3)}
    result = pair(tmp_path, reference, candidate, limit)
    assert (result.exit_code, result.cause) == (1, None)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_entries_explain_nothing(tmp_path: Path, size: int) -> None:
    result = pair(tmp_path, normal(size), normal(size) + 0.1 * normal(size, seed=1))
    assert (result.exit_code, result.cause) == (1, None)


def test_a_dead_channel_among_noise_over_the_limits(tmp_path: Path) -> None:
    noisy = X * (1 + 1e-3 * normal(24, 64, seed=1))
    result = pair(tmp_path, X, changed(noisy, (slice(None), 20), 0))
    assert result.cause is not None and result.cause.name == "partial"
    assert "entries of axis 1 20 of 64 hold 100% of the squared error" in result.cause.text
    assert "they are zero; the others are over the limits" in result.cause.text


def test_a_limit_met_by_chance_is_no_partial_error(tmp_path: Path) -> None:
    noise = 1e-3 * normal(24, 64, seed=1)
    limit = float(np.sort(np.abs(noise).max(axis=1))[-2]) * 1.0001
    result = pair(tmp_path, X, X + noise, {"max_abs": limit, "mean_abs": limit})
    assert (result.exit_code, result.cause) == (1, None)


def test_noise_of_large_rows_is_no_partial_error(tmp_path: Path) -> None:
    x = changed(X, 0, 1000 * X[0])
    y = x * (1 + 1e-3 * normal(24, 64, seed=1))
    result = pair(tmp_path, x, y, {"max_abs": 0.01, "mean_abs": 0.01})
    assert (result.exit_code, result.cause) == (1, None)


def test_noise_of_codes_is_no_rounding(tmp_path: Path) -> None:
    off = np.random.default_rng(5).choice([-1, 0, 0, 0, 1], X.shape)
    result = pair(tmp_path, CODES.astype(np.int8), (CODES + off).astype(np.int8))
    assert (result.exit_code, result.cause) == (1, None)


def test_a_systematic_error_is_shown_although_it_passes(tmp_path: Path) -> None:
    wide = {"max_abs": 1.0, "mean_abs": 1.0}
    limits = {"a": wide, "b": {"max_abs": 1e-5, "mean_abs": 1e-6}}
    y = normal(24, 64, seed=1)
    result = judged(tmp_path, {"a": X, "b": y}, {"a": X * 1.0001, "b": y + 1}, limits)
    assert result.rows[0].systematic and result.rows[0].status == "ok"
    assert "a passes but looks systematic" in result.answers[0].text
    assert "last good: a" in result.answers[0].text


def test_another_tensor_is_found(tmp_path: Path) -> None:
    y, z = normal(24, 64, seed=1), normal(24, 64, seed=2)
    result = judged(tmp_path, {"a": X, "b": y, "c": z}, {"a": X, "b": z, "c": z + 1})
    assert result.cause is not None
    assert result.cause.text == "the candidate holds the reference's c"


def test_exchanged_tensors_are_found(tmp_path: Path) -> None:
    y = normal(24, 64, seed=1)
    result = judged(tmp_path, {"q": X, "k": y}, {"q": y, "k": X})
    assert [r.cause.text if r.cause else "" for r in result.rows] == [
        "the candidate holds the reference's k",
        "the candidate holds the reference's q",
    ]


def test_of_a_large_tensor_the_first_rows_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checks.gates.causes.case.LIMIT", 512)
    result = pair(tmp_path, X, 3 * X)
    assert result.cause is not None and result.cause.name == "scale"
    assert pair(tmp_path / "b", X, X.T.reshape(X.shape)).cause is None


def test_a_missing_residual_is_found(tmp_path: Path) -> None:
    y = normal(24, 64, seed=1)
    result = judged(tmp_path, {"a": X, "b": y + X}, {"a": X, "b": y})
    assert result.cause is not None and result.cause.name == "residual"
    assert "reference - 1 x a" in result.cause.text


def test_masked_rows_of_nan(tmp_path: Path) -> None:
    result = pair(tmp_path, X, changed(X, slice(22, 24), np.nan))
    assert result.cause is not None and result.cause.name == "non-finite on the candidate mask"
    assert "whole rows of axis 0: 22, 23" in result.cause.text


def test_the_behaviour(tmp_path: Path) -> None:
    logits = normal(24, 64)
    other = logits.copy()
    top = int(logits[5].argmax())
    other[5, top] -= 9
    result = judged(tmp_path, {"dec.logits": logits}, {"dec.logits": other})
    assert result.answers[4].text.startswith("yes: dec.logits")
    assert "1 of 24 rows have another argmax" in result.answers[4].text
