"""What the lines of one printed module share: names, kernels, constants and the precision."""

from typing import Any

import numpy as np

from autodiff.interpret import width
from autodiff.kernel_source import Library
from autodiff.kernels import narrow
from autodiff.naming import Namer
from autodiff.python_text import array_text, dtype_text, held_dtype, number_text, primary
from autodiff.rounding import FORMATS
from autodiff.text import uniform

Array = np.ndarray[Any, Any]


class Scope:
    """Names, kernels and constants of one module.

    `native`: values have their own dtypes, as the executor computes; otherwise every floating
    value is held in float64 and rounded where it is narrower than `base` bytes, as the float64
    reference interpreter does.
    """

    def __init__(self, namer: Namer, base: int = 8, native: bool = False) -> None:
        self.namer, self.base, self.native = namer, base, native
        self.library = Library(namer)
        self.constants: dict[tuple[Any, ...], tuple[str, Array]] = {}
        self.externals: dict[str, Any] = {}  # what the text names but does not define

    def held(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype that values declared so have here."""
        return dtype if self.native else held_dtype(dtype)

    def dtype(self, dtype: np.dtype[Any]) -> str:
        """A dtype as an expression."""
        if self.native and dtype.kind == "V":
            self.library.imports.add("import ml_dtypes")
            return f"ml_dtypes.{dtype.name}"
        return dtype_text(dtype)

    def constant(self, value: Array) -> str:
        """The name of a module-level constant."""
        plain = value[(0,) * value.ndim] if value.size and uniform(value) else value
        at = (value.dtype, value.shape, value.strides, plain.tobytes())
        if at not in self.constants:
            self.constants[at] = (self.namer.fresh(_constant_name(value)), value)
        return self.constants[at][0]

    def constant_lines(self) -> list[str]:
        """Definitions of the constants."""
        return [f"{name} = {self.array(value)}" for name, value in self.constants.values()]

    def array(self, value: Array) -> str:
        """A constant array as an expression."""
        held = self.held(value.dtype)
        return array_text(value, held, self.dtype(held))

    def narrowed(self, text: str, dtype: np.dtype[Any]) -> str:
        """Values rounded to a narrower dtype and held at double width."""
        if dtype.kind != "V":
            through = f"{primary(text)}.astype({dtype_text(dtype)})"
            return f"{through}.astype({dtype_text(held_dtype(dtype))})"
        form = FORMATS[dtype.name]
        function = self.library.reference(narrow.round_to_format, "CAST")
        numbers = (form.mantissa, form.min_exponent, form.max_exponent, form.largest, form.overflow)
        return f"{function}({text}, {', '.join(map(number_text, numbers))})"

    def is_narrowed(self, dtype: np.dtype[Any]) -> bool:
        """Whether the reference rounds values of this dtype when computing in float64."""
        w = width(dtype)
        return not self.native and 0 < w < min(self.base, 8)


def _constant_name(value: Array) -> str:
    """`const_0_5` for a short number, else CONSTANT."""
    text = f"{value[()]:g}" if value.ndim == 0 and value.dtype.kind in "fiu" else ""
    if value.ndim and value.size and np.all(value == 1):
        return "ones_" + "_".join(map(str, value.shape))
    if not 0 < len(text) <= 8:
        return "CONSTANT"
    return "const_" + text.replace("-", "minus_").replace(".", "_").replace("+", "")
