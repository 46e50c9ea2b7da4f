"""`gradsweep check`: the derivatives of a function that stands in no test."""

import argparse
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DERIVATIVES = ("vjp", "jvp", "gradient", "jac")
_DEFAULTS = {"order": 1, "modes": "forward,reverse", "allow": ""}


def arguments(command: argparse.ArgumentParser) -> None:
    """Declare the sub-command's arguments."""
    command.add_argument("function", metavar="FILE.py::FUNCTION")
    command.add_argument(
        "--args",
        nargs="+",
        default=[],
        metavar="ARG",
        help="x.npy, data.npz:key, x.json, 2.5, [1,2], normal(3,4); name=... by name",
    )
    command.add_argument("--order", type=int, choices=(1, 2, 3), default=_DEFAULTS["order"])
    command.add_argument(
        "--modes", default=_DEFAULTS["modes"], metavar="MODES", help="forward, reverse or both"
    )
    command.add_argument("--framework", help="numpy, jax or torch (found from the function)")
    for name in DERIVATIVES:
        command.add_argument(f"--{name}", metavar="FILE.py::FUNCTION", help="written by hand")
    command.add_argument("--argnums", metavar="N,N", help="arguments to differentiate")
    command.add_argument("--tolerance", type=float, help="of the largest entry (default 1e-9)")
    command.add_argument(
        "--allow",
        default="",
        metavar="WORDS",
        help="kinks, inconclusive, vacuous, nondeterministic",
    )
    command.add_argument("--seed", type=int, help="varies the directions and the domains' draws")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Check one function; 0 where it is right, 1 where not. User errors raise InputError."""
    from checks.gradients.inputs import InputError, function
    from checks.gradients.inputs import arguments as parsed
    from checks.gradients.wording import show

    target = function(given.function)
    derivatives = {n: function(v) for n in DERIVATIVES if (v := getattr(given, n))}
    placed, named = parsed(given.args)
    if given.seed is not None and given.seed < 0:
        raise InputError(f"--seed {given.seed} is negative", "gradsweep check", "use 0, 1, 2, ...")
    report = _report(given, target, derivatives, placed, named)
    show(dataclasses.replace(report, reproduce=_again(given)))
    if given.json is not None:
        _write(given.json, report.to_json(indent=1))
    return 0 if report.ok else 1


def _report(
    given: argparse.Namespace,
    target: Callable[..., Any],
    derivatives: Mapping[str, Callable[..., Any]],
    placed: list[Any],
    named: Mapping[str, Any],
) -> Any:
    """The report, by the same road as the decorator's."""
    from autodiff.errors import AutodiffError
    from checks.gradients.inputs import InputError, first_line, place_of
    from checks.properties.arguments import by_name, complete, label
    from checks.properties.record import GradientProperty
    from checks.properties.run import whole

    values = by_name(target, placed)
    twice = set(values) & set(named)
    if twice:
        what = f"{', '.join(sorted(twice))} is given by place and by name"
        raise InputError(what, "in --args", "remove one of them")
    values |= by_name(target, named)
    _complete(target, values, complete)
    prop = GradientProperty(
        function=target,
        args=values,
        order=given.order,
        modes=_words(given.modes),
        framework=given.framework,
        derivatives=derivatives,
        argnums=_numbers(given.argnums),
        tolerance=given.tolerance,
        allow=_words(given.allow),
        seed=given.seed,
    )
    try:
        return whole(prop, target, name=label(target), settings={})
    except AutodiffError:
        raise
    except Exception as error:
        file = Path(given.function.partition("::")[0])
        raise InputError(
            f"{label(target)} raises {type(error).__name__}: {first_line(error)}",
            f"at {place_of(error, file)}",
            "check its arguments: --args in order, or name=...",
        ) from error


def _complete(target: Any, values: Mapping[str, Any], complete: Callable[..., None]) -> None:
    from checks.gradients.inputs import InputError
    from checks.properties.arguments import PropertyError, by_default

    try:
        complete(target, {**by_default(target), **values})
    except PropertyError as error:
        raise InputError(error.what, error.where, "add them after --args") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())


def _numbers(text: str | None) -> tuple[int | str, ...] | None:
    """Places, or names, of arguments."""
    if text is None:
        return None
    return tuple(int(w) if w.lstrip("-").isdigit() else w for w in _words(text))


def _again(given: argparse.Namespace) -> str:
    """The command line that repeats a check."""
    words = ["gradsweep", "check", given.function]
    words += ["--args", *given.args] if given.args else []
    for name in (
        "order",
        "modes",
        "framework",
        *DERIVATIVES,
        "argnums",
        "tolerance",
        "allow",
        "seed",
    ):
        value = getattr(given, name)
        if value is not None and value != _DEFAULTS.get(name):
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _write(path: Path, text: str) -> None:
    from checks.gradients.inputs import InputError
    from checks.results import replace_text

    try:
        replace_text(path, text + "\n")
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "in --json", "name another file"
        ) from error
