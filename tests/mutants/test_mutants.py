"""Each wrong rule is caught by the surfaces named for it, and the right rules pass there."""

from typing import Any

import numpy as np
import pytest

from autodiff import strong
from autodiff.op import OPS
from checks.power.inject import mutated, patched
from checks.runner import check_function
from tests.mutants.mutation import failures, sweep
from tests.mutants.table import MUTANTS, Mutant, scaled_jvp

SLIPS = ("TypeError", "NameError", "AttributeError", "KeyError", "OpError")


def broken(op: str, surface: str) -> dict[tuple[str, str], str]:
    """Messages of the failing samples."""
    return {(r.sample, r.dtype): r.message for r in failures(op, surface)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_wrong_rule_is_caught(mutant: Mutant) -> None:
    """Samples that pass with the right rule fail with the wrong one, on every surface named."""
    before = {s: broken(mutant.op, s) for s in mutant.surfaces}
    with mutant.mutation():
        after = {s: broken(mutant.op, s) for s in mutant.surfaces}
    caught = {s: after[s].keys() - before[s].keys() for s in mutant.surfaces}
    missed = [s for s, samples in caught.items() if not samples]
    assert not missed, f"{mutant.op}: {mutant.name} survives {', '.join(missed)}"
    for s, samples in caught.items():  # a mutant that only crashes is no wrong rule
        assert not all(after[s][k].startswith(SLIPS) for k in samples), after[s]


RIGHT = (("EXP", "reverse"), ("MATMUL", "forward"), ("SUM", "vmap"), ("RELU", "special"))


@pytest.mark.parametrize(("op", "surface"), RIGHT, ids="-".join)
def test_the_right_rule_passes(op: str, surface: str) -> None:
    assert [r.message for r in failures(op, surface)] == []


def test_an_unselected_branch_is_caught_in_a_function_of_the_user() -> None:
    """The square root that was not chosen is NaN, and 0 * NaN would reach the gradient."""

    def f(x: Any) -> Any:
        return np.where(x > 0.0, np.sqrt(x), x * x)

    x = np.array([-1.5, 2.0])
    assert [r.status for r in check_function(f, x, surfaces=["reverse"])] == ["pass"]
    with patched(strong, "SELECTS", {}):
        (row,) = check_function(f, x, surfaces=["reverse"])
    assert row.status == "fail"


def test_the_registry_is_as_it_was_afterwards() -> None:
    before = OPS["SIN"]
    with scaled_jvp("SIN", 2.0)():
        assert OPS["SIN"] is not before
        assert failures("SIN", "reverse")
    assert OPS["SIN"] is before
    assert all(r.status == "pass" for r in sweep("SIN", "reverse"))


def test_the_registry_is_as_it_was_after_an_error() -> None:
    before = dict(OPS)
    with pytest.raises(ZeroDivisionError), mutated("EXP", doc="wrong"):
        raise ZeroDivisionError
    assert OPS == before


def test_a_failure_names_the_op_the_sample_and_the_numbers() -> None:
    with scaled_jvp("EXP", 1.001)():
        row = failures("EXP", "reverse")[0]
    assert row.op == "EXP"
    assert row.sample in row.message and "error" in row.message
    assert row.error == pytest.approx(1e-3, rel=0.5)
    assert "--op EXP --surface reverse" in row.repro
