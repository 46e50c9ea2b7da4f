"""Models ported between frameworks: layouts, forms, masks, statistics and codes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.program import Spec
from checks import assert_close
from checks.cli import main
from checks.compare import ToleranceError
from tests.public_cases.cases import numbers, right
from tests.public_cases.roads import hold, slopes, values

# --- H01: rotary embedding ------------------------------------------------------------------

VECTOR = np.array([1.0, 2.0, 3.0, 4.0])
POSITIONS = ((3, 1), (5, 3))
TO_HALVES = [0, 2, 1, 3]  # pairs (0, 1), (2, 3) laid out as halves (0, 2), (1, 3)


def turned(position: int, interleaved: bool) -> Any:
    where = np.array([position])
    return lambda x: ops.rope(x[None], where, interleaved=interleaved)[0]


def mixed(position: int) -> Any:
    """The fault: angles repeated per pair, as interleaved, with the rotation of halves."""
    angle = np.repeat(position * 10000.0 ** (-np.arange(0, 4, 2) / 4), 2)
    other = np.concatenate([-VECTOR[2:], VECTOR[:2]])
    return VECTOR * np.cos(angle) + other * np.sin(angle)


@pytest.mark.parametrize(("interleaved", "what"), [(True, "interleaved"), (False, "half-split")])
def test_h01_both_layouts_are_rotations(interleaved: bool, what: str) -> None:
    found = values(turned(1, interleaved), VECTOR)
    hold(found, "H01", what)
    hold({road: np.linalg.norm(y) for road, y in found.items()}, "H01", "norm")
    scores = [turned(a, interleaved)(VECTOR) @ turned(b, interleaved)(VECTOR) for a, b in POSITIONS]
    right("H01", "difference of scores").holds(scores[0] - scores[1])


def test_h01_a_permutation_takes_one_layout_to_the_other() -> None:
    back = np.argsort(TO_HALVES)
    halves = turned(1, False)(VECTOR[TO_HALVES])[back]
    equal = np.array_equal(halves, turned(1, True)(VECTOR))
    right("H01", "half-split of the permuted is interleaved").holds(equal)


def test_h01_the_mixed_form_fails_every_invariant() -> None:
    assert abs(np.linalg.norm(mixed(1)) - 5.863205784439206) < 1e-12
    scores = [mixed(a) @ mixed(b) for a, b in POSITIONS]
    for what, got in (
        ("norm", np.linalg.norm(mixed(1))),
        ("difference of scores", scores[0] - scores[1]),
    ):
        with pytest.raises(AssertionError, match="right is"):
            right("H01", what).holds(got)


# --- H03: GELU ------------------------------------------------------------------------------

POINTS = np.array([-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0])


def tanh_form(x: Any) -> Any:
    return ops.gelu(x, approximate="tanh")


def test_h03_two_forms_of_gelu() -> None:
    hold(values(ops.gelu, POINTS), "H03", "exact form")
    hold(values(tanh_form, POINTS), "H03", "tanh form")
    found = {road: np.diagonal(j) for road, j in slopes(ops.gelu, POINTS).items()}
    hold(found, "H03", "slope of the exact form")


def test_h03_they_differ_most_near_2_7_and_a_tolerance_tells_them_apart() -> None:
    x = np.linspace(-6, 6, 24001)
    gap = np.abs(ops.gelu(x) - tanh_form(x))
    right("H03", "largest difference").holds(np.max(gap))
    assert abs(abs(x[np.argmax(gap)]) - 2.699) < 0.002
    assert right("H03", "one form against the other").verdict == "fail"
    with pytest.raises(ToleranceError, match="by more than atol 1e-05"):
        assert_close(ops.gelu(POINTS), tanh_form(POINTS), atol=1e-5)
    assert_close(ops.gelu(POINTS), tanh_form(POINTS), atol=1e-3)


# --- H04: mel -------------------------------------------------------------------------------

SIGNAL, N_FFT, HOP, WINDOW = 224960, 2048, 275, 1102


def frames(window: int, centred: bool) -> int:
    def f(x: Any) -> Any:
        x = np.pad(x, N_FFT // 2) if centred else x
        return ops.stft(x, np.ones(window), HOP, N_FFT)

    (spec,) = ad.trace(f, Spec((SIGNAL,), np.dtype(np.float64))).out_specs
    return spec.shape[0]


def test_h04_frames_by_the_three_formulas() -> None:
    counted = [frames(N_FFT, True), frames(N_FFT, False), frames(WINDOW, False)]
    right("H04", "frames").holds(counted)


def test_h04_band_edges_on_both_scales() -> None:
    for scale, what in (("htk", "edges, HTK"), ("slaney", "edges, Slaney")):
        right("H04", what).holds(ops.mel_edges(4, 0.0, 8000.0, scale))
    thousand = [ops.mel(1000.0, scale) for scale in ("htk", "slaney")]
    right("H04", "1000 Hz in mel").holds(thousand)


def test_h04_filters_of_unit_area() -> None:
    def weights(area: bool) -> Any:
        return ops.mel_weights(4, N_FFT, 16000.0, scale="slaney", area=area)

    factors = np.max(weights(True), axis=1) / np.max(weights(False), axis=1)
    right("H04", "area factors").holds(factors)
    np.testing.assert_allclose(weights(True).sum(axis=1) * 16000 / N_FFT, 1.0, rtol=1e-3)


def test_h04_the_filters_of_mel_filterbank_are_those() -> None:
    power = np.random.default_rng(4).uniform(size=N_FFT // 2 + 1)
    weights = ops.mel_weights(4, N_FFT, 16000.0, scale="slaney", area=True)
    found = values(lambda p: ops.mel_filterbank(p, 4, 16000.0, scale="slaney", area=True), power)
    for road, y in found.items():
        np.testing.assert_allclose(y, weights @ power, rtol=1e-5, err_msg=road)


def test_h04_the_periodic_window() -> None:
    found = values(lambda n: 0.5 - 0.5 * np.cos(2 * np.pi * n / 4), np.arange(4.0))
    found["hanning"] = np.hanning(5)[:-1]
    found.pop("float32"), found.pop("float32, native")  # a cosine of pi / 2 in float32
    hold(found, "H04", "periodic Hann window")


# --- H06: a mask ----------------------------------------------------------------------------

Q, K, V = (np.array(a)[:, None] for a in ([1.0, 0.5, -0.5], [0.2, -0.4, 1.0], [1.0, 2.0, 4.0]))


def attended(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return ops.scaled_dot_product_attention(q, k, v, scale=1.0, **options)[:, 0]


def causal(q: Any, k: Any, v: Any) -> Any:
    return attended(q, k, v, is_causal=True)


# Three rows are too few to tell a cause by where they agree: the gate is shown six.
Q6, K6, V6 = np.random.default_rng(7).normal(size=(3, 6, 2))
UNMASKED, INVERTED = attended(Q, K, V), attended(Q, K, V, mask=np.triu(np.ones((3, 3), bool)))


def test_h06_the_causal_prompt() -> None:
    hold(values(causal, Q, K, V), "H06", "causal output")
    stepped = [attended(Q[n : n + 1], K[: n + 1], V[: n + 1])[0] for n in range(3)]
    hold({"step by step": np.array(stepped)}, "H06", "causal output")


def test_h06_without_the_mask_every_row_but_the_last_is_wrong() -> None:
    want = numbers(right("H06", "causal output").value)
    assert right("H06", "without the mask").verdict == "fail"
    with pytest.raises(ToleranceError, match="2 of 3 entries") as caught:
        assert_close(UNMASKED, want, rtol=1e-6)
    assert caught.value.comparison.index == (0,)
    assert_close(UNMASKED[2:], want[2:], rtol=1e-12)  # the first new token looks right
    assert right("H06", "with the mask inverted").verdict == "fail"
    np.testing.assert_allclose(INVERTED, [2.9143506860925763, 3.3363755443363328, 4.0], rtol=1e-12)
    with pytest.raises(ToleranceError, match="3 of 3 entries"):
        assert_close(INVERTED, want, rtol=1e-6)


# --- H07: batch norm ------------------------------------------------------------------------

BATCH = np.array([[1.0, 2.0, 0.0], [3.0, 3.0, 1.0], [3.0, 4.0, 3.0]])
EPS = 1e-5


def evaluated(x: Any) -> Any:
    _, mean, var = ops.batch_norm(x, eps=EPS)
    n = x.shape[0]
    return (x - mean) / np.sqrt(var * (n / (n - 1)) + EPS)


def test_h07_training_output_and_its_statistics() -> None:
    for n, what in enumerate(("training output", "mean", "biased variance")):
        hold(values(lambda x, n=n: ops.batch_norm(x, eps=EPS)[n], BATCH), "H07", what)
    hold(values(lambda x: np.var(x, axis=0, ddof=1), BATCH), "H07", "unbiased variance")


def test_h07_evaluation_by_the_unbiased_variance_is_off_by_a_known_ratio() -> None:
    hold(values(evaluated, BATCH), "H07", "evaluation output")
    trained, run = ops.batch_norm(BATCH, eps=EPS)[0], evaluated(BATCH)
    used = run != 0
    np.testing.assert_allclose(trained[used] / run[used], np.sqrt(3 / 2), rtol=1e-4)
    with pytest.raises(ToleranceError):
        assert_close(run, trained, rtol=1e-2)


def test_h07_momentum_weights_the_new_value_or_the_old() -> None:
    def running(batches: Any, momentum: Any) -> Any:
        def step(old: Any, new: Any) -> Any:
            return (1 - momentum) * old + momentum * new, old

        return ad.scan(step, 10.0, batches)[0]

    both = ad.vmap(running, in_axes=(None, 0))
    for road, got in values(both, [2.0], [0.1, 0.9]).items():
        right("H07", "running value, new or old weighted").holds(got, road, "float32" in road)
    for road, j in slopes(both, [2.0], [0.1, 0.9]).items():
        np.testing.assert_allclose(j[:, 0], [0.1, 0.9], rtol=1e-6, err_msg=road)


# --- H08: codes -----------------------------------------------------------------------------

TIES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
CODES: dict[str, Any] = {
    "to even": np.round,
    "away from zero": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "truncated": np.trunc,
    "rounded, then moved": lambda x: np.round(x) + 7.0,
    "moved, then rounded": lambda x: np.round(x + 7.0),
}


@pytest.mark.parametrize("way", CODES)
def test_h08_codes_at_ties(way: str) -> None:
    hold(values(CODES[way], TIES), "H08", way)
    for road, j in slopes(CODES[way], TIES).items():  # steps: the stated slope is 0
        assert not np.any(j), road


def test_h08_every_pair_of_ways_differs_at_a_tie_and_nowhere_else() -> None:
    apart = np.random.default_rng(8).normal(scale=4.0, size=4000).astype(np.float32)
    np.testing.assert_array_equal(CODES["to even"](apart), CODES["away from zero"](apart))
    assert np.any(CODES["to even"](TIES) != CODES["away from zero"](TIES))
    shifted = CODES["truncated"](apart) != CODES["to even"](apart)
    assert 0.4 < np.mean(shifted) < 0.6
    assert np.corrcoef(CODES["truncated"](apart), CODES["to even"](apart))[0, 1] > 0.98


# --- what the tensor gate must say of two dumps -----------------------------------------------


def gate(folder: Path, reference: Any, candidate: Any, tolerance: float) -> int:
    """Exit code of `gradsweep gate compare` for one tensor on both sides."""
    for side, array in (("reference", reference), ("candidate", candidate)):
        (folder / side).mkdir()
        np.save(folder / side / "dec.out.npy", np.asarray(array))
    limits = {"dec.out": {"max_abs": tolerance, "mean_abs": tolerance}}
    (folder / "limits.json").write_text(json.dumps(limits))
    sides = [str(folder / name) for name in ("reference", "candidate")]
    return main(["gate", "compare", *sides, "--tolerances", str(folder / "limits.json")])


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (turned(1, True)(VECTOR), turned(1, False)(VECTOR[TO_HALVES]), "interleave"),
        (ops.gelu(POINTS), tanh_form(POINTS), "gelu"),
        (
            ops.scaled_dot_product_attention(Q6, K6, V6, is_causal=True),
            ops.scaled_dot_product_attention(Q6, K6, V6),
            "are off and the last agrees: positions, a mask",
        ),
        (np.round(TIES).astype(np.int8), CODES["away from zero"](TIES).astype(np.int8), "ties"),
    ],
    ids=["h01", "h03", "h06", "h08"],
)
def test_h_the_gate_fails_and_names_the_cause(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reference: Any,
    candidate: Any,
    words: str,
) -> None:
    assert gate(tmp_path, reference, candidate, 1e-5) == 1
    assert words in capsys.readouterr().out.lower()
