"""Composite rules on 16-bit floats: computed in float32, rounded once at the end."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from autodiff.trace import bind, spec_of

Rule = Callable[..., Any]


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether values of this dtype are stored narrow and computed in float32 (f16, bf16, f8)."""
    return dtype.itemsize < 4 and dtype.kind in "fV"


def _wide(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(map(_wide, value))
    narrow = is_narrow(spec_of(value).dtype)
    return bind("CAST", value, dtype=np.dtype(np.float32)) if narrow else value


def widened_body(body: Rule) -> Rule:
    """A composite's body run in float32 on 16-bit operands; results have the first one's dtype.

    A sum of 2^16 float16 ones overflows, and so would a softmax of as many classes, although its
    result is in range: the body as a whole is rounded once, as a primitive is.
    """

    @functools.wraps(body)
    def wide(*values: Any, **params: Any) -> Any:
        narrow = [d for d in (spec_of(v).dtype for v in values) if is_narrow(d)]
        result = body(*map(_wide, values), **params)
        if not narrow:
            return result

        def back(out: Any) -> Any:
            floating = spec_of(out).dtype.kind == "f"
            return bind("CAST", out, dtype=narrow[0]) if floating else out

        return tuple(map(back, result)) if isinstance(result, tuple) else back(result)

    return wide


def widened_rule(rule: Rule) -> Rule:
    """A jvp or vjp rule run in float32 on 16-bit operands; the engine rounds what it returns."""

    @functools.wraps(rule)
    def wide(*groups: Any, **params: Any) -> Any:
        return rule(*map(_wide, groups), **params)

    return wide
