"""Programs lowered once, many in a module, and kept.

The text for the reference interpreter and the compiled module for the device come from the same
lowering. Programs that are equal share a function; the module is run once for each of their
arguments. What `kept` holds is neither lowered nor compiled again, but it is run.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autodiff.lower import mlir
from autodiff.lower.jax import flat_function, input_dtypes, needs_x64
from autodiff.program import Program
from autodiff.rounding import cast
from checks import kept
from checks.devices.batch import Array, Case, Outcome
from checks.devices.environment import xla_options
from checks.devices.interpreted import Emitted, interpret

# XLA simplifies a module until nothing changes: where one program takes twenty rounds, all of its
# module do. Over Bessel and incomplete beta functions modules of 60 take twice the time of these;
# over the rest they take a tenth less.
CHUNK = 24


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What one program gave: its text's verdict and results, the device's results, and (where they
    were asked for) those of a second load of the same code.
    """

    emitted: Emitted | Exception
    device: Outcome
    again: Outcome | None = None


@dataclasses.dataclass(frozen=True)
class Module:
    """One module of programs.

    Attributes:
      key: its address in the cache; None where it is not kept.
      functions: those of its text; program i is `@case{i}`.
      failed: the programs that do not lower, with their exceptions.
      load(): a fresh load of the compiled code: a function of one list of arrays per program.
    """

    key: str | None
    functions: dict[str, mlir.Function]
    failed: dict[int, Exception]
    load: Callable[[], Callable[[Any], Any]]


def run_modules(
    cases: Sequence[Case],
    device: str,
    precision: str,
    twice: Sequence[bool] | None = None,
    *,
    chunk: int = CHUNK,
) -> list[Lowered]:
    """Lower programs to StableHLO, `chunk` of them as functions of one module; verify the text,
    run it by the reference interpreter, and run the compiled module on the device.

    Arguments: programs with their flat arguments; a JAX device profile; "float32" or "float64";
    which of the cases are wanted from a second load of their module too (none by default).
    Returns per case what the interpreter and the device gave, or the exceptions they ended with. A
    module that fails is halved until the programs at fault are alone.
    """
    wanted = [False] * len(cases) if twice is None else list(twice)
    found: list[Lowered] = []
    for start in range(0, len(cases), chunk):
        part = slice(start, start + chunk)
        found += _halving(list(cases[part]), wanted[part], device, precision)
    return found


def _halving(cases: list[Case], twice: list[bool], device: str, precision: str) -> list[Lowered]:
    """Outcomes of cases run together; halved where that fails."""
    try:
        return _together(cases, twice, device, precision)
    except Exception as error:  # any backend's error: halving finds whose it is
        if len(cases) == 1:
            return [Lowered(error, error, error if twice[0] else None)]
    middle = len(cases) // 2
    first = _halving(cases[:middle], twice[:middle], device, precision)
    return first + _halving(cases[middle:], twice[middle:], device, precision)


def _together(cases: list[Case], twice: list[bool], device: str, precision: str) -> list[Lowered]:
    programs, places = _distinct(cases)
    module = build(programs, device, precision)
    arguments = [arguments_of(case, precision) for case in cases]

    def ran() -> dict[int, Outcome]:
        results = _run(module.load(), len(programs), module.failed, places, arguments)
        failed = {i: module.failed[p] for i, p in enumerate(places) if p in module.failed}
        return {**results, **failed}

    first = ran()
    second = ran() if any(twice) else {}
    able = [i for i, place in enumerate(places) if place not in module.failed]
    calls = [(f"case{places[i]}", arguments[i]) for i in able]
    emitted = dict(zip(able, interpret(module.functions, calls, module.key), strict=True))
    return [
        Lowered(
            emitted[i] if i in emitted else module.failed[place],
            first[i],
            second[i] if twice[i] else None,
        )
        for i, place in enumerate(places)
    ]


def _distinct(cases: Sequence[Case]) -> tuple[list[Program], list[int]]:
    """The programs that differ, and which of them each case has."""
    at: dict[Any, int] = {}
    programs: list[Program] = []
    places = []
    for program, _ in cases:
        key = kept.program_digest(program) or id(program)
        if key not in at:
            at[key] = len(programs)
            programs.append(program)
        places.append(at[key])
    return programs, places


def _run(
    load: Callable[[Any], Any],
    count: int,
    failed: dict[int, Exception],
    places: Sequence[int],
    arguments: Sequence[list[Array]],
) -> dict[int, tuple[Array, ...]]:
    """Results by case: the module is run until each program has seen all its arguments."""
    cases: list[list[int]] = [[] for _ in range(count)]
    for i, place in enumerate(places):
        cases[place].append(i)
    results: dict[int, tuple[Array, ...]] = {}
    lowered = [p for p in range(count) if p not in failed]
    for turn in range(max(map(len, cases), default=0)):
        raw = load([arguments[c[min(turn, len(c) - 1)]] for c in cases])
        for place, values in zip(lowered, raw, strict=True):
            if turn < len(cases[place]):
                results[cases[place][turn]] = tuple(np.asarray(v) for v in values)
    return results


# --- one module ----------------------------------------------------------------------------


def build(programs: Sequence[Program], device: str, precision: str) -> Module:
    """The module of programs, from the cache or lowered, verified and compiled now."""
    import jax

    place = jax.devices(device.removeprefix("jax-"))[0]
    options = xla_options()
    version = (place.platform, place.device_kind, place.client.platform_version)
    key = kept.entry_key(programs, precision, version, sorted(options.items()))
    entry = kept.load(key)
    if entry is not None:
        functions, unable, data = entry
        try:
            loads = _loads(_loaded(data, place), data, place)
        except Exception as error:  # the backend's own: such code is made again
            kept.warn(key, f"does not load ({type(error).__name__}: {error})")
        else:
            failed = {i: _failure(programs[i], precision) for i in unable}
            return Module(key, functions, failed, loads)
    return _built(programs, precision, place, key)


def _built(programs: Sequence[Program], precision: str, place: Any, key: str | None) -> Module:
    import jax
    from jax.experimental.serialize_executable import serialize

    failed: dict[int, Exception] = {}
    wide = any(needs_x64(program, precision) for program in programs)
    with jax.enable_x64(wide or jax.config.jax_enable_x64), jax.default_device(place):
        lowered = _lowered(programs, precision, failed)
        with _uncached() if key is not None and kept.folder() else contextlib.nullcontext():
            compiled = _compiled(lowered)
        functions = mlir.functions(lowered.compiler_ir())  # rewritten in place: compiled first
    data = serialize(compiled)
    kept.save(key, (functions, sorted(failed), data))
    return Module(key, functions, failed, _loads(compiled, data, place))


def _loads(loaded: Any, data: Any, place: Any) -> Callable[[], Callable[[Any], Any]]:
    """What is loaded already at the first call, a fresh load at each later one."""
    first = [loaded]
    return lambda: _calling(first.pop() if first else _loaded(data, place), place)


def _lowered(programs: Sequence[Program], precision: str, failed: dict[int, Exception]) -> Any:
    """The lowered module; programs that do not lower are left out and put into `failed`."""
    import jax

    def main(groups: list[list[Any]]) -> list[Any]:
        results: list[Any] = []
        for i, (program, group) in enumerate(zip(programs, groups, strict=True)):
            try:
                results.append(_named(program, precision, f"case{i}")(*group))
            except Exception as error:  # the case's outcome
                failed[i] = error
        return results

    structs = [
        [
            jax.ShapeDtypeStruct(s.shape, d)
            for s, d in zip(p.in_specs, input_dtypes(p, precision), strict=True)
        ]
        for p in programs
    ]
    return jax.jit(main, keep_unused=True).lower(structs)


def _failure(program: Program, precision: str) -> Exception:
    """The exception of a program that did not lower when its module was made."""
    import jax

    failed: dict[int, Exception] = {}
    with jax.enable_x64(needs_x64(program, precision) or jax.config.jax_enable_x64):
        _lowered([program], precision, failed)
    return failed[0]


def _named(program: Program, precision: str, name: str) -> Any:
    """The program as a jitted function, which becomes a function `@name` of the module."""
    import jax

    flat = flat_function(program, precision=precision)

    def function(*arrays: Any) -> tuple[Any, ...]:
        return tuple(flat(*arrays)[0])

    function.__name__ = function.__qualname__ = name
    return jax.jit(function, keep_unused=True)


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Compiling without JAX's own cache, which would write a second copy of what is kept here."""
    import jax

    name = "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update(name, math.inf)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _compiled(lowered: Any) -> Any:
    """Compile with the options that `$GRADSWEEP_XLA` names ("quick": an eighth of the time, last
    bits may differ); one that this XLA does not know is dropped.
    """
    settings = dict(xla_options())
    while True:
        try:
            return lowered.compile(compiler_options=settings or None)
        except Exception as error:
            unknown = [k for k in settings if f"No such compile option: '{k}'" in str(error)]
            if not unknown:
                raise
            del settings[unknown[0]]


def _loaded(data: Any, place: Any) -> Any:
    """Serialized code loaded on a device."""
    from jax.experimental.serialize_executable import deserialize_and_load

    _library_calls()
    return deserialize_and_load(*data, backend=place.client, execution_devices=[place])


@functools.cache
def _library_calls() -> None:
    """Have JAX look up the LAPACK functions, which it does when it first lowers a factorisation.

    Loaded code that calls them before that ends the process (a null function pointer).
    """
    import jax

    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((2, 2), np.float32))


def _calling(loaded: Any, place: Any) -> Callable[[Any], Any]:
    """Loaded code as a function of one list of arrays per program."""
    import jax

    def run(groups: Any) -> Any:
        # arguments have the dtypes of the module: with 64-bit types enabled none is narrowed
        with jax.enable_x64(True), jax.default_device(place):
            return loaded(groups)

    return run


def arguments_of(case: Case, precision: str) -> list[Array]:
    """A case's arguments, rounded once to their dtypes at the precision."""
    program, args = case
    dtypes = input_dtypes(program, precision)
    return [
        a if a.dtype == d else np.asarray(cast(a, d))
        for a, d in zip(map(np.asarray, args), dtypes, strict=True)
    ]
