"""The corpus of faults: what it holds, how it is scored, and the aims on the toy transformer."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.gates.comparison.record import WEAK
from checks.gates.corpus import replays
from checks.gates.corpus import study as studies
from checks.gates.corpus.bench import bench
from checks.gates.corpus.fault import CAUSES, Fault, faults_of, given, instead, weight
from checks.gates.corpus.models import BFLOAT16, FLOAT32, drifted, models
from checks.gates.corpus.scores import Outcome, Study, outcome
from checks.gates.errors import GateError

EVERY = studies.faults()


def test_every_cause_has_two_faults_and_every_model_some() -> None:
    assert len(CAUSES) == 28
    for number in CAUSES:
        assert sum(f.cause == number for f in EVERY) >= 2, CAUSES[number]
    assert {f.model for f in EVERY} == set(models())
    labels = [(f.model, f.name) for f in EVERY]
    assert len(labels) == len(set(labels)) >= 200


def test_a_fault_states_where_it_shows() -> None:
    with pytest.raises(ValueError, match="needs a cause and a first tensor"):
        Fault("x", 29, "toy_transformer", lambda run: run, ("fe.mel",))
    with pytest.raises(ValueError, match="needs a cause and a first tensor"):
        Fault("x", 1, "toy_transformer", lambda run: run, ())


def test_a_pattern_chooses_faults() -> None:
    assert {f.model for f in studies.faults("ctc_head")} == {"ctc_head"}
    with pytest.raises(GateError, match="no fault matches 'cct'"):
        studies.faults("cct")


@pytest.mark.parametrize("name", list(models()))
def test_a_clean_run_differs_by_rounding_alone(name: str) -> None:
    model = models()[name]
    run = model.run(3, 1)
    ours = model.shown(run)
    assert [n for n, _ in ours] == [n for n, _ in model.shown(run)]
    for number in (0, 1):
        theirs = model.shown(drifted(model, run, FLOAT32, number))
        for (n, r), (m, c) in zip(ours, theirs, strict=True):
            assert (n, r.shape, r.dtype) == (m, c.shape, c.dtype)
            good = np.isfinite(r)
            assert np.array_equal(good, np.isfinite(c))
            if r[good].size:
                assert np.abs(c[good] - r[good]).max() <= 1e-4 * max(1.0, np.abs(r[good]).max())


def test_limits_stand_on_inputs_that_no_comparison_sees(tmp_path: Path) -> None:
    model = models()["ctc_head"]
    made = bench(model, 1, tmp_path / "b")
    limits = json.loads(made.tolerances.read_text())
    assert set(limits) - {"_comment"} == {n for n, _ in model.shown(made.reference(0))}
    assert made.clean(12, 1).ok
    broken = replace(made.reference(12), weights={
        k: 0 * w if k == "head.bias" else w for k, w in made.reference(12).weights.items()
    })  # fmt: skip
    result = made.compared(broken, 12)
    assert result.first is not None and result.first.name == "ctc.logits_raw"
    assert result.cause is not None and result.cause.name == "offset per slice"


def test_bfloat16_needs_a_file_of_its_own(tmp_path: Path) -> None:
    model = models()["rnnt_joint"]
    single = bench(model, 0, tmp_path / "a")
    narrow = bench(model, 0, tmp_path / "b", BFLOAT16)
    run = model.run(0, 12, BFLOAT16)
    assert narrow.compared(drifted(model, run, BFLOAT16, 1), 12).ok
    assert not replace(single, policy=BFLOAT16).compared(drifted(model, run, BFLOAT16, 1), 12).ok


def outcome_of(fault: Fault, tmp_path: Path) -> Outcome:
    made = bench(models()[fault.model], 0, tmp_path / "bench")
    return outcome(fault, "tiny", 0, made.faulty(fault, 12, 0))


MADE = faults_of("ctc_head")


def test_scores(tmp_path: Path) -> None:
    """A fault that is caught, one stated wrongly, one that does nothing, one misnamed."""
    scale = weight("head.bias", lambda b: 0 * b)
    right = outcome_of(MADE("a", 26, scale, "ctc.logits_raw", "offset per slice"), tmp_path / "a")
    assert (right.caught, right.placed, right.right, right.wrong) == (True, True, True, False)
    elsewhere = outcome_of(MADE("b", 26, scale, "ctc.conv"), tmp_path / "b")
    assert (elsewhere.placed, elsewhere.right, elsewhere.wrong) == (False, False, True)
    nothing = outcome_of(MADE("c", 26, lambda run: run, "ctc.conv"), tmp_path / "c")
    assert (nothing.caught, nothing.first, nothing.printed) == (False, None, ())
    silent = outcome_of(
        MADE("d", 20, given(0, lambda x: x**2), "ctc.conv", "scale"), tmp_path / "d"
    )
    assert (silent.caught, silent.printed, silent.right) == (True, (), False)
    found = Study([right, elsewhere, nothing, silent], [], {FLOAT32: 0})
    counts = [(r.good, r.of) for r in found.rates]
    assert counts == [(3, 4), (2, 3), (1, 2), (1, 2), (0, 0), (0, 0)]
    assert [o.name for o in found.survivors] == ["c"]
    assert [o.name for o in found.misplaced] == ["b"]
    assert [o.name for o in found.misdiagnosed] == ["b"]
    assert [o.name for o in found.unexplained] == ["d"]
    text = "\n".join(studies.lines(found))
    assert "not caught: ctc_head: c (26 missing bias), tiny 0" in text
    assert "first divergence elsewhere: ctc_head: b (26 missing bias), tiny 0" in text
    assert "wrong diagnosis: ctc_head: b (26 missing bias), tiny 0: offset per slice" in text
    assert "unclassified: ctc_head: d" in text
    assert "structural faults caught: 3 of 4 (75.0%)" in text


def test_the_aims_on_the_toy_transformer() -> None:
    """Every fifth fault, of both sizes; the whole study is `gradsweep gate power`."""
    chosen = studies.faults("toy_transformer")[::5]
    found = studies.study(chosen, [20, 21], clean=4)
    assert not found.survivors
    assert not found.alarms
    assert found.localisation.share >= 0.95, list(studies.lines(found))
    assert found.precision.share >= 0.95, list(studies.lines(found))
    assert found.recall.share >= 0.9, list(studies.lines(found))
    assert (found.clean[FLOAT32], found.clean[BFLOAT16]) == (4, 4)


def test_what_a_replay_may_say_is_said_of_faults() -> None:
    known = {(f.model, f.name) for f in EVERY}
    for table in (replays.BOTH, replays.REPRODUCED, replays.UNDONE, replays.INHERITS):
        for model, names in table.items():
            assert {(model, name) for name in names} <= known
    gates = next(f for f in EVERY if f.name == "gates in the order of ONNX")
    assert [replays.told_by(gates, r) for r in replays.READINGS] == [("gate order",)] * 2


@pytest.mark.parametrize(
    ("label", "cause"),
    [
        ("silero_vad: gates in the order of ONNX", "gate order"),
        ("rnnt_joint: gates in another order", "gate order"),
        ("qwen3: gate and up exchanged", "swapped weights"),
        ("toy_transformer: one future key seen", "wrong mask"),
    ],
)
@pytest.mark.parametrize("reading", replays.READINGS)
def test_blocks_tell_what_two_arrays_do_not(
    tmp_path: Path, label: str, cause: str, reading: str
) -> None:
    (fault,) = studies.faults(label)
    made = bench(models()[fault.model], 0, tmp_path / "b")
    run = made.injected(fault, 12, 0)
    plain = made.compared(run, 12)
    assert made.has_block(plain, 12) and plain.cause is None
    result = made.replayed(run, 12, plain, reading)
    found = outcome(fault, "tiny", 0, result, reading)
    assert (found.printed, found.placed, found.right) == ((cause,), True, True)


@pytest.mark.parametrize("reading", replays.READINGS)
def test_no_block_is_blamed_for_rounding(tmp_path: Path, reading: str) -> None:
    """A right port by limits of nothing: all tensors fail, and none has a cause."""
    for policy in (FLOAT32, BFLOAT16):
        made = bench(models()["rnnt_joint"], 0, tmp_path / policy, policy)
        run = made.drifted(12, 1001)
        plain = made.compared(run, 12)
        result = made.replayed(run, 12, plain, reading, tight=True)
        assert not result.ok
        named = {r.cause.name for r in result.rows if r.cause}
        assert named <= {"inherited", *WEAK}, named


def test_a_place_is_no_diagnosis(tmp_path: Path) -> None:
    """The block alone, where the fault is in it; where it is not, that is wrong."""
    (fault,) = studies.faults("toy_transformer: norm over time")
    made = bench(models()[fault.model], 0, tmp_path / "b")
    run = made.injected(fault, 12, 0)
    plain = made.compared(run, 12)
    result = made.replayed(run, 12, plain, replays.RIGHT)
    assert result.cause is not None and result.cause.name == "op mismatch"
    assert outcome(fault, "tiny", 0, result, replays.RIGHT).printed == ()
    elsewhere = replace(fault, first=("fe.mel",))
    assert outcome(elsewhere, "tiny", 0, result, replays.RIGHT).wrong


def test_the_study_as_a_command(tmp_path: Path, capsys: Any) -> None:
    command = argparse.ArgumentParser()
    studies.arguments(command)
    file = tmp_path / "study.json"
    only = "rnnt_joint: no bias"
    given_ = command.parse_args(["--only", only, "--seeds", "1", "--json", str(file)])
    assert studies.main(given_) == 0
    said = capsys.readouterr()
    assert "26 missing bias" in said.out and "3 of 3 (100.0%)" in said.out
    assert "rnnt_joint, draw 0: 3 faults" in said.err
    record = json.loads(file.read_text())
    readings = [o["reading"] for o in record["outcomes"]]
    assert readings.count("") == 3 and set(readings) <= {"", *replays.READINGS}
    assert record["rates"]["structural faults caught"] == {"good": 3, "of": 3}
    bad = command.parse_args(["--only", only, "--seeds", "1", "--json", str(file / "y")])
    with pytest.raises(GateError, match="cannot be written"):
        studies.main(bad)


def test_a_study_of_one_policy_with_the_limits_of_a_command(capsys: Any) -> None:
    """Faults and clean runs in bfloat16, of other draws; the limits are those of `gate init`."""
    command = argparse.ArgumentParser()
    studies.arguments(command)
    only = "rnnt_joint: no bias"
    options = ["--only", only, "--seeds", "1", "--policy", "bfloat16", "--limits", "init"]
    given_ = command.parse_args([*options, "--first-seed", "7", "--clean", "2"])
    assert studies.main(given_) == 0
    said = capsys.readouterr()
    assert "rnnt_joint, draw 7: 3 faults" in said.err
    assert "structural faults caught: 3 of 3" in said.out
    assert "false positives in clean float32 runs: 0 of 0" in said.out
    assert "false positives in clean bfloat16 runs: 0 of 2 (0.0%)" in said.out


def test_the_command_knows_the_studys_choices() -> None:
    from checks.gates.commands import power
    from checks.gates.corpus.bench import SOURCES
    from checks.gates.corpus.models import POLICIES

    assert (power.SOURCES, power.POLICIES) == (SOURCES, POLICIES)


def test_a_study_that_misses_a_fault_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    nothing = MADE("nothing", 20, instead("ctc_head.collapsed", lambda *a: None), "ctc.conv")
    monkeypatch.setattr(studies, "faults", lambda only=None: [nothing])
    assert studies.main(argparse.Namespace(seeds=1, only=None, json=None)) == 1
    assert "not caught: ctc_head: nothing" in capsys.readouterr().out


def test_a_fault_within_the_limits_is_named_as_systematic(tmp_path: Path) -> None:
    (fault,) = studies.faults("toy_transformer: epsilon 1e-6")
    found = outcome_of(fault, tmp_path)
    assert (found.caught, found.suspected) == (False, "normalisation")
    rates = {r.name: r for r in Study([found], [], {FLOAT32: 0}).rates}
    assert str(rates["within the limits, and named as systematic"]).endswith("1 of 1 (100.0%)")
    silent = replace(found, suspected="")
    rates = {r.name: r for r in Study([silent], [], {FLOAT32: 0}).rates}
    assert rates["within the limits, and named as systematic"].good == 0


@pytest.mark.parametrize(
    ("name", "right"), [("the second word for the best", True), ("logits in 8 bits", True)]
)
def test_a_changed_choice_is_judged(tmp_path: Path, name: str, right: bool) -> None:
    (fault,) = studies.faults(f"qwen3: {name}")
    made = bench(models()["qwen3"], 0, tmp_path / "b")
    result = made.faulty(fault, 12, 0)
    assert outcome(fault, "tiny", 0, result).choice is right
    other = replace(fault, explained=not fault.explained)
    assert outcome(other, "tiny", 0, result).choice is not right
    assert outcome(replace(fault, explained=None), "tiny", 0, result).choice is None


@pytest.mark.parametrize(
    "name", ["one sample of hop", "twice the hop", "symmetric window", "HTK mel", "frames not"]
)
def test_a_front_end_is_replayed_from_its_waveform(tmp_path: Path, name: str) -> None:
    (fault,) = studies.faults(f"whisper_front: {name}")
    made = bench(models()["whisper_front"], 0, tmp_path / "b")
    result = made.faulty(fault, 12, 1)
    assert result.cause is not None and "replayed from enc.wave: " in result.cause.text
    assert outcome(fault, "tiny", 0, result).right


def test_a_clean_run_that_looks_systematic_fails_the_study(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A right port whose every entry is a little too large, within the limits."""
    noticed = faults_of("ctc_head")("nothing", 20, weight("head.bias", lambda b: 0 * b), "ctc.conv")
    monkeypatch.setattr(studies, "faults", lambda only=None: [noticed])
    before = studies.Bench.drifted
    larger = lambda x: x * np.float32(1 + 8e-6) if x.dtype == np.float32 else x  # noqa: E731

    def off(self: Any, inputs: int, number: int) -> Any:
        run = before(self, inputs, number)
        return replace(run, edits=(*run.edits, lambda seen: [(n, larger(x)) for n, x in seen]))

    monkeypatch.setattr(studies.Bench, "drifted", off)
    assert studies.main(argparse.Namespace(seeds=1, only=None, json=None, clean=1)) == 1
    said = capsys.readouterr().out
    assert "looks systematic: ctc_head float32, tiny 0: " in said
    assert "clean runs that look systematic: " in said
