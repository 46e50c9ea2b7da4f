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
from autodiff.lower.child import Child, ChildTimeout
from autodiff.lower.jax import LoweringError
from autodiff.lower.stablehlo import UnsupportedError
from autodiff.op import Op
from autodiff.precision import dot_general
from autodiff.rounding import PrecisionError
from autodiff.trace import bind
from checks import check_function, devices, kept
from checks.cli import main
from checks.devices import DeviceError, Emitted, batch, environment, interpreted, modules
from checks.power.inject import mutated

pytest.importorskip("jax")

run_batch: Any = devices.run_batch
run_modules: Any = devices.run_modules
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


# --- modules -------------------------------------------------------------------------------


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GRADSWEEP_FRESH", raising=False)
    return tmp_path / "modules"


@pytest.mark.parametrize(("precision", "kind"), [("float64", "f64"), ("float32", "f32")])
def test_programs_are_verified_typed_and_run_together(precision, kind):
    # 64-bit integers in one program must not make Python scalars of another float64
    shape, x = np.array([0.5, 3.0]), np.array([1.0, 2.0])
    given = [
        *cases(6),
        (ad.trace(np.argmax, np.ones(3)), [np.array([1.0, 5, 2])]),
        (ad.trace(ad.ops.igamma_a, shape, x), [shape, x]),
    ]
    results = run_modules(given, "jax-cpu", precision)
    for (program, args), got in zip(given, results, strict=True):
        assert isinstance(got.emitted, Emitted) and got.emitted.types == {kind}
        want = np.asarray(ad.interpret(program, *args, precision=precision))
        for values in (got.emitted.results, got.device):
            assert isinstance(values, tuple) and values[0].dtype == want.dtype
            np.testing.assert_allclose(values[0], want, rtol=1e-5)


@pytest.mark.usefixtures("folder")
def test_what_does_not_run_leaves_the_others_alone():
    given = cases(6)
    given[1] = without_lowering()
    given[3] = (ad.trace(np.linalg.cholesky, np.eye(2)), [np.eye(2)])
    given[4] = (given[4][0], [np.ones(9)])
    for _ in range(2):  # made, and from the cache
        results = run_modules(given, "jax-cpu", "float64")
        assert isinstance(results[1].emitted, LoweringError)
        assert isinstance(results[1].device, LoweringError)
        assert isinstance(results[3].emitted.results, UnsupportedError)
        assert "stablehlo.custom_call" in results[3].emitted.ops
        np.testing.assert_array_equal(results[3].device[0], np.eye(2))
        assert isinstance(results[4].device, TypeError)
        assert all(isinstance(results[i].emitted.results, tuple) for i in (0, 2, 5))


def test_equal_programs_share_a_function_and_keep_their_arguments():
    points = [np.array([0.5]), np.array([1.5]), np.array([-2.0])]
    given = [(ad.trace(np.exp, x), [x]) for x in points]
    given.insert(1, (ad.trace(np.negative, points[0]), [points[0]]))
    programs, places = modules._distinct(given)
    assert len(programs) == 2 and places == [0, 1, 0, 0]
    results = run_modules(given, "jax-cpu", "float64")
    for i, x in zip((0, 2, 3), points, strict=True):
        np.testing.assert_allclose(results[i].device[0], np.exp(x), rtol=1e-15)
        np.testing.assert_allclose(results[i].emitted.results[0], np.exp(x), rtol=1e-15)
    np.testing.assert_array_equal(results[1].device[0], -points[0])


@pytest.mark.parametrize("n", [4, 5])
def test_an_inverse_transform_of_odd_length_is_left_to_the_device(n):
    x = np.array([1.0, 2 - 1j, 0.5 + 3j])
    program = ad.trace(lambda v: np.fft.irfft(v, n), x)
    (got,) = run_modules([(program, [x])], "jax-cpu", "float64")
    np.testing.assert_allclose(got.device[0], np.fft.irfft(x, n), rtol=1e-13)
    assert isinstance(got.emitted.results, UnsupportedError) is (n == 5)
    if n == 4:
        np.testing.assert_allclose(got.emitted.results[0], np.fft.irfft(x, n), rtol=1e-13)


def product(n):
    a, b = np.ones((2, n)), np.ones((n, 3))
    return ad.trace(np.matmul, a, b), [a, b]


@pytest.mark.parametrize("n", [0, 2, 10])
def test_an_empty_product_is_left_to_the_device(monkeypatch, folder, n):
    starts, started = [], Child._started
    monkeypatch.setattr(Child, "_started", lambda self: starts.append(1) or started(self))
    (got,) = run_modules([product(n)], "jax-cpu", "float64")
    np.testing.assert_array_equal(got.device[0], np.full((2, 3), float(n)))
    assert isinstance(got.emitted.results, UnsupportedError) is (n == 0)
    assert bool(starts) is (n > 0)


def test_what_ends_the_interpreter_leaves_the_others_alone(monkeypatch):
    monkeypatch.setattr(interpreted, "_lacking", lambda functions, name: None)
    monkeypatch.setenv("GRADSWEEP_FRESH", "1")
    given = cases(4)
    given.insert(2, product(0))
    results = run_modules(given, "jax-cpu", "float64")
    for i, (program, args) in enumerate(given):
        if i == 2:
            assert isinstance(results[i].emitted.results, UnsupportedError)
            assert "the child process ended" in str(results[i].emitted.results)
            continue
        want = ad.interpret(program, *args)
        np.testing.assert_allclose(results[i].emitted.results[0], want, rtol=1e-13)


def test_two_loads_are_run_where_they_are_asked_for(monkeypatch):
    given = cases(3)
    loads, calling = [], modules._calling
    monkeypatch.setattr(modules, "_calling", lambda *a: loads.append(1) or calling(*a))
    found = run_modules(given, "jax-cpu", "float32", [True, False, True])
    assert len(loads) == 2 and found[1].again is None
    for got in (found[0], found[2]):
        assert got.again[0] is not got.device[0]
        assert got.again[0].tobytes() == got.device[0].tobytes()
        assert got.again[0].dtype == np.float32


def test_a_second_load_that_differs_is_a_finding(monkeypatch):
    calls, ran = [], modules._run

    def second_is_off(*a):
        calls.append(1)
        return {i: tuple(v + len(calls) - 1 for v in r) for i, r in ran(*a).items()}

    monkeypatch.setattr(modules, "_run", second_is_off)
    (row,) = check_function(np.exp, np.ones(3), surfaces=["device_self"])
    assert row.status == "fail" and "second load, result 0" in row.message


def test_a_program_that_fails_fails_in_both_loads():
    (got,) = run_modules([without_lowering()], "jax-cpu", "float32", [True])
    assert all(isinstance(v, LoweringError) for v in (got.emitted, got.device, got.again))


# --- what is kept --------------------------------------------------------------------------


def lowerings_of(monkeypatch):
    """A list that grows by one with each module that is lowered."""
    made, lower = [], modules._lowered
    monkeypatch.setattr(modules, "_lowered", lambda *a: made.append(1) or lower(*a))
    return made


def test_a_module_is_lowered_once_and_run_each_time(monkeypatch, folder):
    made, ran, calling = lowerings_of(monkeypatch), [], modules._calling
    monkeypatch.setattr(modules, "_calling", lambda *a: ran.append(1) or calling(*a))
    first = run_modules(cases(6), "jax-cpu", "float64")
    again = run_modules(cases(6), "jax-cpu", "float64")
    assert len(made) == 1 and len(ran) == 2 and len(list(folder.iterdir())) == 2
    for a, b in zip(first, again, strict=True):
        assert a.device[0].tobytes() == b.device[0].tobytes()
        assert a.emitted.results[0].tobytes() == b.emitted.results[0].tobytes()
    assert folder.stat().st_mode & 0o077 == 0
    run_modules(cases(6), "jax-cpu", "float32")
    assert len(made) == 2


FACTORISED = """
from checks.devices.environment import prepare_environment
prepare_environment()
import numpy as np, autodiff as ad
from checks.devices import modules
a = np.array([[4.0, 0.0], [2.0, 5.0]])
if modules.kept.folder().exists():
    modules._lowered = None
((got),) = modules.run_modules([(ad.trace(np.linalg.cholesky, a), [a])], "jax-cpu", "float64")
print(got.device[0].tolist())
"""


def test_kept_code_that_calls_a_library_runs_in_a_process_that_lowered_nothing(tmp_path):
    for _ in range(2):
        assert run(FACTORISED, GRADSWEEP_CACHE=str(tmp_path)) == "[[2.0, 0.0], [1.0, 2.0]]\n"


ONCE = """
from checks.devices.environment import prepare_environment
prepare_environment()
import jax, numpy as np, autodiff as ad
from checks import kept
from checks.devices import modules
x = np.ones(2)
modules.run_modules([(ad.trace(np.exp, x), [x])], "jax-cpu", "float64")
print(sorted(p.name for p in kept.folder().parent.iterdir()))
print(jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def test_kept_code_is_not_written_to_the_cache_of_jax_too(tmp_path):
    assert run(ONCE, GRADSWEEP_CACHE=str(tmp_path)) == "['modules']\n0.0\n"


def test_other_arguments_are_interpreted_anew(folder):
    program = ad.trace(np.exp, np.ones(2))
    for x in (np.array([1.0, 2.0]), np.array([3.0, -4.0])):
        (got,) = run_modules([(program, [x])], "jax-cpu", "float64")
        np.testing.assert_allclose(got.emitted.results[0], np.exp(x), rtol=1e-15)
        np.testing.assert_allclose(got.device[0], np.exp(x), rtol=1e-15)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("fresh", ["1", "0"])
def test_everything_is_made_anew_on_request(monkeypatch, folder, fresh):
    monkeypatch.setenv("GRADSWEEP_FRESH", fresh)
    run_modules(cases(2), "jax-cpu", "float64")
    assert folder.exists() is (fresh == "0")


@pytest.mark.usefixtures("folder")
def test_the_key_follows_the_lowering_of_an_op():
    x = np.ones(2)
    keys = {kept.entry_key([ad.trace(np.cos, x)], "float64")}
    for fields in ({"jax": "jnp.sin"}, {}):
        with mutated("COS", **fields):
            keys.add(kept.entry_key([ad.trace(np.cos, x)], "float64"))
    assert len(keys) == 2 and None not in keys


@pytest.mark.usefixtures("folder")
def test_the_key_follows_the_body_of_a_composite():
    x = np.ones(2)
    before = kept.entry_key([ad.trace(ad.ops.silu, x)])
    with mutated("SILU", body=lambda v: v * np.exp(v)):
        assert kept.entry_key([ad.trace(ad.ops.silu, x)]) != before
    assert kept.entry_key([ad.trace(ad.ops.silu, x)]) == before


@pytest.mark.usefixtures("folder")
def test_the_key_follows_settings_and_literals(monkeypatch):
    x = np.ones(2)
    program = ad.trace(lambda v: v * 2.5, x)
    assert kept.entry_key([program], "a") == kept.entry_key([ad.trace(lambda v: v * 2.5, x)], "a")
    others = [kept.entry_key([program], "b"), kept.entry_key([program] * 2, "a")]
    others.append(kept.entry_key([ad.trace(lambda v: v * 2.25, x)], "a"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    others.append(kept.entry_key([program], "a"))
    monkeypatch.delenv("XLA_FLAGS")
    assert len({kept.entry_key([program], "a"), *others}) == 5


def test_the_key_follows_the_sources_of_the_lowering(tmp_path):
    named = ("autodiff/lower/rules_shape.py", "autodiff/kernels/bessel.py", "autodiff/rounding.py")
    for name in named:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    digests = set()
    for name in ("", *named):
        if name:
            (tmp_path / name).write_text((tmp_path / name).read_text() + "\n# changed\n")
        digests.add(kept.sources_digest.__wrapped__(root=tmp_path))
    assert len(digests) == 4
    for pattern in kept.MODULES.sources:
        assert list(ROOT.glob(pattern)), pattern


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b"x" + b[1:], lambda b: b""],
    ids=["cut", "foreign", "empty"],
)
def test_a_damaged_entry_is_warned_about_and_made_again(monkeypatch, folder, damage):
    given = cases(1)
    key = kept.entry_key([given[0][0]], "damaged")
    kept.save(key, [1, 2])
    assert kept.load(key) == [1, 2]
    (folder / key).write_bytes(damage((folder / key).read_bytes()))
    with pytest.warns(kept.CacheWarning, match="is damaged or not ours: it is made again"):
        assert kept.load(key) is None
    kept.save(key, [3])
    assert kept.load(key) == [3] and [f.name for f in folder.iterdir()] == [key]


@pytest.mark.usefixtures("folder")
def test_code_that_does_not_load_is_compiled_again():
    given = cases(2)
    (first, *_) = run_modules(given, "jax-cpu", "float64")
    key = modules.build([p for p, _ in given], "jax-cpu", "float64").key
    functions, failed, (_, *trees) = kept.load(key)
    kept.save(key, (functions, failed, (b"not code", *trees)))
    with pytest.warns(kept.CacheWarning, match=r"does not load \(UnpicklingError: .*made again"):
        (again, *_) = run_modules(given, "jax-cpu", "float64")
    assert again.device[0].tobytes() == first.device[0].tobytes()
    assert kept.load(key)[2][0] != b"not code"


def test_a_run_that_took_too_long_is_not_kept(monkeypatch, folder):
    def slow(*args):
        raise ChildTimeout("no result after 120 s")

    monkeypatch.setattr("checks.devices.interpreted.CHILD.run", slow)
    (got,) = run_modules(cases(1), "jax-cpu", "float64")
    assert isinstance(got.emitted.results, UnsupportedError)
    monkeypatch.undo()
    assert not [f for f in folder.iterdir() if "-" in f.name]


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


def test_unknown_compile_options_are_named(monkeypatch, capsys):
    monkeypatch.setenv("GRADSWEEP_XLA", "quik")
    text = "unknown compile options 'quik'\nin $GRADSWEEP_XLA\ndid you mean 'quick'?"
    with pytest.raises(environment.SettingError) as caught:
        environment.prepare_environment()
    assert str(caught.value) == text
    assert main(["sweep", "--op", "SIN", "--surface", "reverse"]) == 2
    assert capsys.readouterr().err == f"gradsweep: {text}\n"


def test_what_nothing_used_for_a_month_is_removed(folder):
    kept.save("old", 1)
    kept.save("used", 2)
    for key in ("old", "used"):
        os.utime(folder / key, (0, 0))
    assert kept.load("used") == 2
    kept.prune.cache_clear()
    kept.save("new", 3)
    assert [kept.load(key) for key in ("old", "used", "new")] == [None, 2, 3]


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
    assert any(line.startswith("device torch-cpu: not needed: ") for line in lines)
    assert "device jax-cpu: ok" in lines


def test_the_doctor_cuts_what_a_backend_says(monkeypatch):
    said = "Backend 'tpu' failed to initialize: INTERNAL: Failed to open libtpu.so: " + "no " * 99
    monkeypatch.setattr("checks.devices.batch.why_unavailable", lambda name: said)
    lines = {x.partition(": ")[0]: x for x in devices.doctor_lines() if x.startswith("device ")}
    start = "device jax-tpu: absent (optional): Backend 'tpu' failed to initialize: "
    assert lines["device jax-tpu"].startswith(start) and lines["device jax-tpu"].endswith(" ...")
    assert lines["device jax-cpu"].startswith("device jax-cpu: Backend")  # not optional
    assert max(map(len, lines.values())) < 100
