"""Runs on devices: batches, faults in them, emulation, text, and the environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import GuardError
from autodiff.families import batch_broadcasting
from autodiff.lower.jax import LoweringError
from autodiff.lower.stablehlo import UnsupportedError
from autodiff.op import Op
from autodiff.precision import dot_general
from autodiff.rounding import PrecisionError
from autodiff.trace import bind
from checks import devices
from checks.devices import DeviceError, Emitted, batch, environment

pytest.importorskip("jax")

run_batch: Any = devices.run_batch
run_texts: Any = devices.run_texts
ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = (np.exp, np.tanh, lambda x: np.sum(x * x), lambda x: np.log1p(x * x) / (1 + x * x))


def cases(count=12):
    rng = np.random.default_rng(7)
    shapes = [(3,), (2, 2), (), (0,), (5,), (1, 4)]
    found = []
    for i in range(count):
        x = rng.normal(size=shapes[i % len(shapes)])
        found.append((ad.trace(FUNCTIONS[i % len(FUNCTIONS)], x), [x]))
    return found


def branching(x):
    return np.exp(x) if np.sum(x) > 0 else x


def without_lowering():
    op = Op("ODD", lambda x: x, impl=np.exp, batch=batch_broadcasting("ODD"), jax="jnp.nosuch")
    return ad.trace(lambda x: bind(op, x), np.ones(2)), [np.ones(2)]


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_a_batch_gives_what_the_interpreter_gives(precision, rtol):
    given = cases()
    for (program, args), got in zip(given, run_batch(given, "jax-cpu", precision), strict=True):
        want = np.asarray(ad.interpret(program, *args, precision=precision))
        assert got[0].dtype == want.dtype == np.dtype(precision)
        np.testing.assert_allclose(got[0], want, rtol=rtol)


def test_batching_changes_no_bit():
    given = cases()
    one, five, all_ = (run_batch(given, "jax-cpu", "float32", chunk=n) for n in (1, 5, 50))
    for a, b, c in zip(one, five, all_, strict=True):
        assert a[0].tobytes() == b[0].tobytes() == c[0].tobytes()


def test_the_default_options_are_those_of_jit():
    assert dict(environment.OPTIONS["default"]) == {}


def test_a_case_that_cannot_be_lowered_is_alone_in_failing():
    given = cases(5)
    given[2] = without_lowering()
    results = run_batch(given, "jax-cpu", "float64")
    assert isinstance(results[2], LoweringError)
    assert all(isinstance(r, tuple) for i, r in enumerate(results) if i != 2)


def test_a_guard_that_decides_otherwise_is_the_outcome_of_its_case():
    given = cases(3)
    given[1] = (ad.trace(branching, np.ones(2)), [-np.ones(2)])
    for device in ("jax-cpu", "emulated:h200"):
        results = run_batch(given, device, "float64")
        assert isinstance(results[1], GuardError)
        assert isinstance(results[0], tuple) and isinstance(results[2], tuple)


def test_a_module_that_does_not_compile_is_halved_to_the_culprit(monkeypatch):
    given = cases(8)
    compiled = batch._Runner.together
    sizes = []

    def together(self, chunk):
        sizes.append(len(chunk))
        if any(case is given[5] for case in chunk):
            raise RuntimeError("the compiler gave up")
        return compiled(self, chunk)

    monkeypatch.setattr(batch._Runner, "together", together)
    results = run_batch(given, "jax-cpu", "float64")
    assert [i for i, r in enumerate(results) if isinstance(r, Exception)] == [5]
    assert str(results[5]) == "the compiler gave up"
    assert sizes == [8, 4, 4, 2, 1, 1, 2]


def test_an_unknown_compile_option_is_dropped(monkeypatch):
    options = {"xla_no_such_option": True}
    monkeypatch.setattr(batch, "OPTIONS", {"odd": options})
    results = run_batch(cases(2), "jax-cpu", "float64", options="odd")
    assert all(isinstance(r, tuple) for r in results)
    assert options == {"xla_no_such_option": True}


def test_strict_keeps_a_narrowing_conversion():
    x = np.array([1 + 2.0**-10, 0.1], np.float32)
    program = ad.trace(lambda v: v.astype("bfloat16").astype(np.float32), x)
    ((strict,),) = run_batch([(program, [x])], "jax-cpu", "float32", strict=True)
    np.testing.assert_array_equal(strict, x.astype("bfloat16").astype(np.float32))
    ((folded,),) = run_batch([(program, [x])], "emulated:gb10", "float32")
    np.testing.assert_array_equal(folded, x)  # what a GPU does by default
    ((kept,),) = run_batch([(program, [x])], "emulated:gb10", "float32", strict=True)
    np.testing.assert_array_equal(kept, strict)


def test_an_emulated_device_multiplies_as_the_device_does():
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((3, 4), (4, 2)))
    program = ad.trace(np.matmul, a, b)
    for device, mode in (("emulated:h200", "tf32"), ("emulated:tpu-v5e", "bf16x1")):
        ((got,),) = run_batch([(program, [a, b])], device, "float32")
        np.testing.assert_array_equal(got, dot_general(a, b, ((1,), (0,)), mode=mode))
        assert got.dtype == np.float32


def test_unknown_and_missing_devices_are_named():
    with pytest.raises(PrecisionError, match="did you mean 'jax-cpu'"):
        run_batch([], "jax-cpus", "float32")
    with pytest.raises(
        DeviceError, match="(?s)device 'torch-cpu' cannot be used.*gradsweep doctor"
    ):
        run_batch([], "torch-cpu", "float32")
    assert devices.why_unavailable("emulated:gb10") is None


# --- text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "kind"), [("float64", "f64"), ("float32", "f32")])
def test_texts_are_verified_typed_and_run_together(precision, kind):
    # 64-bit integers in one program must not make Python scalars of another float64
    shape, x = np.array([0.5, 3.0]), np.array([1.0, 2.0])
    given = [
        *cases(6),
        (ad.trace(np.argmax, np.ones(3)), [np.array([1.0, 5, 2])]),
        (ad.trace(ad.ops.igamma_a, shape, x), [shape, x]),
    ]
    results = run_texts(given, precision)
    for (program, args), got in zip(given, results, strict=True):
        assert isinstance(got, Emitted) and got.types == {kind}
        assert isinstance(got.results, tuple)
        want = np.asarray(ad.interpret(program, *args, precision=precision))
        assert got.results[0].dtype == want.dtype
        np.testing.assert_allclose(got.results[0], want, rtol=1e-5)


def test_a_text_that_does_not_run_leaves_the_others_alone():
    given = cases(6)
    given[1] = without_lowering()
    given[3] = (ad.trace(np.linalg.cholesky, np.eye(2)), [np.eye(2)])
    results = run_texts(given, "float64")
    assert isinstance(results[1], LoweringError)
    assert isinstance(results[3], Emitted) and isinstance(results[3].results, UnsupportedError)
    assert "stablehlo.custom_call" in results[3].ops
    assert all(isinstance(results[i].results, tuple) for i in (0, 2, 4, 5))


def test_wrong_arguments_are_the_outcome_of_their_case():
    given = cases(3)
    given[0] = (given[0][0], [np.ones(9)])
    results = run_batch(given, "jax-cpu", "float64")
    assert isinstance(results[0], Exception) and isinstance(results[1], tuple)


# --- environment ---------------------------------------------------------------------------


def run(code, **variables):
    environment_ = {
        k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "OMP_", "XLA"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment_ | {"PYTHONPATH": str(ROOT)} | variables,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CODE = """
from checks.devices.environment import prepare_environment
new = prepare_environment()
import jax, numpy as np, autodiff as ad
from checks.devices import run_batch
x = np.array([1.0, 2.0])
run_batch([(ad.trace(np.exp, x), [x])], "jax-cpu", "float64")
print(sorted(new), jax.config.jax_compilation_cache_dir)
"""


def test_compiled_programs_are_kept_in_the_folder_asked_for(tmp_path):
    out = run(CODE, GRADSWEEP_CACHE=str(tmp_path))
    assert "JAX_COMPILATION_CACHE_DIR" in out and str(tmp_path) in out
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert kept and all(str(f.parent.name).startswith("xla-") for f in kept)
    assert all(f.stat().st_mode & 0o077 == 0 for f in tmp_path.glob("xla-*"))


def test_the_users_own_settings_stay(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere/else")
    new = environment.prepare_environment()
    assert "JAX_COMPILATION_CACHE_DIR" not in new


def test_the_cache_folder_follows_the_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADSWEEP_CACHE", str(tmp_path / "own"))
    assert environment.cache_folder().parent == tmp_path / "own"
    monkeypatch.delenv("GRADSWEEP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_folder().parent == tmp_path / "gradsweep"


def test_the_doctor_says_what_a_report_needs():
    found = devices.doctor()
    assert found["packages"]["jax"] and found["devices"]["jax-cpu"] is None
    assert found["jaxlib_missing_calls"] == [] and found["jax_devices"]
    lines = devices.doctor_lines()
    assert any(line.startswith("device torch-cpu: ") for line in lines)
