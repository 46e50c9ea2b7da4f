"""What passes and is wrong all the same: a systematic error, a changed transcript, no limits."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.comparison.policy import Policy
from checks.gates.comparison.record import Cause, Result
from checks.gates.errors import GateError
from checks.gates.limits.contract import Limit
from checks.gates.reports.junit import junit
from checks.gates.reports.page import page
from checks.gates.reports.terminal import to_json, verdict, verdict_of_all
from tests.checks.gates.sides import normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
WEIGHT = np.random.default_rng(7).uniform(0.5, 1.5, 32).astype(np.float32)
HEAD = normal(32, 20, seed=8) / 6
EPSILON = "the candidate is the RMS norm of emb with epsilon {}, the reference its RMS norm with"


def model(epsilon: float = 1e-6, order: Any = slice(None)) -> dict[str, Any]:
    """An embedding, its norm, a head: 12 rows that sum in an order."""
    x = normal(12, 32)
    size = np.mean((x * x)[:, order], axis=-1, keepdims=True, dtype=np.float32)
    norm = x / np.sqrt(size + np.float32(epsilon)) * WEIGHT
    return {"emb": x, "norm": norm, "logits": norm[:, order] @ HEAD[order]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reference, a right candidate, one with another epsilon; limits as `gate init` gives."""
    write_side(tmp_path / "reference", model())
    write_side(tmp_path / "right", model(order=np.arange(32)[::-1]))
    write_side(tmp_path / "epsilon", model(1e-5))
    assert main(["gate", "init", str(tmp_path / "reference"), "--output", str(file(tmp_path))]) == 0
    return tmp_path


def file(folder: Path) -> Path:
    return folder / "limits.json"


def run(folder: Path, *options: Any, candidate: str = "epsilon") -> int:
    sides = [str(folder / "reference"), str(folder / candidate)]
    return main(["gate", "compare", *sides, "--tolerances", str(file(folder)), *map(str, options)])


def compared(folder: Path, candidate: str = "epsilon", **policy: Any) -> Result:
    sides = folder / "reference", folder / candidate
    return gates.compare(*sides, file(folder), policy=Policy(**policy))


def test_another_epsilon_passes_and_the_last_line_names_it(folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    for options in ((), ("--quiet",)):
        assert run(folder, *options) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        start = (
            "PASS: 3 of 3 contract tensors pass; inputs unknown; 2 tensors within their limits, "
        )
        assert last.startswith(start + "but systematically off by more than rounding, first norm (")
        assert last.endswith(EPSILON.format("1e-05") + " epsilon 1e-06")
    assert run(folder, candidate="right") == 0
    assert capsys.readouterr().out.endswith("PASS: 3 of 3 contract tensors pass; inputs unknown\n")
    assert 'class="badge near">PASS<' in page(compared(folder))
    assert 'class="badge good">PASS<' in page(compared(folder, "right"))


@pytest.mark.parametrize("epsilon", [2e-6, 2e-5, 3e-5])
def test_an_epsilon_that_is_no_common_one_is_read_off_the_rows(
    tmp_path: Path, epsilon: float
) -> None:
    reference, other = model(1e-5), model(epsilon)
    del reference["logits"], other["logits"]
    limits = {"emb": {"max_abs": 0.0, "mean_abs": 0.0}, "norm": {"max_abs": 2e-4, "mean_abs": 1e-5}}
    result = gates.compare(
        write_side(tmp_path / "r", reference),
        write_side(tmp_path / "c", other),
        write_limits(tmp_path / "t.json", limits),
    )
    (row,) = result.suspects
    assert row.cause is not None
    found = re.search(r"the RMS norm of emb with epsilon (\S+), ", row.cause.text)
    assert found is not None and float(found[1]) == pytest.approx(epsilon, rel=0.2)


def test_it_fails_where_that_is_asked_for(folder: Path, capsys: Captured) -> None:
    saved = folder / "saved.json"
    assert run(folder, "--systematic", "fail", "--json", saved) == 1
    out = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: line.split()[0] for line in out[-17:] if " gate  max" in line}
    assert rows == {"emb": "ok", "norm": "SYSTEMATIC", "logits": "SYSTEMATIC"}
    assert any(line.startswith("FAIL: 1 of 3 contract tensors pass") for line in out)
    assert "  norm (gate, SYSTEMATIC): max_abs " in "\n".join(out)
    record = json.loads(saved.read_text())
    assert (record["first"], record["cause"], record["exit_code"]) == ("norm", "normalisation", 1)
    back = gates.read_report(saved)
    assert isinstance(back, Result) and to_json(back) == saved.read_text()
    cases = ElementTree.fromstring(junit(back)).iter("testcase")
    assert [c.find("failure") is not None for c in cases] == [False, True, True]
    assert run(folder, "--systematic", "fail", candidate="right") == 0


def test_what_is_understood_is_no_doubt(folder: Path, capsys: Captured) -> None:
    options = ("--systematic", "fail", "--understood", "norm")
    assert run(folder, *options) == 1
    assert "SYSTEMATIC        logits" in capsys.readouterr().out
    assert run(folder, *options, "--understood", "log*", "--json", folder / "x.json") == 0
    out = capsys.readouterr().out
    assert out.count("systematic, understood") == 2
    assert out.endswith("PASS: 3 of 3 contract tensors pass; inputs unknown\n")
    rows = gates.read_report(folder / "x.json").to_record()["rows"]
    assert [row.get("understood", False) for row in rows] == [False, True, True]


def test_a_report_is_judged_anew_by_another_policy(folder: Path, capsys: Captured) -> None:
    saved = folder / "saved.json"
    assert run(folder, "--json", saved) == 0
    again = ["gate", "rejudge", str(saved), "--tolerances", str(file(folder)), "--quiet"]
    assert main(again) == 0
    assert "epsilon 1e-05" in capsys.readouterr().out.splitlines()[-1]
    failed = folder / "failed.json"
    assert main([*again, "--systematic", "fail", "--json", str(failed)]) == 1
    assert "; first norm: the candidate is the RMS norm of emb" in capsys.readouterr().out
    assert main([*again[:2], str(failed), *again[3:]]) == 0
    assert main([*again, "--systematic", "fail", "--understood", "*"]) == 0


def test_the_place_before_the_first_divergence_is_named_with_it(folder: Path) -> None:
    wrong = model(1e-5)
    wrong["logits"] = wrong["logits"] + 0.01 * normal(12, 20, seed=9)
    write_side(folder / "both", wrong)
    result = compared(folder, "both")
    assert result.first is not None and result.first.name == "logits"
    assert result.hint is not None and result.hint.name == "norm"
    said = "; before it, within its limits but systematically off: norm (eta "
    assert said in verdict(result) and "epsilon 1e-05" in verdict(result)
    assert "norm passes but looks systematic" in result.answers[0].text
    assert "before it: the candidate is the RMS norm of emb" in result.answers[0].text


def test_rounding_and_what_amplifies_it_are_no_doubt(folder: Path) -> None:
    """Systematic by eta alone: as small as rounding; of the shape that an amplified rounding has;
    within a small share of the limits.
    """
    row = next(r for r in compared(folder).rows if r.name == "norm")
    m = row.measured
    assert row.suspect and m is not None and m.eta is not None and row.limit is not None
    sums = m.sums
    small = replace(m, sums=(*sums[:5], 1e-14 * sums[2]))
    assert small.relative_rms == pytest.approx(1e-7)
    wide = replace(row.limit, max_abs=1.0, mean_abs=1.0)
    for other in (
        replace(row, measured=small),
        replace(row, measured=replace(m, eta=0.7), cause=None),
        replace(row, measured=replace(m, eta=0.7), cause=Cause("factor per slice", "")),
        replace(row, limit=wide),
        replace(row, understood=True),
        replace(row, limit=None),
    ):
        assert other.suspect is False and (other.systematic or other.limit is None)
    assert replace(row, measured=replace(m, eta=0.7)).suspect  # its cause is known
    assert replace(row, cause=None).suspect
    large = replace(m, sums=(*sums[:5], 1e-8 * sums[2]))
    assert replace(row, limit=wide, measured=large).suspect


def test_of_several_candidates_the_last_line_names_it(folder: Path, capsys: Captured) -> None:
    sides = folder / "reference", [folder / "right", folder / "epsilon"]
    result = gates.compare_all(*sides, file(folder))
    assert result.exit_code == 0
    text = verdict_of_all(result)
    assert text.startswith("PASS: 2 of 2 candidates pass; epsilon: 2 tensors within their limits")
    assert gates.compare_all(*sides, file(folder), policy=Policy("fail")).exit_code == 1


def test_a_policy_of_no_such_word() -> None:
    with pytest.raises(GateError, match="systematic is neither 'warn' nor 'fail': 'error'") as e:
        Policy(systematic="error")
    assert 'write systematic="fail"' in str(e.value)
    with pytest.raises(GateError, match="transcript is neither"):
        Policy(transcript="")


# --- a changed transcript ---


def test_a_changed_transcript_fails_where_that_is_asked_for(folder: Path, capsys: Captured) -> None:
    for name, text in (("reference", "the cat sat"), ("right", "the bat sat")):
        (folder / name / "transcript.json").write_text(json.dumps({"text": text}))
    saved = folder / "said.json"
    assert run(folder, candidate="right") == 0
    assert "; transcript.json: 1 word of 3 differs" in capsys.readouterr().out.splitlines()[-1]
    assert run(folder, "--transcript", "fail", "--json", saved, candidate="right") == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("FAIL: 3 of 3 contract tensors pass; inputs unknown; transcript.json: ")
    back = gates.read_report(saved)
    assert back.exit_code == 1 and back.first is None
    cases = {c.attrib["name"]: c for c in ElementTree.fromstring(junit(back)).iter("testcase")}
    assert cases["said: transcript.json"].find("failure") is not None
    assert cases["norm"].find("failure") is None
    with pytest.raises(gates.GateFailure, match=r"^FAIL: 3 of 3 .*\[bat\]"):
        sides = folder / "reference", folder / "right"
        gates.check(*sides, file(folder), policy=Policy(transcript="fail"))
    (folder / "right" / "transcript.json").write_text(json.dumps({"text": "the cat sat"}))
    assert run(folder, "--transcript", "fail", candidate="right") == 0


# --- limits of nothing ---


def test_a_contract_without_a_finite_limit_says_so(folder: Path, capsys: Captured) -> None:
    infinite = {"max_abs": "inf", "mean_abs": "inf"}
    limits: dict[str, Any] = {"emb": infinite, "norm": infinite}
    write_limits(file(folder), limits)
    assert run(folder) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "PASS: 2 of 2 contract tensors pass; inputs unknown; "
        "no gate has a finite limit: nothing is checked"
    )
    write_limits(file(folder), limits | {"emb": {"max_abs": "inf", "mean_abs": 1.0}})
    assert run(folder) == 0
    assert "no gate" not in capsys.readouterr().out


def test_informational_limits_do_not_make_up_for_gates(folder: Path) -> None:
    result = compared(folder, "right")
    rows = [replace(r, limit=Limit(np.inf, np.inf)) for r in result.rows]
    assert replace(result, rows=rows).toothless
    told = [replace(rows[0], role="informational", limit=result.rows[0].limit), *rows[1:]]
    assert replace(result, rows=told).toothless
    assert not replace(result, rows=[replace(rows[0], limit=result.rows[0].limit)]).toothless
    assert not replace(result, rows=[]).toothless
