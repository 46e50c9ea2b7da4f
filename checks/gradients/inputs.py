"""Inputs of `gradsweep check`: functions out of files, arrays out of files and expressions.

Nothing is evaluated: literals and domain expressions are parsed, arrays never unpickled.
"""

import ast
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autodiff.errors import AutodiffError, nearest
from checks.domains import DOMAINS, DomainError

SUFFIXES = (".npy", ".npz", ".json")


class InputError(AutodiffError, ValueError):
    """A file, function or argument on the command line that cannot be used."""


# --- functions -----------------------------------------------------------------------------


def function(text: str) -> Callable[..., Any]:
    """The function `path/to/file.py::name` (`name` may be dotted).

    Raises InputError where there is no such file or function, or importing the file fails.
    """
    path, separator, name = text.partition("::")
    if not separator or not name:
        raise InputError(
            f"{text!r} names no function", "gradsweep check", "write FILE.py::FUNCTION"
        )
    file = Path(path)
    if not file.is_file():
        near = [str(p) for p in sorted(file.parent.glob("*.py"))] if file.parent.is_dir() else []
        hint = nearest(path, near) or "name a Python file"
        raise InputError(f"there is no file {path}", "gradsweep check", hint)
    found: Any = _module(file)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [n for n, v in vars(found).items() if callable(v) and not n.startswith("__")]
            hint = nearest(part, known) or f"it has {', '.join(known[:8]) or 'no functions'}"
            raise InputError(f"there is no function {name!r}", f"in {path}", hint)
        found = getattr(found, part)
    if not callable(found):
        what = f"{name!r} is a {type(found).__name__}, no function"
        raise InputError(what, f"in {path}", "name a function")
    return found  # type: ignore[no-any-return]


def _module(file: Path) -> types.ModuleType:
    """A file as a module, imported once; its folder is on the path, as for a script."""
    name = f"gradsweep_check_{file.stem}"
    folder = str(file.resolve().parent)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file.resolve()):
        return known
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{file} is no Python file", "gradsweep check", "write FILE.py::FUNCTION")
    module = importlib.util.module_from_spec(spec)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(
            f"importing {file} fails: {type(error).__name__}: {first_line(error)}",
            place_of(error, file),
            f"see it with: python {file}",
        ) from error
    return module


def first_line(error: BaseException) -> str:
    """The first line of an exception's text."""
    return (str(error).strip().splitlines() or [""])[0]


def place_of(error: BaseException, file: Path) -> str:
    """The innermost line of a file in an exception's traceback."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve() == file.resolve()]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}:{error.lineno}"
    return f"{file}:{own[-1].lineno} in {own[-1].name}" if own else str(file)


# --- arguments -----------------------------------------------------------------------------


def arguments(words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments out of the words after --args."""
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        if equals and name.isidentifier():
            if name in named:
                raise InputError(
                    f"{name} is given twice", f"in --args {word}", "remove one of them"
                )
            named[name] = argument(rest)
        else:
            placed.append(argument(word))
    return placed, named


def argument(word: str) -> Any:
    """One argument: an array out of a file, a domain, or a literal."""
    base, _, key = word.partition(":")
    suffix = Path(base).suffix.lower()
    if suffix == ".npz":
        return _from_npz(base, key)
    if suffix in SUFFIXES and not key:
        return _from_npy(base) if suffix == ".npy" else _from_json(base)
    if suffix in SUFFIXES:
        fix = f"write {base}; only .npz files have keys"
        raise InputError(f"{base} has no key {key!r}", f"in --args {word}", fix)
    return _expression(word)


def _from_npy(path: str) -> np.ndarray[Any, Any]:
    found = _read(path, lambda loaded: None if hasattr(loaded, "files") else loaded)
    if found is None:
        raise InputError(f"{path} is an archive", "in --args", "rename it to .npz")
    return _plain(found, path)


def _read(path: str, pick: Callable[[Any], Any], what: str = "") -> Any:
    """What `pick` takes of a file's contents while it is open; pickles are refused."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}", "in --args", "name a .npy, .npz or .json file")
    try:
        with Path(path).open("rb") as stream:
            return pick(np.load(stream, allow_pickle=False))
    except InputError:
        raise
    except Exception as error:  # a damaged file raises whatever it happens to
        pickled = "pickle" in str(error).lower() or "Object arrays" in str(error)
        state = "holds pickled objects, which are not loaded" if pickled else "is corrupt"
        raise InputError(
            f"{what or path} {state}: {first_line(error)}",
            "in --args",
            "save it anew: np.save(path, np.asarray(x, float))",
        ) from error


def _plain(found: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    if found.dtype.kind == "V" and found.dtype.names is None:
        # bfloat16 and other dtypes of ml_dtypes are written as raw bytes
        what = f"{where} holds raw bytes ({found.dtype})"
        raise InputError(what, "in --args", "save it as float32")
    if found.dtype.kind not in "biufc":
        what = f"{where} holds {found.dtype} entries, not numbers"
        raise InputError(what, "in --args", "save numbers: np.save(path, np.asarray(x, float))")
    return found


def _from_npz(path: str, key: str) -> np.ndarray[Any, Any]:
    def pick(archive: Any) -> Any:
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path} is a single array", "in --args", "rename it to .npy")
        known = list(archive.files)
        name = known[0] if not key and len(known) == 1 else key
        if name not in known:
            what = f"{path} has no array {key!r}" if key else f"{path} holds {len(known)} arrays"
            hint = nearest(key, known) or f"write {path}:KEY, of {', '.join(known) or 'none'}"
            raise InputError(what, "in --args", hint)
        return archive[name]

    where = f"{path}:{key}" if key else path
    return _plain(_read(path, pick, where), where)


def _from_json(path: str) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", "in --args", "name a file"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text", "in --args", "name a JSON file") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}", "in --args", "correct the file") from error
    return as_arrays(value, path)


def as_arrays(value: Any, where: str) -> Any:
    """Nested lists of numbers as arrays; dicts stay dicts, strings and null stay."""
    if isinstance(value, dict):
        return {k: as_arrays(v, f"{where}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        if any(isinstance(v, dict | str) or v is None for v in value):
            return [as_arrays(v, f"{where}[{i}]") for i, v in enumerate(value)]
        try:
            found = np.asarray(value)
        except ValueError:
            found = np.asarray(None)
        if found.dtype.kind not in "biufc":
            raise InputError(
                f"{where} is no array: its rows differ in length or hold no numbers",
                "in --args",
                "make all rows as long as one another",
            )
        return found if found.size else found.astype(float)
    return value


# --- expressions ---------------------------------------------------------------------------


def _expression(word: str) -> Any:
    """A literal, or a domain such as `normal(3, 4)`."""
    fix = "write a file, a number, a list, or a domain such as normal(3,4)"
    try:
        node = ast.parse(word.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise InputError(f"{word!r} is neither a file nor a value", "in --args", fix) from None
    if isinstance(node, ast.Call):
        return _domain(node, word)
    if isinstance(node, ast.Name):
        hint = nearest(node.id, DOMAINS)
        raise InputError(f"{word!r} is neither a file nor a value", "in --args", hint or fix)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise InputError(f"{word!r} is neither a file nor a value", "in --args", fix) from None
    return as_arrays(value, word)


def _domain(node: ast.Call, word: str) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in DOMAINS:
        hint = nearest(name, DOMAINS) or f"use one of {', '.join(DOMAINS)}"
        raise InputError(
            f"there is no domain {word.partition('(')[0]!r}", f"in --args {word}", hint
        )
    try:
        given = [ast.literal_eval(a) for a in node.args]
        named = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
        return DOMAINS[name](*given, **named)
    except DomainError as error:
        raise InputError(error.what, f"in --args {word}", error.fix) from None
    except (ValueError, TypeError, SyntaxError) as error:
        raise InputError(
            f"{word!r} is no domain: {first_line(error)}", "in --args", f"write {name}(3,4)"
        ) from None
