"""Caches and states that were not updated: the candidate holds an earlier step of the same name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checks.gates.sides import judged, normal

NAMES = {
    "calls": ["k", "k#1", "k#2", "k#3"],
    "names": ["dec.gen0.k", "dec.gen1.k", "dec.gen2.k", "dec.gen3.k"],
}


def filled(count: int, seed: int = 0) -> Any:
    """A cache (batch, capacity, width) after so many words."""
    cache = np.zeros((3, 12, 8), np.float32)
    cache[:, :count] = normal(3, 12, 8, seed=seed)[:, :count]
    return cache


def grown(count: int) -> Any:
    return filled(count)[:, :count]


def run(tmp_path: Path, names: list[str], make: Any, changed: dict[str, Any]) -> Any:
    ours = {name: make(5 + n) for n, name in enumerate(names)}
    noise = {k: np.float32(x + 1e-7 * normal(*x.shape, seed=3)) for k, x in ours.items()}
    result = judged(tmp_path, ours, noise | changed)
    assert result.first is not None and result.first.name == next(iter(changed))
    return result.cause


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_a_cache_that_was_not_written(tmp_path: Path, names: list[str]) -> None:
    one = run(tmp_path / "1", names, filled, {names[2]: filled(6)})
    assert (one.name, one.text) == (
        "stale",
        f"stale by 1 step: the candidate holds the reference's {names[1]}",
    )
    three = run(tmp_path / "3", names, filled, {names[3]: filled(5)})
    assert three.text == f"stale by 3 steps: the candidate holds the reference's {names[0]}"


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_a_cache_that_did_not_grow(tmp_path: Path, names: list[str]) -> None:
    cause = run(tmp_path, names, grown, {names[2]: grown(6)})
    assert cause.text == f"stale by 1 step: the candidate holds the reference's {names[1]}"


def test_one_item_of_a_batch_that_was_not_written(tmp_path: Path) -> None:
    wrong = filled(7)
    wrong[[0, 2]] = filled(5)[[0, 2]]
    cause = run(tmp_path, NAMES["calls"], filled, {"k#2": wrong})
    assert (cause.name, cause.text) == (
        "stale",
        "stale by 2 steps in entries 0, 2 of axis 0: there the candidate holds the reference's k, "
        "the other entries agree",
    )


def test_what_is_no_earlier_step(tmp_path: Path) -> None:
    """A later step, another cache, another layer, an empty cache, a wrong entry."""
    names = NAMES["calls"]
    later = run(tmp_path / "later", names, filled, {"k#1": filled(7)})
    assert later is None or later.name != "stale"
    other = run(tmp_path / "other", names, filled, {"k#2": filled(7, seed=9)})
    assert other is None or other.name != "stale"
    empty = judged(
        tmp_path / "empty", {"k": filled(0), "k#1": filled(1)}, {"k": filled(0), "k#1": filled(0)}
    )
    assert empty.cause is not None and empty.cause.name != "stale"
    blocks = {f"dec.block.{n}.k": filled(7, seed=n) for n in range(2)}
    wrong = {**blocks, "dec.block.1.k": blocks["dec.block.0.k"]}
    layer = judged(tmp_path / "layer", blocks, wrong)
    assert layer.cause is not None and layer.cause.name == "another tensor"
    spoiled = filled(6)
    spoiled[1, 2] += 1
    mixed = run(tmp_path / "mixed", names, filled, {"k#2": spoiled})
    assert mixed is None or mixed.name != "stale"


def test_a_step_that_changed_little_proves_nothing(tmp_path: Path) -> None:
    """Three entries of the cache changed: that they are the old ones may be chance."""
    old = filled(6)
    new = old.copy()
    new[1, 3, :3] += 1
    for name, ours, theirs in (("whole", new, old), ("some", new[:, :6], old[:, :6])):
        found = judged(tmp_path / name, {"k": old, "k#1": ours}, {"k": old, "k#1": theirs})
        assert found.first is not None and found.first.name == "k#1"
        assert found.cause is None or found.cause.name != "stale"
