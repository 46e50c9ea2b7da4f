"""The properties find broken rules, and shrink them to programs of a step or two."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample

from autodiff.families import batch_leading
from autodiff.reverse import Cotangents
from autodiff.trace import bind
from checks.power.inject import mutated, patched
from tests.mutants.table import executed_as, scaled_jvp
from tests.properties import test_random_programs as properties
from tests.properties.programs import RandomProgram, programs

SEARCH = settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
Check = Callable[..., None]


def smallest(check: Check, smooth: bool = False) -> RandomProgram:
    """The smallest program for which a property fails."""

    def fails(p: RandomProgram) -> bool:
        try:
            with np.errstate(all="ignore"):
                check(p)
        except Exception:
            return True
        return False

    return find(programs(smooth=smooth, max_steps=4), fails, settings=SEARCH)


def vmap_all(p: RandomProgram) -> None:
    properties.check_vmap(p, [0] * len(p.args), 0)


def _forgetful(self: Cotangents, var: Any, ct: Any, kind: str = "output") -> None:
    del kind
    if ct is not None:
        self.values[var] = ct


def _first_row(size: int, args: Any, batched: Any) -> tuple[Any, bool]:
    del size, batched
    return np.broadcast_to(bind("TANH", args[0][0]), np.shape(args[0])), True


BROKEN: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Check, bool, str]] = {
    "scaled derivative": (
        scaled_jvp("TANH", 1.01),
        properties.check_differences,
        True,
        "tanh",
    ),
    "lost accumulation": (
        lambda: patched(Cotangents, "add", _forgetful),
        properties.check_dot,
        False,
        "x0",
    ),
    "stale batch axis": (
        lambda: mutated("SUM", batch=batch_leading("SUM")),
        vmap_all,
        False,
        "",
    ),
    "batching rule repeats a row": (
        lambda: mutated("TANH", batch=_first_row),
        vmap_all,
        False,
        "",
    ),
    "executed as another reduction": (
        lambda: executed_as("SUM", "MAX"),
        properties.check_compile,
        False,
        "",
    ),
    "printed as another function": (
        lambda: mutated("TANH", template="np.sin({0})"),
        properties.check_render,
        False,
        "tanh",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found_and_made_small(name: str) -> None:
    broken, check, smooth, mentioned = BROKEN[name]
    with broken():
        found = smallest(check, smooth)
    assert len(found.steps) <= 2, found.listing()
    assert mentioned in found.source()
    assert all(np.prod(s, dtype=int) <= 4 for s in found.shapes), found.listing()


def test_nothing_is_found_with_the_right_rules() -> None:
    few = settings(SEARCH, max_examples=30)
    with pytest.raises(NoSuchExample):
        find(programs(), lambda p: _fails(properties.check_dot, p), settings=few)


def _fails(check: Check, p: RandomProgram) -> bool:
    with np.errstate(all="ignore"):
        check(p)
    return False


def test_a_failing_program_is_printed_as_code_that_runs() -> None:
    @settings(SEARCH, max_examples=20)
    @given(programs())
    def always_fails(p: RandomProgram) -> None:
        properties.run(lambda _: pytest.fail("no"), p)

    with pytest.raises(BaseException) as caught:
        always_fails()
    notes = "\n".join(caught.value.__notes__)
    code = notes[notes.index("import numpy") : notes.index("print(f(*args))")]
    space: dict[str, Any] = {}
    exec(code, space)
    assert np.all(np.isfinite(space["f"](*space["args"])))
