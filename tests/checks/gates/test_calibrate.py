"""`gradsweep gate calibrate`: limits from noise and drift; nothing from a fault."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.formats.readers import open_side
from checks.gates.limits.calibration import calibrate
from checks.gates.limits.contract import Limit, read_contract
from checks.gates.limits.refusals import against_float64
from tests.checks.gates.sides import TIGHT, normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
X, Y = normal(40, 50), 3 * normal(40, 50, seed=1)
RUN = {"dtype_policy": "float32", "threads": 2, "versions": {"torch": "2.9"}}
# Far below and far above the provisional limits of X, which are 2.6e-4 and 1e-5.
SMALL, LARGE = 1e-7, 1e-3
INFORMATIONAL = {"role": "informational"}


def noisy(array: Any, size: float, seed: int) -> Any:
    """An error that no value explains."""
    error = np.random.default_rng(seed).uniform(-size, size, array.shape)
    return (array + error).astype(array.dtype)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three reference runs with noise, two candidates, provisional limits of 2 tensors."""
    for n in range(3):
        made = {"enc.x": noisy(X, SMALL, n), "enc.y": noisy(Y, SMALL, 10 + n)}
        write_side(tmp_path / f"r{n}", made, **RUN)
    for n in range(2):
        made = {"enc.x": noisy(X, SMALL, 20 + n), "enc.y": noisy(Y, SMALL, 30 + n)}
        write_side(tmp_path / f"c{n}", made, **RUN)
    limits = {n: {"max_abs": 3e-4, "mean_abs": 3e-5} for n in ("enc.x", "enc.y")}
    comment = ["Ours.", "Provisional, from 1 reference run.", "Calibrated: before."]
    write_limits(tmp_path / "t.json", {"_comment": comment, **limits})
    return tmp_path


def candidate(folder: Path, **tensors: Any) -> Path:
    """Another candidate, in place of c0; a name is enc.<key>."""
    made = {"enc.x": noisy(X, SMALL, 20), "enc.y": noisy(Y, SMALL, 30)}
    made |= {f"enc.{k}": v for k, v in tensors.items()}
    return write_side(folder / "other", made, **RUN)


def run(folder: Path, *options: Any, candidates: Any = ("c0", "c1"), count: int = 3) -> int:
    command = ["gate", "calibrate", "--tolerances", folder / "t.json"]
    command += ["--reference", *(folder / f"r{n}" for n in range(count))]
    command += ["--candidate", *(folder / c for c in candidates)]
    return main([*map(str, command), *map(str, options)])


def proposed(folder: Path, *candidates: str, **options: Any) -> Any:
    references = [folder / f"r{n}" for n in range(3)]
    paths = [folder / c for c in candidates or ("c0", "c1")]
    return calibrate(folder / "t.json", references, paths, **options)


def test_limits_that_hold_are_kept(runs: Path, capsys: Captured) -> None:
    before = read_contract(runs / "t.json").limits
    assert run(runs) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == "tensor max_abs by mean_abs by drift / rms".split()
    assert out[1].split()[:5] == ["enc.x", "0.0003", "kept", "3e-05", "kept"]
    assert out[-1] == f"{runs / 't.json'}: 0 of 2 tensors with new limits"
    after = read_contract(runs / "t.json")
    assert {n: (x.max_abs, x.mean_abs) for n, x in after.limits.items()} == {
        n: (x.max_abs, x.mean_abs) for n, x in before.items()
    }
    assert after.limits["enc.x"].comment == ("From: kept; 3 reference and 2 candidate runs.",)
    assert after.comment[0] == "Ours."
    assert after.comment[1] == "Calibrated: dtype policy float32."
    assert after.comment[2] == "Calibrated: 3 reference runs, threads 2; torch 2.9."
    assert after.comment[3] == "Calibrated: 2 candidate runs, threads 2; torch 2.9."
    assert after.comment[4] == (
        "Calibrated: noise over 3 pairs of reference runs, drift over 6 pairs of both."
    )
    words = after.comment[5].removeprefix("Calibrated: relative rms of the drift: ").split(", ")
    assert [w.split()[0] for w in words] == ["enc.x", "enc.y"]
    pairs = [(noisy(X, SMALL, 20 + c), noisy(X, SMALL, r)) for c in range(2) for r in range(3)]
    drift = max(np.sqrt(np.mean((c - r) ** 2, dtype=np.float64)) for c, r in pairs)
    assert float(words[0].split()[1]) == pytest.approx(drift, rel=0.1)
    assert len(after.comment) == 6


def test_drift_and_noise_decide(runs: Path, capsys: Captured) -> None:
    limits = {n: {"max_abs": LARGE, "mean_abs": 3e-4} for n in ("enc.x", "enc.y")}
    write_limits(runs / "t.json", limits)
    other = candidate(runs, x=noisy(X, LARGE, 40))
    write_side(runs / "r3", {"enc.x": X, "enc.y": noisy(Y, 0.4 * LARGE, 41)}, **RUN)
    references = [runs / f"r{n}" for n in range(4)]
    found = calibrate(runs / "t.json", references, [other], because="bf16 weights")
    x, y = found.proposals
    assert x.decided == ("drift", "drift") and y.decided == ("noise", "noise")
    theirs = noisy(X, LARGE, 40).astype(float)
    ours_of_x = [*(noisy(X, SMALL, n) for n in range(3)), X]  # every reference run counts
    apart = max((np.abs(theirs - r) for r in ours_of_x), key=lambda e: float(e.max()))
    assert x.drift.max_abs == pytest.approx(apart.max())
    assert 1.5 * apart.max() <= x.new.max_abs <= 1.5 * apart.max() * 1.1
    apart = max((np.abs(theirs - r) for r in ours_of_x), key=lambda e: float(e.mean()))
    assert 1.5 * apart.mean() <= x.new.mean_abs <= 1.5 * apart.mean() * 1.1
    ours = noisy(Y, 0.4 * LARGE, 41).astype(float)
    noise = max(np.abs(ours - noisy(Y, SMALL, 10 + n)).max() for n in range(3))
    assert y.noise.max_abs == pytest.approx(noise)
    assert 4 * noise <= y.new.max_abs <= 4 * noise * 1.1
    assert not found.problems


def test_a_candidate_near_the_first_run_alone_is_held_against_all(runs: Path) -> None:
    """The first run's rounding is shared by the candidate; the other runs show how rare that is."""
    far = noisy(X, 1e-5, 50)
    for n in (1, 2):
        write_side(runs / f"f{n}", {"enc.x": far, "enc.y": noisy(Y, SMALL, n)}, **RUN)
    limits = {"enc.x": {"max_abs": 1e-3, "mean_abs": 1e-9}}
    write_limits(runs / "t.json", limits)
    write_side(runs / "near", {"enc.x": noisy(X, SMALL, 0)}, **RUN)
    references = [runs / "r0", runs / "f1", runs / "f2"]
    (x,) = calibrate(runs / "t.json", references, [runs / "near"], because="rounding").proposals
    apart = np.abs(far.astype(float) - noisy(X, SMALL, 0))
    assert x.drift.mean_abs == pytest.approx(apart.mean())
    assert x.relative == pytest.approx(np.sqrt(np.mean(apart**2) / np.mean(far**2.0)), rel=1e-3)


def test_an_error_is_systematic_beside_half_of_the_runs(runs: Path) -> None:
    """One odd reference run is not the candidate's fault; a fault is beside all of them."""
    bent = (X + 1e-6 * np.sin(3 * X)).astype(np.float32)
    write_side(runs / "odd", {"enc.x": bent, "enc.y": Y}, **RUN)
    for others in (["r0", "r1", "odd"], ["r0", "r1", "r2"], ["odd", "r1", "r2"]):
        found = calibrate(runs / "t.json", [runs / n for n in others], [runs / "c0"])
        assert not found.problems, others
    theirs = candidate(runs, x=bent)
    found = calibrate(runs / "t.json", [runs / f"r{n}" for n in range(3)], [theirs])
    assert str(found.problems[0]).partition("\n")[0].endswith(", beside 3 of 3 reference runs")


def test_infinities_agree_with_every_reference_run(tmp_path: Path) -> None:
    masks = []
    for n in (1, 1, 2):
        masks.append(np.where(np.arange(50) < n, -np.inf, X).astype(np.float32))
        write_side(tmp_path / f"m{len(masks) - 1}", {"probs": (masks[-1], INFORMATIONAL)})
    write_side(tmp_path / "c", {"probs": (masks[0], INFORMATIONAL)})
    write_limits(tmp_path / "t.json", {"probs": {"max_abs": 0.1, "mean_abs": 0.1}})
    references = [tmp_path / f"m{n}" for n in range(3)]
    found = calibrate(tmp_path / "t.json", references, [tmp_path / "c"])
    assert [p.where for p in found.problems] == [str(references[2])]
    assert "'probs' that are not finite agree with the first reference run alone" in (
        found.problems[0].what
    )


def test_the_provisional_limit_is_the_least_of_a_wider_one(runs: Path) -> None:
    write_limits(runs / "t.json", {"enc.y": {"max_abs": 1e-7, "mean_abs": 1e-9}})
    (y,) = proposed(runs).proposals
    assert y.decided == ("provisional", "provisional")
    assert y.new.max_abs == pytest.approx(1e-4 * np.percentile(np.abs(Y), 99), rel=0.15)


def test_tighten_lowers_to_the_proposal(runs: Path) -> None:
    write_limits(runs / "t.json", {"enc.x": {"max_abs": "inf", "mean_abs": 0.5}})
    (kept,) = proposed(runs).proposals
    assert kept.new == kept.old == Limit(float("inf"), 0.5)
    (lower,) = proposed(runs, tighten=True).proposals
    assert lower.decided == ("provisional", "provisional")
    assert lower.new.max_abs == pytest.approx(2.6e-4, rel=0.1) and not lower.widened


def test_a_limit_of_zero_that_holds_stays(runs: Path) -> None:
    for n in range(3):
        write_side(runs / f"z{n}", {"emb": X})
    write_side(runs / "zc", {"emb": X})
    write_limits(runs / "t.json", {"emb": {"max_abs": 0.0, "mean_abs": 0.0}})
    references = [runs / f"z{n}" for n in range(3)]
    (emb,) = calibrate(runs / "t.json", references, [runs / "zc"], tighten=True).proposals
    assert emb.new == Limit(0.0, 0.0) and emb.factor == 1


def test_from_zero_is_wider(runs: Path) -> None:
    write_limits(runs / "t.json", {"enc.x": {"max_abs": 0.0, "mean_abs": 0.0}})
    found = proposed(runs)
    assert found.proposals[0].factor == float("inf")
    assert "more than 2 x wider, 'enc.x' from 0" in str(found.problems[-1])


def test_widening_needs_a_reason_which_is_kept(runs: Path, capsys: Captured) -> None:
    limits = {"enc.x": {"max_abs": 3e-4, "mean_abs": 3e-5, "_comment": "First."}}
    write_limits(runs / "t.json", limits)
    before = (runs / "t.json").read_text()
    candidate(runs, x=noisy(X, LARGE, 40))
    assert run(runs, candidates=["other"]) == 2
    out = capsys.readouterr().out
    assert "INVALID  the limits of 1 tensor would become more than 2 x wider, 'enc.x' " in out
    assert f"\n  at {runs / 't.json'}\n  say why, to be kept in the file: --because" in out
    assert out.splitlines()[-1] == "INVALID: nothing is written"
    assert (runs / "t.json").read_text() == before
    assert run(runs, "--because", "bf16 in the projections", candidates=["other"]) == 0
    comment = json.loads((runs / "t.json").read_text())["enc.x"]["_comment"]
    assert comment[0] == "First." and len(comment) == 3
    assert comment[2] == "From: drift; 3 reference and 1 candidate run."
    assert comment[1].startswith("Widened ") and comment[1].endswith(": bf16 in the projections")
    assert "max_abs 0.0003 -> 0.0015 by drift" in comment[1]


def test_less_than_twice_as_wide_needs_none(runs: Path) -> None:
    error = np.abs(noisy(X, SMALL, 20).astype(float) - noisy(X, SMALL, 0)).max()
    write_limits(runs / "t.json", {"enc.x": {"max_abs": 2 * error, "mean_abs": 1.0}})
    (x,) = proposed(runs).proposals
    assert x.decided[0] != "kept" and x.widened  # 4 x noise, then the provisional one
    limit = {"max_abs": 0.7 * x.new.max_abs, "mean_abs": 1.0}
    write_limits(runs / "t.json", {"enc.x": limit})
    drifted = candidate(runs, x=noisy(X, 0.6 * x.new.max_abs, 40))
    found = proposed(runs, str(drifted))
    assert 1 < found.proposals[0].factor <= 2 and not found.problems


def test_another_output_and_a_dry_run(runs: Path, capsys: Captured) -> None:
    before = (runs / "t.json").read_text()
    assert run(runs, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("; nothing is written")
    assert run(runs, "--output", runs / "new.json") == 0
    assert (runs / "t.json").read_text() == before
    assert set(read_contract(runs / "new.json").limits) == {"enc.x", "enc.y"}
    assert {p.name for p in runs.iterdir() if not p.is_dir()} == {"t.json", "new.json"}


# --- what is refused -------------------------------------------------------------------------


def refused(runs: Path, capsys: Captured, *options: Any, **given: Any) -> str:
    before = (runs / "t.json").read_text()
    assert run(runs, *options, **given) == 2
    assert (runs / "t.json").read_text() == before
    done = capsys.readouterr()
    return done.out + done.err


def test_a_reference_run_that_is_no_repeat_is_refused(runs: Path, capsys: Captured) -> None:
    """Four times its difference would become the limit of a right candidate."""
    odd = (X * np.float32(1 + 2e-5)).astype(np.float32)
    write_side(runs / "odd", {"enc.x": odd, "enc.y": noisy(Y, SMALL, 12)}, **RUN)
    for others in (["r0", "r1", "odd"], ["odd", "r1", "r2"]):
        paths = [runs / n for n in others]
        found = calibrate(runs / "t.json", paths, [runs / "c0"], because="another machine")
        assert found.proposals[0].new.max_abs > 3e-4
        odd_one = [p for p in found.problems if "is no repeat of the others" in p.what]
        assert [p.where for p in odd_one] == [str(runs / "odd")]
        assert "'enc.x' is systematically off (eta " in odd_one[0].what
    meant = {"because": "another machine", "understood": ["enc.x"]}
    paths = [runs / n for n in ("r0", "r1", "odd")]
    assert not calibrate(runs / "t.json", paths, [runs / "c0"], **meant).problems


def test_a_systematic_error(runs: Path, capsys: Captured) -> None:
    """tanh-like distortion of no named kind, far below the limits: a pass, but no noise."""
    candidate(runs, x=(X + 1e-6 * np.sin(3 * X)).astype(np.float32))
    out = refused(runs, capsys, "--because", "it is so", candidates=["other"])
    assert "INVALID  the error of 'enc.x' is systematic: the reference's value explains " in out
    assert f"\n  at {runs / 'other'}\n" in out
    assert '  find it; where it is meant: --understood "enc.x" --because "..."' in out
    why = ("--because", "another sine", "--understood", "enc.x")
    assert run(runs, *why, candidates=["other"]) == 0
    comment = read_contract(runs / "t.json").comment
    assert comment[-1] == "Calibrated: systematic errors of enc.x are understood: another sine"


def test_a_cause(runs: Path, capsys: Captured) -> None:
    candidate(runs, y=np.roll(Y, 1, 0))
    out = refused(runs, capsys, "--because", "rows", candidates=["c0", "other"])
    assert "INVALID  'enc.y' has a cause: " in out
    assert "\n  mend it; a wider limit would hide it\n" in out


def test_more_error_against_float64_than_the_reference_has(runs: Path, capsys: Captured) -> None:
    wide = {"enc.x": X.astype(float), "enc.y": Y.astype(float)}
    write_side(runs / "wide", wide, dtype_policy="float64")
    option = ("--reference64", runs / "wide")
    assert run(runs, *option) == 0
    capsys.readouterr()
    candidate(runs, x=noisy(X, 5 * SMALL, 40))
    out = refused(runs, capsys, *option, candidates=["other"])
    assert "INVALID  'enc.x' is " in out and " times further from float64 than the reference" in out
    assert "\n  find what the candidate computes otherwise\n" in out
    assert run(runs, candidates=["other"]) == 0
    capsys.readouterr()
    write_side(runs / "narrow", {"enc.x": X, "enc.y": Y})
    out = refused(runs, capsys, "--reference64", runs / "narrow")
    assert "'enc.x' is float32 in the float64 run" in out
    write_side(runs / "less", {"enc.x": X.astype(float)})
    out = refused(runs, capsys, "--reference64", runs / "less")
    assert "'enc.y' is missing in float64, or of another shape" in out


def test_all_calls_of_a_name_count_together_against_float64(tmp_path: Path) -> None:
    wide = {"p": np.zeros(1), "p#1": np.zeros(1)}
    sides = {
        "wide": wide,
        "reference": {"p": np.float32([1e-9]), "p#1": np.float32([1e-6])},  # lucky, then not
        "fine": {"p": np.float32([8e-7]), "p#1": np.float32([8e-7])},
        "far": {"p": np.float32([8e-7]), "p#1": np.float32([8e-6])},
    }
    opened = {n: open_side(write_side(tmp_path / n, t)) for n, t in sides.items()}
    contract = read_contract(write_limits(tmp_path / "t.json", {"p": TIGHT}))
    for name, count in (("fine", 0), ("far", 1)):
        found = against_float64(opened["wide"], [opened["reference"]], [opened[name]], contract)
        assert len(found) == count


def test_a_reference_that_is_exact_must_be_met(runs: Path) -> None:
    for n in range(3):
        write_side(runs / f"z{n}", {"enc.x": X})
    write_side(runs / "wide", {"enc.x": X.astype(float)})
    write_limits(runs / "t.json", {"enc.x": {"max_abs": 1e-3, "mean_abs": 1e-4}})
    references = [runs / f"z{n}" for n in range(3)]
    found = calibrate(runs / "t.json", references, [runs / "c0"], reference64=runs / "wide")
    assert "'enc.x' is infinitely many times further" in str(found.problems[0])


@pytest.mark.parametrize(
    ("name", "made", "run_", "text"),
    [
        ("c0", {"enc.x": X}, {}, "'enc.y' cannot be measured: MISSING-candidate"),
        ("r1", {"enc.x": X}, {}, "'enc.y' is missing on the reference"),
        ("c0", {"enc.x": X, "enc.y": Y[:5]}, {}, "'enc.y' cannot be measured: SHAPE"),
        ("r1", {"enc.x": X, "enc.y": Y[:5]}, {}, "'enc.y' is float32 [40, 50] in one reference"),
        ("r2", {"enc.x": X, "enc.y": Y, "enc.y#1": Y}, {}, "'enc.y' has 2 calls in one run and 1"),
        ("c0", {"enc.x": X * np.nan, "enc.y": Y}, {}, "'enc.x' cannot be measured: NONFINITE"),
        ("r1", {"enc.x": X * np.inf, "enc.y": Y}, {}, "the gate 'enc.x' has 2,000 non-finite"),
        ("c0", {"enc.x": X, "enc.y": Y}, {"input_hashes": {"x": "2"}}, "the inputs differ: 'x'"),
        ("r2", {"enc.x": X, "enc.y": Y}, {"input_hashes": {"x": "2"}}, "the inputs differ: 'x'"),
        ("r2", {"enc.x": X, "enc.y": Y}, {"dtype_policy": "bf16"}, "dtype policies differ: bf16, "),
        ("c1", {"enc.x": X, "enc.y": Y}, {"dtype_policy": "bf16"}, "dtype policies differ: bf16, "),
    ],
)
def test_what_cannot_be_compared(
    runs: Path, capsys: Captured, name: str, made: Any, run_: Any, text: str
) -> None:
    (runs / "r0" / "run.json").write_text(json.dumps({**RUN, "input_hashes": {"x": "1"}}))
    for file in (runs / name).iterdir():
        file.unlink()
    (runs / name).rmdir()
    write_side(runs / name, made, **(RUN | run_))
    out = refused(runs, capsys, "--because", "anything", "--understood", "*")
    assert text in out


@pytest.mark.parametrize(
    ("options", "given", "text"),
    [
        ((), {"count": 2}, "2 of the at least 3 reference runs\n  at --reference\n  run the"),
        ((), {"candidates": ["c0", "c0"]}, "c0 is given twice"),
        ((), {"candidates": ["r1"]}, "r1 is given twice\n  at --reference and --candidate\n"),
        (("--understood", "*"), {}, "an error is understood without a reason\n  at --understood"),
        (("--tolerances", "none.json"), {}, "cannot be read"),
    ],
)
def test_mistakes(runs: Path, capsys: Captured, options: Any, given: Any, text: str) -> None:
    assert run(runs, *options, **given) == 3
    assert text in capsys.readouterr().err


def test_the_public_name(runs: Path) -> None:
    references = [runs / f"r{n}" for n in range(3)]
    found = gates.calibrate(runs / "t.json", references, [runs / "c0"])
    assert len(found.proposals) == 2 and callable(gates.check)


def test_names_apply_to_each_side(runs: Path) -> None:
    (runs / "t.names.toml").write_text(
        "[[reference]]\nmatch = 'enc\\.(.)'\nname = 'e.\\1'\n\n"
        "[[candidate]]\nmatch = 'enc\\.(.)'\nname = 'e.\\1'\n"
    )
    write_limits(runs / "t.json", {"e.x": {"max_abs": 1e-3, "mean_abs": 1e-4}})
    (x,) = proposed(runs).proposals
    assert x.name == "e.x" and 0 < x.noise.max_abs < 1e-6


def test_infinities_of_an_informational_tensor_may_agree(runs: Path) -> None:
    masked = X.copy()
    masked[0, :4] = -np.inf
    for n in range(3):
        write_side(runs / f"m{n}", {"probs": masked})
    write_side(runs / "mc", {"probs": noisy(masked, SMALL, 3)})
    write_limits(runs / "t.json", {"probs": {"max_abs": 0.1, "mean_abs": 0.1}})
    references = [runs / f"m{n}" for n in range(3)]
    found = calibrate(runs / "t.json", references, [runs / "mc"])
    assert "the gate 'probs' has 4 non-finite entries" in str(found.problems[0])
    (runs / "names.toml").write_text("[roles]\n'probs' = 'informational'\n")
    found = calibrate(runs / "t.json", references, [runs / "mc"])
    assert not found.problems and 0 < found.proposals[0].drift.max_abs < 1e-6
