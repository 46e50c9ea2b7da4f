"""The mutation study: what it counts, what it catches, and that it can fail."""

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autodiff.errors import OpError
from autodiff.op import OPS
from autodiff.trace import bind
from catalogue import ENTRIES, entry
from checks.cli import main
from checks.power import mutations, report
from checks.power.alarms import Alarms, alarms_of
from checks.power.explained import EXPLAINED, Explained
from checks.power.inject import mutated
from checks.power.mutations import MUTATIONS, Mutation
from checks.power.record import calls_of, difference
from checks.power.rules import rules_of
from checks.power.study import (
    BROKEN,
    CAUGHT,
    EQUIVALENT,
    SURVIVED,
    Mutant,
    Options,
    Outcome,
    failure,
    mutants_of,
    study,
    study_op,
)
from checks.subject import subjects_of

PART = [k for k in sorted(ENTRIES) if zlib.crc32(k.encode()) % 40 in (4, 7)]


def outcomes(*kinds: str, **options: Any) -> list[Outcome]:
    return [o for kind in kinds for o in study_op(kind, Options(**options))]


# --- the study itself ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", PART)
def test_every_wrong_rule_of_a_twentieth_of_the_ops_is_caught(kind: str) -> None:
    found = outcomes(kind)
    assert found
    assert [o.mutant.name for o in found if o.status in (SURVIVED, BROKEN)] == []


ELSEWHERE = {
    "lost accumulation": "CHOLESKY",
    "lost use": "MAXIMUM",
    "missing sum": "MAXIMUM",
    "identity for a permutation": "REVERSE",
    "wrong axis": "CUMSUM",
    "wrong constant": "RELU",
}


@pytest.mark.parametrize("name", [m.name for m in MUTATIONS])
def test_each_kind_of_mutation_is_caught_somewhere(name: str) -> None:
    found = outcomes(ELSEWHERE.get(name, "MATMUL"), mutations=(name,))
    assert any(o.status == CAUGHT for o in found), [(o.mutant.name, o.status) for o in found]
    assert not [o.mutant.name for o in found if o.status in (SURVIVED, BROKEN)]


def test_a_surface_that_is_left_out_lets_wrong_rules_survive() -> None:
    """A jvp times 2 is wrong in both modes alike: forward against reverse cannot see it."""
    alone = outcomes("EXP", mutations=("scaled by 2",), surfaces=("forward",))
    status = {o.mutant.rule: o.status for o in alone}
    assert status == {"jvp": SURVIVED, "vjp": CAUGHT}
    assert report.exit_code(alone) == 1
    both = outcomes("EXP", mutations=("scaled by 2",), surfaces=("forward", "reverse"))
    assert {o.status for o in both} == {CAUGHT}
    assert report.exit_code(both) == 0


def test_a_weakened_surface_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are alike hide a batching rule that mixes them up."""
    from checks.surfaces import batching

    wrong = {"mutations": ("stale batch axis: next row",)}
    assert [o.status for o in outcomes("COSINE_SIMILARITY", **wrong)] == [CAUGHT]

    def multiples(leaf: Any, count: int) -> list[Any]:
        return [np.asarray(leaf * (1.0 + b)) for b in range(count)]

    monkeypatch.setattr(batching, "rows", multiples)
    assert [o.status for o in outcomes("COSINE_SIMILARITY", **wrong)] == [SURVIVED]


def test_a_harmless_change_is_equivalent() -> None:
    """The terms of a sum may be exchanged."""
    (found,) = (
        o for o in outcomes("ADD", mutations=("swapped arguments",)) if o.mutant.rule == "jvp"
    )
    assert found.status == EQUIVALENT and not found.caught_by and found.difference == 0
    assert report.totals([found]).counted == 0
    assert report.exit_code([found]) == 0


def _with(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mutation(name, ("jvp",), lambda op, rule, calls: ["all"], wrong)
    monkeypatch.setattr(mutations, "MUTATIONS", (made,))
    monkeypatch.setattr("checks.power.study.MUTATIONS", (made,))


def test_a_difference_below_the_bound_is_equivalent(monkeypatch: pytest.MonkeyPatch) -> None:
    def slightly(op: Any, name: str, rule: Any, place: str) -> Any:
        def mutant(*args: Any, **params: Any) -> Any:
            t = rule(*args, **params)
            return bind("MUL", t, np.asarray(1.0 + extra[0], t.dtype))

        return mutant

    extra = [0.0]
    _with("slightly more", slightly, monkeypatch)
    for extra[0], status in ((2.0**-40, EQUIVALENT), (2.0**-20, CAUGHT)):
        assert [o.status for o in outcomes("SIN")] == [status]


def test_a_wrong_rule_that_only_crashes_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(op: Any, name: str, rule: Any, place: str) -> Any:
        return lambda *a, **p: None + 1  # type: ignore[operator]

    _with("crash", crash, monkeypatch)
    (found,) = outcomes("SIN")
    assert found.status == BROKEN and "TypeError" in found.note
    assert report.exit_code([found]) == 1


def test_a_check_that_fails_anyway_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checks.power.study.failure", lambda *_: "always")
    assert {o.status for o in outcomes("SIN", mutations=("sign",))} == {SURVIVED}


def test_the_registry_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(OPS)
    outcomes("TANH", mutations=("sign",))
    assert dict(OPS) == before

    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("checks.power.study.failure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcomes("TANH", mutations=("sign",))
    assert dict(OPS) == before


def test_shares_are_disjoint_and_complete() -> None:
    calls = calls_of("MUL", subjects_of(entry("MUL")))
    every = mutants_of("MUL", calls, Options())
    parts = [mutants_of("MUL", calls, Options(share=(i, 3))) for i in (1, 2, 3)]
    assert sorted(m.name for p in parts for m in p) == sorted(m.name for m in every)
    assert all(len(p) < len(every) for p in parts)
    assert len({m.name for m in every}) == len(every)


def test_the_denominator_does_not_depend_on_the_surfaces() -> None:
    calls = calls_of("SUB", subjects_of(entry("SUB")))
    few = mutants_of("SUB", calls, Options(surfaces=("forward",)))
    assert few == mutants_of("SUB", calls, Options(all_surfaces=True))


def test_every_surface_can_be_asked() -> None:
    found = outcomes("EXP", mutations=("sign",), all_surfaces=True)
    by_rule = {o.mutant.rule: set(o.caught_by) for o in found}
    assert {"reverse", "second"} <= by_rule["jvp"] and "forward" not in by_rule["jvp"]
    assert {"forward", "reverse"} <= by_rule["vjp"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mutations": ("scaled by 3",)}, "(?s)unknown mutation 'scaled by 3'.*'scaled by 2'"),
        ({"surfaces": ("revers",)}, "(?s)unknown surface 'revers'.*'reverse'"),
        ({"share": (4, 3)}, "share 4/3 does not exist"),
    ],
)
def test_options_name_what_exists(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OpError, match=text):
        Options(**options)


def test_an_unknown_op_suggests_the_nearest() -> None:
    with pytest.raises(OpError, match="unknown op 'EXPP'"):
        list(study(["EXPP"]))


# --- rules, calls, differences -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["TANH", "POW", "VAR", "GELU", "TAKE_ALONG_AXIS", "SVD"])
def test_derived_rules_are_right(kind: str) -> None:
    """Put in place unchanged, they pass every surface."""
    subjects = [s for s in subjects_of(entry(kind)) if s.special is None][:4]
    rules = {n: r for n, r in rules_of(OPS[kind]).items() if getattr(OPS[kind], n) is None}
    assert rules
    for name, rule in rules.items():
        with mutated(kind, **{name: rule}):
            for subject in subjects:
                fresh = dataclasses.replace(subject)
                for surface in ("reverse", "forward", "second", "vmap"):
                    assert failure(surface, fresh) == "", (name, subject.sample)


def test_every_op_that_differentiates_has_rules_to_be_wrong() -> None:
    for op in OPS.values():
        assert "batch" in rules_of(op), op.kind
        if op.derivative == "rule":
            assert "jvp" in rules_of(op) or op.kind == "CUSTOM_VJP", op.kind
            assert {"vjp", "transpose"} & set(rules_of(op)), op.kind


def test_calls_hold_what_is_right() -> None:
    calls = calls_of("MUL", subjects_of(entry("MUL")))
    assert {c.rule for c in calls} == {"jvp", "transpose", "batch"}
    assert [c.size for c in calls] == sorted(c.size for c in calls)
    for call in (c for c in calls if c.rule == "jvp"):
        (x, y), (tx, ty), _ = call.args
        np.testing.assert_array_equal(call.right[0], tx * y + x * ty)


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ([np.array([1.0, 4.0])], [np.array([1.0, 4.0])], 0.0),
        ([np.array([1.0, 4.0])], [np.array([1.0, 5.0])], 0.25),
        ([np.array([0.0]), np.array([4.0])], [np.array([1.0]), np.array([4.0])], 0.25),
        ([np.array([1e-9]), np.array([1.0])], [np.array([2e-9]), np.array([1.0])], 1.0),
        ([np.array([2.0]), None], [np.array([2.0]), np.array([0.0])], 0.0),
        ([np.array([2.0])], [None], 1.0),
        ([np.array([np.inf, 2.0])], [np.array([1.0, 2.0])], 0.0),
        ([np.array([1.0])], [np.array([np.nan])], np.inf),
        ([np.array([1.0])], [np.array([[1.0]])], np.inf),
        ([np.array([1])], [np.array([2])], np.inf),
        ([np.array([0.0])], [np.array([1e-30])], np.inf),
        ([np.array([1.0])], [], np.inf),
    ],
)
def test_differences_are_relative_to_each_result(right: Any, wrong: Any, expected: float) -> None:
    assert difference(right, wrong) == expected


# --- explanations, reports, the command ----------------------------------------------------


def _outcome(status: str, name: str = "sign", **fields: Any) -> Outcome:
    return Outcome(Mutant("SIN", "jvp", name, "all"), status, 1.0, "zero", **fields)


def test_explanations_are_sentences_about_ops_that_exist() -> None:
    with pytest.raises(ValueError, match="SIN jvp, sign: give a reason"):
        Explained("SIN", "jvp", "sign", "no")
    for known in EXPLAINED:
        assert known.op in OPS and known.rule in rules_of(OPS[known.op])
        assert known.mutation in {m.name for m in MUTATIONS}


def test_an_explanation_that_is_not_needed_fails() -> None:
    known = Explained("SIN", "jvp", "sign", "a sentence of some length")
    assert report.stale_explanations([_outcome(CAUGHT)], [known]) == [known]
    assert report.stale_explanations([_outcome("explained")], [known]) == []
    assert report.stale_explanations([], [known]) == [known]
    assert report.exit_code([_outcome(CAUGHT)], stale=1) == 1


def test_less_than_99_percent_fails() -> None:
    caught = [_outcome(CAUGHT)] * 99
    assert report.exit_code([*caught, _outcome(SURVIVED)]) == 0
    assert report.exit_code([*caught[1:], _outcome(SURVIVED), _outcome("explained")]) == 1
    assert report.totals([*caught, _outcome(SURVIVED), _outcome(EQUIVALENT)]).share == 0.99


def test_the_command_exits_1_where_rules_survive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["power", "--op", "EXP", "--mutation", "sign", "--workers", "0"]
    path = tmp_path / "power.json"
    assert main([*command, "--json", str(path)]) == 0
    text = capsys.readouterr().out
    assert "2 mutants" in text and "2 caught (100.00%)" in text and "reverse" in text
    record = json.loads(path.read_text())
    assert record["totals"]["caught"] == 2 and record["totals"]["share"] == 1.0
    assert {m["rule"] for m in record["mutants"]} == {"jvp", "vjp"}
    assert main([*command, "--surface", "forward"]) == 1
    text = capsys.readouterr().out
    assert "EXP jvp: sign SURVIVES: differs by 2" in text and "1 survive" in text


def test_equivalent_mutants_are_named_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["power", "--op", "ADD", "--mutation", "swapped arguments", "--workers", "0"]
    assert main(command) == 0
    assert "is equivalent" not in capsys.readouterr().out
    assert main([*command, "-v"]) == 0
    assert "ADD jvp: swapped arguments, operands 0 and 1 is equivalent" in capsys.readouterr().out


def test_the_command_refuses_an_empty_selection(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["power", "--op", "STEP", "--mutation", "sign", "--workers", "0"]
    assert main(command) == 2
    assert "the selection holds no mutant" in capsys.readouterr().err


# --- false alarms --------------------------------------------------------------------------


def test_right_rules_raise_no_alarm() -> None:
    found = alarms_of("LOGADDEXP", ("reverse", "forward", "second", "vmap"), (1, 2))
    assert found.checks > 50 and found.rows == ()


def test_a_wrong_rule_raises_an_alarm_at_each_seed() -> None:
    with mutated("SIN", jvp=lambda p, t, y: t[0] * y):
        found = alarms_of("SIN", ("reverse",), (1, 2))
    seeds = {row.seed for row in found.rows if row.sample == "shape_5"}
    assert len(seeds) == 2
    assert "with seed offset 2" in found.rows[-1].message
    assert report.exit_code(alarms=[found]) == 1


def test_seeds_differ_by_offset_and_the_default_is_as_ever() -> None:
    subject = next(s for s in subjects_of(entry("SIN")) if s.sample == "shape_5")
    again = [dataclasses.replace(subject, offset=k) for k in (0, 1, 2)]
    assert again[0].seed == zlib.crc32(b"SIN/shape_5") and len({s.seed for s in again}) == 3
    assert not np.array_equal(again[1].tangents()[0], again[2].tangents()[0])


def test_the_command_counts_false_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", "--op", "NEG", "--seeds", "2", "--workers", "0"]) == 0
    assert "2 seeds" in capsys.readouterr().out
    assert report.exit_code(alarms=[Alarms(3, ())]) == 0
