"""What runs keep on disk: folders of entries addressed by a digest of all they depend on.

A module's entry holds its verified text and compiled code, so that a later run neither traces,
lowers nor compiles it, but loads and runs it. The results of the two references, StableHLO's
interpreter and exact arithmetic, are kept by a digest and the bytes of the arguments: they are
functions of them. What is under test is never kept. `GRADSWEEP_FRESH=1` makes everything anew. An
entry whose bytes are not what was written is warned about and made again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pickle
import re
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autodiff.op import Op, body_program
from autodiff.program import Program, sub_programs
from autodiff.text import key as program_text

MAGIC = b"gradsweep entry 1\n"
ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Shelf:
    """A folder of entries, and what all of them depend on.

    Attributes:
      name: the folder's, beside JAX's own compile cache.
      sources: patterns of source files, from the project's root.
      packages: those whose versions count, installed or not.
    """

    name: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]


def _engine(*names: str) -> tuple[str, ...]:
    return tuple(f"autodiff/{name}.py" for name in names)


# The sources that decide how a program is lowered, compiled and run. Op records and the bodies of
# composites are part of a program's own digest.
MODULES = Shelf(
    "modules",
    (
        *("autodiff/lower/*.py", "autodiff/kernels/*.py", "checks/devices/*.py", "checks/kept.py"),
        *_engine("interpret", "precision", "profiles", "program", "rounding"),
    ),
    ("jax", "jaxlib", "numpy", "ml_dtypes"),
)
# Those that decide what exact arithmetic gives: its rules, and the ops whose own code is exact.
EXACT = Shelf(
    "exact",
    (
        *("autodiff/lower/exact*.py", "autodiff/kernels/*.py", "autodiff/ops/*.py"),
        *_engine("lower/number", "lower/balls", "families", "interpret", "rounding"),
    ),
    ("numpy", "scipy", "mpmath", "python-flint", "ml_dtypes"),
)
_ADDRESS = re.compile(r"<[\w.]+ \d+>")
_RULE = re.compile(r"rule '[^']*'")
_OWN = frozenset({"autodiff", "numpy", "scipy"})
UNUSED = 30 * 24 * 3600  # seconds after its last use that an entry is removed


class CacheWarning(UserWarning):
    """An entry of the cache folder cannot be used and is made again."""


_off = 0  # how many `off` are open


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Nothing is read or kept inside: for an engine that is tampered with, which no digest sees."""
    global _off
    _off += 1
    try:
        yield
    finally:
        _off -= 1


@functools.cache
def sources_digest(shelf: Shelf = MODULES, root: Path = ROOT) -> str:
    """Digest of every source file that a shelf depends on, and of the versions of its packages."""
    found = hashlib.sha256()
    for name in shelf.packages:
        found.update(f"{name} {_version(name)}\n".encode())
    for pattern in shelf.sources:
        for path in sorted(root.glob(pattern)):
            found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@functools.lru_cache(maxsize=8192)
def program_digest(program: Program) -> str | None:
    """Digest of a program with the lowerings of its ops, its composites' bodies included.

    None where a parameter has no text but its address, which another process may give anew, and
    where an op's code is not the engine's, NumPy's or SciPy's. Rules of custom derivatives are left
    out: nothing is differentiated where a program is run.
    """
    text = program_text(program)
    if _ADDRESS.search(text):
        return None
    found = hashlib.sha256(_RULE.sub("rule", text).encode())
    inner: list[Program] = []
    ops: dict[str, Op] = {}
    for eq in program.equations:
        ops[eq.op.kind] = eq.op
        inner += sub_programs(eq.params)
        if eq.op.body is not None:
            inner.append(body_program(eq.op, tuple(a.spec for a in eq.inputs), eq.params))
    for kind in sorted(ops):
        op = ops[kind]
        if not _is_own(op.impl):
            return None
        code = f"{op.jax} {op.exact} {_name(op.impl)}"
        found.update(f"{kind} {code} {op.multiple} {op.control} {op.body is None}\n".encode())
    for sub in inner:
        digest = program_digest(sub)
        if digest is None:
            return None
        found.update(digest.encode())
    return found.hexdigest()


def _name(impl: Any) -> str:
    return getattr(impl, "__qualname__", None) or str(getattr(impl, "__name__", ""))


def _is_own(impl: Any) -> bool:
    """Whether an op's code is covered by the digest of sources and versions."""
    if isinstance(impl, np.ufunc):
        import scipy.special

        return any(getattr(m, _name(impl), None) is impl for m in (np, scipy.special))
    return impl is None or str(getattr(impl, "__module__", "")).partition(".")[0] in _OWN


def entry_key(programs: Sequence[Program], *settings: Any, shelf: Shelf = MODULES) -> str | None:
    """The key of what is made of programs under settings; None where it must not be kept."""
    if os.environ.get("GRADSWEEP_FRESH", "") not in ("", "0"):
        return None
    found = hashlib.sha256(sources_digest(shelf).encode())
    found.update(repr((settings, os.environ.get("XLA_FLAGS", ""))).encode())
    for program in programs:
        digest = program_digest(program)
        if digest is None:
            return None
        found.update(digest.encode())
    return found.hexdigest()


def arrays_digest(arrays: Sequence[np.ndarray[Any, Any]]) -> str:
    """Digest of arrays: dtypes, shapes and bytes."""
    found = hashlib.sha256()
    for a in arrays:
        found.update(f"{a.dtype.name} {a.shape}\n".encode() + a.tobytes())
    return found.hexdigest()


def folder(shelf: Shelf = MODULES) -> Path | None:
    """Where entries are kept: beside JAX's own compile cache; None where there is none."""
    root = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return Path(root) / shelf.name if root else None


def load(key: str | None, shelf: Shelf = MODULES) -> Any:
    """The value kept under a key, or None. A file that is damaged gives a CacheWarning."""
    root = folder(shelf)
    if key is None or root is None or _off:
        return None
    path = root / key
    try:
        data = path.read_bytes()
        os.utime(path)  # its last use
    except OSError:
        return None
    start = len(MAGIC) + 32
    body = data[start:]
    # the digest is checked before anything is unpickled: a file cut short or changed is not read
    if data[:start] == MAGIC + hashlib.sha256(body).digest():
        return pickle.loads(zlib.decompress(body))
    warn(key, "is damaged or not ours", shelf)
    return None


def warn(key: str | None, what: str, shelf: Shelf = MODULES) -> None:
    """Say that an entry cannot be used."""
    warnings.warn(f"{folder(shelf)}/{key} {what}: it is made again", CacheWarning, stacklevel=3)


def save(key: str | None, value: Any, shelf: Shelf = MODULES) -> None:
    """Keep a value under a key; a reader or another writer never sees half of it."""
    root = folder(shelf)
    if key is None or root is None or _off:
        return
    body = zlib.compress(pickle.dumps(value, protocol=5), 1)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        prune(root)
        handle, name = tempfile.mkstemp(dir=root)
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(name, root / key)
    except OSError as error:  # a full or read-only disk costs time, not results
        warnings.warn(f"nothing is kept in {root}: {error}", CacheWarning, stacklevel=2)


@functools.cache
def prune(root: Path) -> None:
    """Remove what nothing has used for a month: old versions' entries; once in a process."""
    oldest = time.time() - UNUSED
    for path in root.iterdir():
        with contextlib.suppress(OSError):  # another process removed it, or may not be touched
            if path.stat().st_mtime < oldest:
                path.unlink()
