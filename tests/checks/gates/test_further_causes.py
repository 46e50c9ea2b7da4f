"""Further causes that know a model's parts: norms left out, gated units, logarithms, filter banks,
the newest entries of a cache, gates in another order.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import autodiff as ad
from tests.checks.gates.sides import judged, normal, pair
from tests.checks.gates.test_model_causes import X, layer, root, rope


@pytest.mark.parametrize("kind", [layer, root])
def test_a_norm_that_is_left_out_or_one_too_many(tmp_path: Path, kind: Any) -> None:
    """Queries by head: (time, heads, width), each with the weight of its entry."""
    q = np.concatenate([X, 2 * X[::-1]]).reshape(12, 4, 16)
    weight = 1 + 0.3 * normal(16, seed=2)
    normed = np.float32(kind(q, 1e-6) * weight)
    for n, (r, c, words) in enumerate(
        [(normed, q, "the candidate is not normalised: "), (q, normed, "which is not normalised")]
    ):
        result = pair(tmp_path / str(n), r, c)
        assert result.cause is not None
        assert (result.cause.name, words in result.cause.text) == ("normalisation", True)
        assert ("RMS norm" if kind is root else "layer norm") in result.cause.text
    other = np.float32(normed + 0.05 * normal(12, 4, 16, seed=8))
    assert pair(tmp_path / "other", other, q).cause is None


def silu(x: Any) -> Any:
    return x * special.expit(x)


def test_gate_and_up_exchanged(tmp_path: Path) -> None:
    gate, up = normal(20, 24, seed=4), normal(20, 24, seed=5)
    ours = {"gate": gate, "up": up, "mlp": silu(gate) * up}
    causes = {}
    for name, mlp in {
        "exchanged": silu(up) * gate,
        "gelu": gate * special.ndtr(gate) * up,
        "another": silu(up) * gate * (1 + 0.01 * normal(20, 24, seed=6)),
    }.items():
        cause = judged(tmp_path / name, ours, {**ours, "mlp": mlp}).cause
        causes[name] = cause and (cause.name, cause.text)
    what = "where the reference is silu of gate, times up"
    assert causes["exchanged"] == (
        *("gate and up", f"gate and up are exchanged: silu of up, times gate, {what}"),
    )
    assert causes["gelu"] == (
        *("activation", f"the candidate is gelu (erf form) of gate, times up, {what}"),
    )
    assert causes["another"] is None


POWERS = np.exp(3 * normal(40, 12, seed=7)).astype(np.float64)


def decades(power: Any, log: Any, below: float = 8.0) -> Any:
    """Whisper's features: at most so far below the largest."""
    x = log(power)
    return np.float32((np.maximum(x, x.max() - below) + 4) / 4)


def test_a_logarithm_to_another_base_above_a_floor(tmp_path: Path) -> None:
    assert (decades(POWERS, np.log) == decades(POWERS, np.log).min()).mean() > 0.1  # cut
    pairs = {
        "e for 10": (np.log10, np.log, "log base e for 10: "),
        "10 for e": (np.log, np.log10, "log base 10 for e: "),
        "2 for e": (np.log, np.log2, "log base 2 for e: "),
    }
    for name, (ours, theirs, words) in pairs.items():
        below = 16.0 if theirs is np.log2 else 8.0
        result = pair(tmp_path / name, decades(POWERS, ours, below), decades(POWERS, theirs, below))
        assert result.cause is not None
        assert (result.cause.name, words in result.cause.text) == ("logarithm", True), result.cause
    loud = np.stack([POWERS, 1e3 * POWERS])  # each example has a floor of its own
    sides = [np.concatenate([decades(x[None], f) for x in loud]) for f in (np.log10, np.log2)]
    several = pair(tmp_path / "s", *sides).cause
    assert several is not None and several.name == "logarithm"
    whole = pair(tmp_path / "w", np.float32(np.log10(POWERS) + 1), np.float32(np.log(POWERS) + 1))
    assert whole.cause is not None and whole.cause.name == "affine"
    assert "(ln 10: log base e for 10)" in whole.cause.text
    odd = decades(POWERS, lambda x: 2 * np.log10(x))
    found = pair(tmp_path / "odd", decades(POWERS, np.log10), odd).cause
    assert found is None or found.name != "logarithm"


BINS, MELS, RATE = 129, 20, 16000
POWER = (normal(1, 30, BINS, seed=3) ** 2 + normal(1, 30, BINS, seed=4) ** 2).astype(np.float32)


def mels(scale: str = "slaney", area: bool = True, low: float = 0.0, rate: int = RATE) -> Any:
    bank = ad.ops.mel_weights(MELS, 2 * (BINS - 1), rate, low, scale=scale, area=area)
    return POWER.astype(np.float64) @ bank.T


BANKS: dict[str, tuple[Any, Any, str]] = {
    "htk": (mels(), mels("htk"), "htk scale, 0 to 8000 Hz at 16,000 Hz, of one area, where"),
    "slaney": (mels("htk"), mels(), "slaney scale, 0 to 8000 Hz at 16,000 Hz, of one area, where"),
    "low": (mels(), mels(low=20.0), "slaney scale, 20 to 8000 Hz"),
    "rate": (mels(), mels(rate=22050), "0 to 11025 Hz at 22,050 Hz"),
}


@pytest.mark.parametrize("log", [False, True], ids=["energies", "logarithm"])
@pytest.mark.parametrize("name", BANKS)
def test_another_filter_bank(tmp_path: Path, name: str, log: bool) -> None:
    reference, candidate, words = BANKS[name]
    sides = []
    for x in (reference, candidate):
        x = np.maximum(np.log10(x), 0.5 - 8) / 4 + 1 if log else x
        mel = np.float32(x[:, :-1].swapaxes(1, 2))  # (batch, mels, frames), the last one dropped
        sides.append({"power": POWER, "mel": mel})
    result = judged(tmp_path, *sides)
    assert result.first is not None and result.first.name == "mel" and result.cause is not None
    assert (result.cause.name, words in result.cause.text) == ("mel filters", True), result.cause


def test_filters_that_are_no_known_bank_have_no_name(tmp_path: Path) -> None:
    other = mels("htk") * (1 + 0.02 * normal(MELS, seed=9)) + 0.01 * normal(1, 30, MELS, seed=1)
    sides = [{"power": POWER, "mel": np.float32(x)} for x in (mels(), other)]
    assert judged(tmp_path, *sides).cause is None


# --- the newest entries of a cache ---


def keys(at: Any, length: int = 12, base: float = 10000.0, interleaved: bool = False) -> Any:
    """(heads, positions, width): rotated keys, each turned for its position in `at`."""
    raw = normal(3, length, 8, seed=6)
    turned = [rope(raw[:, n : n + 1], base, p, interleaved) for n, p in enumerate(at)]
    cache = np.zeros((3, 16, 8), np.float32)
    cache[:, :length] = np.concatenate(turned, axis=1)
    return cache


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("last", "words"),
    [
        ([12], "entry 11 is turned as 12:"),
        ([10], "entry 11 is turned as 10:"),
        ([0], "entry 11 is turned as 0:"),
        ([11, 12], "entry 10 is turned as 11, 11 is turned as 12:"),
        ([0, 1], "entry 10 is turned as 0, 11 is turned as 1:"),
    ],
)
def test_keys_of_a_step_at_another_position(
    tmp_path: Path, last: Any, words: str, interleaved: bool
) -> None:
    right = keys(range(12), interleaved=interleaved)
    wrong = keys([*range(12 - len(last)), *last], interleaved=interleaved)
    cause = pair(tmp_path, right, wrong).cause
    assert cause is not None
    assert (cause.name, words in cause.text) == ("cache position", True), cause


def test_other_keys_of_one_length_are_at_no_position(tmp_path: Path) -> None:
    right = keys(range(12))
    wrong = right.copy()
    other = normal(3, 8, seed=2)
    sizes = (np.linalg.norm(v, axis=-1, keepdims=True) for v in (wrong[:, 11], other))
    wrong[:, 11] = other * (next(sizes) / next(sizes))
    cause = pair(tmp_path, right, wrong).cause
    assert cause is not None and cause.name == "partial"


@pytest.mark.parametrize(
    ("by", "count", "words"),
    [
        (-1, 1, "entries 10 of axis 1 hold the reference's 11: a cache that is written 1 place e"),
        (-2, 2, "entries 8, 9 of axis 1 hold the reference's 10, 11: a cache that is written 2 pl"),
    ],
)
def test_a_step_that_is_written_elsewhere(tmp_path: Path, by: int, count: int, words: str) -> None:
    right = keys(range(12))
    wrong = right.copy()
    wrong[:, 12 - count : 12] = 0
    wrong[:, 12 - count + by : 12 + by] = right[:, 12 - count : 12]
    cause = pair(tmp_path, right, wrong).cause
    assert cause is not None
    assert (cause.name, words in cause.text) == ("cache place", True), cause


def test_other_words_are_no_cache(tmp_path: Path) -> None:
    """Rows of a table: one is the next word's, which is a third word's."""
    right = normal(12, 8)
    wrong = right.copy()
    wrong[4:6] = right[5], normal(8, seed=3)
    cause = pair(tmp_path, right, wrong).cause
    assert cause is not None and cause.name == "partial"


def test_gates_in_the_order_of_onnx(tmp_path: Path) -> None:
    """Of an LSTM's projection before its nonlinearities: i, f, g, o and i, o, f, c."""
    parts = np.split(normal(9, 24), 4, axis=-1)
    wrong = np.concatenate([parts[n] for n in (0, 3, 1, 2)], axis=-1)
    cause = pair(tmp_path, np.concatenate(parts, -1), wrong).cause
    assert cause is not None and cause.name == "slices permuted"
    assert "in 4 parts as (0, 2, 3, 1) (gates i, o, f, c (ONNX) against i, f, g, o)" in cause.text
