"""What the namespace offers, in the standard's form."""

from typing import Any

import numpy as np


def __array_namespace_info__() -> "NamespaceInfo":
    """The inspection object of the array-API standard."""
    return NamespaceInfo()


class NamespaceInfo:
    """Capabilities, devices and dtypes of traced values."""

    __module__ = "autodiff.namespace"

    def capabilities(self) -> dict[str, Any]:
        """Masks and shapes that depend on values need a concrete value."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The only device."""
        return "cpu"

    def devices(self) -> list[str]:
        """The only device."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Dtypes of arrays created without one."""
        del device
        names = {
            "real floating": "float64",
            "complex floating": "complex128",
            "integral": "int64",
            "indexing": "int64",
        }
        return {k: np.dtype(v) for k, v in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of a kind (all by default), by name."""
        del device
        names = [
            "bool",
            *(f"int{n}" for n in (8, 16, 32, 64)),
            *(f"uint{n}" for n in (8, 16, 32, 64)),
            *("float32", "float64", "complex64", "complex128"),
        ]
        found = {n: np.dtype(n) for n in names}
        return {n: d for n, d in found.items() if kind is None or np.isdtype(d, kind)}
