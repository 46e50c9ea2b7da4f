"""Exact quantiles, worst entries, strips; distances between several tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.gates.comparison import detail as module
from checks.gates.comparison.apart import apart
from checks.gates.comparison.detail import Detail, detail
from checks.gates.comparison.measure import SHARES, measure
from checks.gates.formats.readers import open_side
from checks.gates.formats.stored import Stored
from tests.checks.gates.sides import judged, normal, pair


def stored(folder: Path, values: Any) -> Stored:
    folder.mkdir()
    np.save(folder / "t.npy", values)
    return open_side(folder).tensors["t"]


def looked_at(tmp_path: Path, r: Any, c: Any) -> Detail:
    sides = stored(tmp_path / "r", r), stored(tmp_path / "c", c)
    return detail(*sides, measure(*sides))


def exact(e: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.quantile(e, SHARES, method="inverted_cdf"))


@pytest.mark.parametrize("kept", [1 << 20, 2000, 10])
@pytest.mark.parametrize("kind", ["normal", "wide", "beyond", "equal", "few"])
def test_quantiles_are_exact_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kept: int
) -> None:
    """To the bit; where too many values of a bin differ, to float32's bits, which is stated."""
    monkeypatch.setattr(module, "_KEPT", kept)
    passes = []
    blocks = module._blocks

    def counted(*sides: Stored) -> Any:
        passes.append(1)
        return blocks(*sides)

    monkeypatch.setattr(module, "_blocks", counted)
    rng = np.random.default_rng(7)
    shape = (700, 300)  # more than one block
    r = rng.normal(size=shape)
    e = {
        "normal": rng.normal(size=shape),
        "wide": np.exp(40 * rng.normal(size=shape)) * 1e-30,
        "beyond": np.exp(rng.uniform(100, 300, shape)),  # float32's largest is exp(88.7)
        "equal": np.full(shape, 0.25),
        "few": (rng.random(shape) < 0.005).astype(float),
    }[kind]
    r = np.zeros(shape) if kind in ("wide", "beyond") else np.round(r * 64) / 64
    found = looked_at(tmp_path, r, r + e)
    assert passes == [1]
    right = exact(np.abs((r + e) - r))
    crowded = {10: ("normal", "wide", "beyond"), 2000: ("beyond",)}.get(kept, ())
    assert found.within == (2.0**-23 if kind in crowded else 0.0)
    for v, x in zip(found.quantiles, right, strict=True):
        assert x * (1 - found.within) <= v <= x
    assert found.equal + sum(found.counts) == r.size
    assert found.equal == int(np.count_nonzero(r + e == r))


def test_the_worst_entries_have_coordinates_and_both_values(tmp_path: Path) -> None:
    x = normal(600, 400)
    y = x.copy()
    for n, at in enumerate([(599, 399), (0, 0), (10, 10), (3, 7), (400, 1), (2, 2), (5, 5)]):
        y[at] += n + 1
    worst = looked_at(tmp_path, x, y).worst
    assert [w.index for w in worst] == [(5, 5), (2, 2), (400, 1), (3, 7), (10, 10)]
    assert worst[0].reference == float(x[5, 5])
    assert worst[0].candidate == float(y[5, 5])


def test_entries_that_are_not_finite_on_one_side_come_first(tmp_path: Path) -> None:
    x = normal(30, 40)
    y = x + np.float32(1)
    y[4, 6], y[20, 30] = np.nan, np.inf
    x[7, 7] = y[7, 7] = -np.inf
    found = looked_at(tmp_path, x, y)
    assert [w.index for w in found.worst[:2]] == [(4, 6), (20, 30)]
    assert (7, 7) not in [w.index for w in found.worst]
    assert np.flatnonzero(found.strips[0]).tolist() == [4, 20]
    assert np.flatnonzero(found.strips[1]).tolist() == [6, 30]
    assert sum(found.counts) + found.equal == 30 * 40 - 3


def test_strips_are_means_along_each_axis(tmp_path: Path) -> None:
    x, y = np.zeros((200, 3, 70)), np.abs(normal(200, 3, 70)).astype(float)
    found = looked_at(tmp_path, x, y)
    assert [len(s) for s in found.strips] == [64, 3, 64]
    np.testing.assert_allclose(found.strips[1], y.mean(axis=(0, 2)))
    cell = np.arange(200) * 64 // 200
    means = [y[cell == n].mean() for n in range(64)]
    np.testing.assert_allclose(found.strips[0], means)


@pytest.mark.parametrize("shape", [(5, 200_000), (400_000,), (700, 300), (3, 150_000, 2)])
def test_strips_of_several_blocks(tmp_path: Path, shape: tuple[int, ...]) -> None:
    y = np.abs(normal(*shape)).astype(float) * np.arange(1, shape[-1] + 1)
    found = looked_at(tmp_path, np.zeros(shape), y)
    for axis, size in enumerate(shape):
        count = min(64, size)
        cell = np.arange(size) * count // size
        line = y.mean(axis=tuple(n for n in range(len(shape)) if n != axis))
        means = [line[cell == n].mean() for n in range(count)]
        np.testing.assert_allclose(found.strips[axis], means, rtol=1e-9)


def test_complex_entries_name_the_part(tmp_path: Path) -> None:
    x = (normal(4, 5) + 1j * normal(4, 5, seed=1)).astype(np.complex64)
    y = x.copy()
    y[2, 3] += 2j
    (worst,) = looked_at(tmp_path, x, y).worst
    assert (worst.index, worst.part) == ((2, 3), "imag")


def test_only_failing_tensors_are_looked_at_again(tmp_path: Path) -> None:
    x = normal(6, 8)
    result = judged(tmp_path, {"a": x, "b": x}, {"a": x, "b": x + 1})
    assert [r.detail is not None for r in result.rows] == [False, True]
    record = result.rows[1].to_record()["detail"]
    assert list(record["quantiles"]) == ["p50", "p90", "p99", "p99.9"]
    assert record["quantiles"]["p50"] == exact(np.abs((x + 1).astype(float) - x))[0]


def test_at_most_fifty(tmp_path: Path) -> None:
    names = {f"t{n}": normal(3, 4, seed=n) for n in range(60)}
    result = judged(tmp_path, names, {k: v + 1 for k, v in names.items()})
    assert sum(r.detail is not None for r in result.rows) == 50
    assert sum(r.cause is not None for r in result.rows) == 50


@pytest.mark.parametrize("x", [np.float32(1), np.zeros((0, 3), np.float32)], ids=["0-d", "empty"])
def test_scalars_and_nothing(tmp_path: Path, x: Any) -> None:
    found = looked_at(tmp_path, x, x + np.float32(1))
    assert len(found.worst) == np.size(x)
    assert found.quantiles == ((1.0,) * 4 if np.size(x) else ())


def test_a_tensor_of_nan(tmp_path: Path) -> None:
    result = pair(tmp_path, normal(4, 5), np.full((4, 5), np.nan, np.float32))
    found = result.rows[0].detail
    assert found is not None
    assert (found.quantiles, len(found.worst), set(found.strips[0])) == ((), 5, {1.0})


def test_distances_of_three(tmp_path: Path) -> None:
    a, b, c = (normal(500, 400, seed=s).astype(float) for s in range(3))
    b[3, 3] = np.nan
    found = apart([stored(tmp_path / n, v) for n, v in zip("abc", (a, b, c), strict=True)])
    good = np.isfinite(b)
    assert (found.finite, found.odd) == (500 * 400 - 1, 1)
    for m, x in enumerate((a, b, c)):
        for n, y in enumerate((a, b, c)):
            d = np.abs(x - y)[good]
            np.testing.assert_allclose(found.max_abs[m][n], d.max())
            np.testing.assert_allclose(found.mean_abs[m][n], d.mean())
            np.testing.assert_allclose(found.rms[m][n], np.sqrt((d**2).mean()))
    e, f = (b - a)[good], (c - a)[good]
    cosine = np.dot(e, f) / np.sqrt(np.dot(e, e) * np.dot(f, f))
    np.testing.assert_allclose(found.correlation(1, 2), cosine, rtol=1e-9)


def test_errors_that_are_alike_correlate(tmp_path: Path) -> None:
    a, e = normal(50, 40).astype(float), 1e-6 * normal(50, 40, seed=1).astype(float)
    sides = (a, a + e, a + 1.0001 * e, a - 3 * e, a)
    found = apart([stored(tmp_path / str(n), v) for n, v in enumerate(sides)])
    np.testing.assert_allclose(found.correlation(1, 2), 1, rtol=1e-6)
    np.testing.assert_allclose(found.correlation(1, 3), -1, rtol=1e-6)
    assert np.isnan(found.correlation(1, 4))
