"""Causes that hostile pairs must not be given, and those that complex ones must."""

from pathlib import Path

import numpy as np
import pytest

from checks.gates.comparison.record import Cause
from tests.checks.gates.sides import normal, pair

Z = normal(4, 5) + 1j * normal(4, 5, seed=1)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_of_a_wide_range_lies_nowhere(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(5 * rng.normal(size=(16, 50))).astype(np.float32)
    y = (x * (1 + 1e-7 * rng.normal(size=x.shape))).astype(np.float32)
    result = pair(tmp_path, x, y, {"max_abs": 1e-4, "mean_abs": 1e-5})
    assert result.exit_code == 1
    assert result.cause is None


def test_a_dead_channel_of_tiny_values_is_none(tmp_path: Path) -> None:
    x = normal(16, 50)
    x[:, 7] *= 1e-6
    y = x.copy()
    y[:, 7] = 0
    result = pair(tmp_path, x, y, {"max_abs": 1e-9, "mean_abs": 1e-9})
    assert result.cause is not None
    assert "only entries of axis 1 7 of 50 are off, the other 49 agree; they are zero" in (
        result.cause.text
    )


def found(tmp_path: Path, candidate: object) -> Cause:
    result = pair(tmp_path, Z, candidate)
    assert result.cause is not None
    return result.cause


def test_places_of_a_complex_tensor_are_its_own(tmp_path: Path) -> None:
    text = "only the imaginary parts are off, the real ones agree; they are zero"
    assert found(tmp_path / "a", Z.real).text == text
    rolled = np.roll(Z, 1, 1)
    assert found(tmp_path / "b", rolled).text == "rolled by 1 along axis 1"
    dead = Z.copy()
    dead[:, 3] = 0
    assert "entries of axis 1 3 of 5 are off" in found(tmp_path / "c", dead).text


def test_one_entry_differs_in_finiteness(tmp_path: Path) -> None:
    x = normal(6, 8)
    x[2, 3] = np.inf
    result = pair(tmp_path, normal(6, 8), x)
    assert result.cause is not None
    assert result.cause.text.startswith("one entry differs in finiteness, inf on the candidate")
