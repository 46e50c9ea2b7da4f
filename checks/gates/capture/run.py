"""What this process is: versions, threads, and the line of the caller."""

import contextlib
import importlib.metadata
import os
import sys

import autodiff

_PACKAGES = (
    *("numpy", "jax", "jaxlib", "torch", "ml_dtypes", "safetensors"),
    *("transformers", "onnxruntime"),
)
_GATES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HIDDEN = (_GATES + os.sep, os.path.dirname(os.path.abspath(str(autodiff.__file__))) + os.sep)


def caller() -> str:
    """`file:line in function` of the innermost frame outside the gate and the engine."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*_HIDDEN, "<")):
            short = os.sep.join(path.split(os.sep)[-2:])
            return f"{short}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def versions() -> dict[str, str]:
    """Version by name of Python and of what was imported of the packages that compute."""
    found = {"python": sys.version.split()[0]}
    for name in _PACKAGES:
        if name in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
    return found


def thread_count() -> int | None:
    """PyTorch's threads where it was imported, else OMP_NUM_THREADS, else None."""
    torch, set_by_hand = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(set_by_hand) if set_by_hand.isdigit() else None
