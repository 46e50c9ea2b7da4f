"""The environment of a device run: threads, compile cache, XLA options; the doctor's findings."""

import importlib.metadata
import os
import platform
import sys
import textwrap
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autodiff.errors import AutodiffError, nearest
from autodiff.optional import available


class SettingError(AutodiffError):
    """An environment variable holds what it cannot mean."""


# Several workers share the cores, so that threads inside one would only make results depend on
# their number; on a GPU they share the memory, which JAX would otherwise take whole.
THREADS = MappingProxyType(
    {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
)
_CACHE = MappingProxyType(
    {
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
)
# XLA options by name, for the CPU. "default" is what a user of jax.jit gets. The others compile in
# two thirds and in a quarter of the time and change last bits: "fast" on arrays whose size is no
# multiple of the vector width (exp, log and sums, by 1 ulp in jax 0.10.2), "quick" everywhere.
OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "fast": {"xla_cpu_use_fusion_emitters": False},
        "quick": {
            "xla_cpu_use_fusion_emitters": False,
            "xla_backend_optimization_level": 0,
            # code in one piece takes a fifth less; workers share the cores anyway
            "xla_cpu_parallel_codegen_split_count": 1,
        },
    }
)


def xla_options() -> Mapping[str, Any]:
    """The compile options that `$GRADSWEEP_XLA` names, "quick" where it is not set.

    Raises:
        SettingError: there are none of that name.
    """
    name = os.environ.get("GRADSWEEP_XLA", "quick")
    if name not in OPTIONS:
        hint = nearest(name, OPTIONS) or f"set it to one of {', '.join(OPTIONS)}"
        raise SettingError(f"unknown compile options {name!r}", "in $GRADSWEEP_XLA", hint)
    return OPTIONS[name]


def cache_folder() -> Path:
    """The user's folder for compiled programs: `$GRADSWEEP_CACHE`, or under the user cache.

    One per kind of processor: compiled CPU code may use instructions that another lacks.
    """
    given = os.environ.get("GRADSWEEP_CACHE")
    if given:
        root = Path(given)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = Path(base) / "gradsweep"
    return root / f"xla-{platform.machine()}-{zlib.crc32(_processor().encode()):08x}"


def _processor() -> str:
    """What tells this kind of processor from others: its feature list, where the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x for x in lines if x.startswith(("flags", "Features"))), platform.processor())


def prepare_environment() -> dict[str, str]:
    """Set what a device run needs, best before NumPy and JAX are imported; returns what was set.

    Variables the user has set stay. Threads are read at import, so they are left alone once NumPy
    is loaded; the compile cache is configured either way.

    Raises:
        SettingError: `$GRADSWEEP_XLA` names no compile options.
    """
    xla_options()
    wanted = {} if "numpy" in sys.modules else dict(THREADS)
    wanted["XLA_PYTHON_CLIENT_PREALLOCATE"] = THREADS["XLA_PYTHON_CLIENT_PREALLOCATE"]
    folder = cache_folder()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and _writable(folder):
        wanted["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        wanted |= {name.upper(): str(value) for name, value in _CACHE.items()}
    new = {k: v for k, v in wanted.items() if k not in os.environ}
    os.environ.update(new)
    if "jax" in sys.modules:
        _configure(new)
    return new


def _configure(new: Mapping[str, str]) -> None:
    """Tell an already imported JAX, which reads the variables at import alone."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in new and jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", new["JAX_COMPILATION_CACHE_DIR"])
        for name, value in _CACHE.items():
            jax.config.update(name, value)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


PACKAGES = (
    *("numpy", "scipy", "ml_dtypes", "optree", "mpmath", "hypothesis", "pytest", "jax", "jaxlib"),
    *("torch", "python-flint", "jinja2", "safetensors"),
)


_LONGEST = 60  # of a backend's own message


def versions() -> dict[str, str | None]:
    """Installed versions of the packages that results depend on; None where one is missing."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def doctor_lines() -> list[str]:
    """`doctor` as lines to print."""
    found = doctor()
    cache = found["cache"]
    devices = [f"device {n}: {_device(n, reason)}" for n, reason in found["devices"].items()]
    lines = [f"jax devices: {', '.join(found['jax_devices']) or 'none'}", *devices]
    lines.append(f"compiled programs: {cache['folder']} ({cache['files']} files)")
    missing = found["jaxlib_missing_calls"]
    return [*lines, f"jaxlib lacks {', '.join(missing)}"] if missing else lines


def _device(name: str, reason: str | None) -> str:
    """Why a device cannot be used, in a line; JAX brings its CPU alone."""
    if reason is None:
        return "ok"
    if name.startswith("torch-"):
        return "not needed: the sweep runs on JAX, and check_gradients runs PyTorch by itself"
    short = textwrap.shorten(reason, _LONGEST, placeholder=" ...")
    optional = name.startswith("jax-") and name != "jax-cpu"
    return f"absent (optional): {short}" if optional else short


def doctor() -> dict[str, Any]:
    """What a report of a wrong or missing result should come with, as plain data.

    Keys: "python", "platform", "packages" (name to version or None), "threads", "xla_flags",
    "cache" (folder, files, bytes), "devices" (profile name to None where usable, else the
    reason), "jax_devices" (names) and "jaxlib_missing_calls".
    """
    from autodiff.profiles import PROFILES
    from checks.devices.batch import why_unavailable

    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder())
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.is_dir() else []
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions(),
        "threads": {k: os.environ.get(k) for k in THREADS},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "cache": {
            "folder": str(folder),
            "files": len(files),
            "bytes": sum(f.stat().st_size for f in files),
        },
        "devices": {name: why_unavailable(name) for name in PROFILES},
        "jax_devices": [],
        "jaxlib_missing_calls": [],
    }
    if available("jax"):
        import jax

        from autodiff.lower.mlir import missing_calls

        report["jax_devices"] = [str(d) for d in jax.devices()]
        report["jaxlib_missing_calls"] = list(missing_calls())
    return report
