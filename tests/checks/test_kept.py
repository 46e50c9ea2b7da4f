"""References of exact arithmetic that stay on disk (kept modules: `test_devices.py`)."""

import dataclasses
import os

import numpy as np
import pytest

import autodiff as ad
from autodiff.lower import exact
from autodiff.op import OPS
from autodiff.program import Equation, Program
from checks import kept
from checks.power.inject import mutated
from checks.runner import run_subject, subjects
from checks.surfaces import values
from checks.surfaces.base import surface
from checks.surfaces.values import _reference

X = np.array([0.25, 3.0])


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GRADSWEEP_FRESH", raising=False)
    return tmp_path / "exact"


@pytest.fixture
def evaluated(monkeypatch):
    """How often exact arithmetic was asked."""
    asked, right = [], exact.evaluate_exact

    def counted(*args, **kwargs):
        asked.append(args)
        return right(*args, **kwargs)

    monkeypatch.setattr(exact, "evaluate_exact", counted)
    return asked


def reference(f=np.exp, x=X):
    """What is kept, or made, for a function of one array."""
    return _reference(ad.trace(f, x), [x])


def test_a_reference_is_evaluated_once(folder, evaluated):
    first, again = reference(), reference()
    assert len(evaluated) == 1 == len(list(folder.iterdir()))
    assert type(again[0]) is exact.ExactArray
    for field in dataclasses.fields(exact.ExactArray):
        one, other = (getattr(r[0], field.name) for r in (first, again))
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
    np.testing.assert_array_max_ulp(again[0].value, np.exp(X))


def test_other_arguments_and_programs_have_other_references(folder, evaluated):
    for f, x in ((np.exp, X), (np.exp, X + 1), (np.exp, X[:1]), (np.sin, X)):
        np.testing.assert_array_max_ulp(reference(f, x)[0].value, f(x))
    assert len(evaluated) == 4 == len(list(folder.iterdir()))


def test_what_is_not_exact_is_remembered(folder, evaluated):
    assert reference(np.exp, np.array([np.inf])) is None
    assert reference(np.exp, np.array([np.inf])) is None
    assert len(evaluated) == 1 == len(list(folder.iterdir()))


def test_a_reference_follows_the_sources_of_exact_arithmetic(monkeypatch, folder, evaluated):
    reference()
    monkeypatch.setattr(kept, "sources_digest", lambda shelf: f"{shelf.name} changed")
    reference()
    assert len(evaluated) == 2 == len(list(folder.iterdir()))


SOURCES = (
    *("lower/exact", "lower/exact_special", "lower/balls", "lower/number"),
    *("kernels/sorting", "ops/control", "rounding"),
)


@pytest.mark.parametrize("name", SOURCES)
def test_the_digest_follows_the_sources(tmp_path, name):
    path = tmp_path / f"autodiff/{name}.py"
    path.parent.mkdir(parents=True)
    digests = set()
    for text in ((kept.ROOT / f"autodiff/{name}.py").read_text(), "# changed\n"):
        path.write_text(text)
        digests.add(kept.sources_digest.__wrapped__(kept.EXACT, tmp_path))
    assert len(digests) == 2


def test_the_digest_follows_the_packages(monkeypatch, tmp_path):
    assert kept._version("there-is-no-such-package") == "absent"
    digests = set()
    for newer in ("", "python-flint", "mpmath", "numpy"):
        monkeypatch.setattr(kept, "_version", lambda name, p=newer: "2" if name == p else "1")
        digests.add(kept.sources_digest.__wrapped__(kept.EXACT, tmp_path))
    assert len(digests) == 4


def test_all_patterns_name_sources():
    for pattern in kept.EXACT.sources:
        assert list(kept.ROOT.glob(pattern)), pattern


def test_a_damaged_reference_is_warned_about_and_made_again(folder, evaluated):
    reference()
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.warns(kept.CacheWarning, match="exact/.* is damaged or not ours: it is made again"):
        found = reference()
    np.testing.assert_array_max_ulp(found[0].value, np.exp(X))
    assert len(evaluated) == 2 and reference() is not None and len(evaluated) == 2


@pytest.mark.parametrize("fresh", ["1", "0"])
def test_everything_is_evaluated_anew_on_request(monkeypatch, folder, evaluated, fresh):
    monkeypatch.setenv("GRADSWEEP_FRESH", fresh)
    reference()
    reference()
    assert len(evaluated) == (2 if fresh == "1" else 1)
    assert folder.exists() is (fresh == "0")


def test_what_nothing_used_for_a_month_is_removed(folder):
    reference()
    (path,) = folder.iterdir()
    os.utime(path, (0, 0))
    kept.prune.cache_clear()
    reference(np.sin)
    assert path not in folder.iterdir()


def test_nothing_is_kept_or_read_of_an_engine_tampered_with(folder, evaluated):
    with mutated("EXP", doc="other"):
        reference()
        assert not folder.exists()
    reference()
    with mutated("EXP", doc="other"):
        reference()
    assert len(evaluated) == 3


def test_an_op_from_elsewhere_has_no_key():
    program = ad.trace(np.exp, X)
    (eq,) = program.equations
    for impl, known in ((lambda x: x, False), (np.frompyfunc(abs, 1, 1), False), (np.cos, True)):
        other = dataclasses.replace(OPS["EXP"], kind="ELSEWHERE", impl=impl)
        changed = Equation(other, eq.inputs, eq.params, eq.outputs)
        whole = Program(program.inputs, (), (changed,), program.outputs)
        assert (kept.program_digest.__wrapped__(whole) is not None) is known


@pytest.mark.usefixtures("folder")
def test_a_kept_reference_judges(monkeypatch, evaluated):
    subject = next(s for s in subjects("EXP") if s.sample.startswith("shape_"))
    found = surface("exact")
    assert run_subject(found, subject, "float64").status == "pass"
    count, right = len(evaluated), values.interpret_flat
    monkeypatch.setattr(
        values,
        "interpret_flat",
        lambda *args: tuple(r * (1 + 2.0**-40) for r in right(*args)),
    )
    assert run_subject(found, subject, "float64").status == "fail"
    assert len(evaluated) == count == 1
