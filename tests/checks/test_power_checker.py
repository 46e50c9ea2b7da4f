"""Wrong hand-written gradients: what `check_gradients` must say of them, and that it is held."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from checks.cli import main
from checks.power import checker, report
from checks.power.checker import FAULTS, LARGE, RIGHT, SMALL, CheckerOutcome, cases, check

ENTRY = [f for f in FAULTS if f.entry]
WHOLE = [f for f in FAULTS if not f.entry]


def shown(size: str, name: str, fault: checker.Fault, mode: str = "gradient") -> CheckerOutcome:
    case = next(c for c in cases(size) if c.name == name)
    return check(case, fault, mode, checker._entry(case, fault))


@pytest.mark.parametrize("fault", ENTRY, ids=lambda f: f.name)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_one_wrong_entry_is_caught_and_named(size: str, fault: checker.Fault) -> None:
    for mode, name in zip(checker.MODES, ("log_sum_exp", "squares", "bilinear"), strict=True):
        found = shown(size, name, fault, mode)
        assert found.caught and found.named, found


@pytest.mark.parametrize("fault", WHOLE, ids=lambda f: f.name)
def test_a_wrong_gradient_is_caught_and_the_right_one_passes(fault: checker.Fault) -> None:
    name = {"transposed": "squares", "arguments exchanged": "bilinear"}.get(fault.name, "sines")
    found = shown(LARGE, name, fault)
    assert found.caught and found.named is None, found
    assert (found.verdict == "PASS") == (fault.name == RIGHT)


def test_every_fault_changes_some_gradient() -> None:
    for fault in FAULTS:
        changed = []
        for case in cases(SMALL):
            right = case.gradient(*case.args)
            wrong = fault.change(right, 0)
            if wrong is not None:
                pairs = zip(right, wrong, strict=True)
                changed.append(any(not np.array_equal(r, w) for r, w in pairs))
        assert any(changed) == (fault.name != RIGHT), fault.name


def test_the_written_gradients_are_right() -> None:
    for case in cases(SMALL):
        for position, g in enumerate(case.gradient(*case.args)):
            x = case.args[position].astype(complex)
            x.flat[1] += 1e-30j  # the complex step has no round-off of its own
            args = [*case.args[:position], x, *case.args[position + 1 :]]
            slope = np.imag(case.function(*args)) / 1e-30
            assert slope == pytest.approx(g.flat[1], rel=1e-13)


def test_what_is_missed_or_misplaced_fails(capsys: pytest.CaptureFixture[str]) -> None:
    good = CheckerOutcome("sines", SMALL, "vjp", "sign", True, None, 9, "WRONG")
    missed = dataclasses.replace(good, caught=False, verdict="PASS")
    misplaced = dataclasses.replace(good, fault="sign at one entry", named=False)
    assert report.exit_code(checker=[good]) == 0
    for bad in (missed, misplaced):
        assert report.exit_code(checker=[good, bad]) == 1
    from checks.report.terminal import console

    report.print_checker(console(), [good, missed, misplaced], 1.0)
    text = capsys.readouterr().out
    assert "sines (full Jacobian), vjp=: sign was PASS" in text
    assert "another entry named" in text and "3 gradients" in text


def test_a_checker_that_passes_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from checks.gradients import check as module

    right = module.check_gradients

    def blind(f: object, *args: object, **options: object) -> object:
        found = right(f, *args, **options)  # type: ignore[arg-type]
        return dataclasses.replace(found, verdict="PASS")

    monkeypatch.setattr(module, "check_gradients", blind)
    assert not shown(SMALL, "sines", ENTRY[0]).caught
    assert shown(SMALL, "sines", FAULTS[-1]).caught


def test_the_command_shows_gradients_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [f for f in FAULTS if f.name in ("sign", RIGHT)]
    monkeypatch.setattr(checker, "FAULTS", tuple(few))
    monkeypatch.setattr(checker, "MODES", ("gradient",))
    path = tmp_path / "power.json"
    assert main(["power", "--checker", "--json", str(path)]) == 0
    assert "judged right" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert record["totals"]["gradients"] == record["totals"]["gradients_judged_right"] > 0
