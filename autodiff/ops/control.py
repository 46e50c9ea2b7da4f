"""Control: guards, conditionals, loops, custom derivatives, checkpoints and taps."""

from typing import Any

import numpy as np

from autodiff.kernels import control as kernels
from autodiff.op import Op, define
from autodiff.errors import TracerError
from autodiff.program import Spec
from autodiff.trace import bind


def _guard_spec(value: Spec, expected: Spec) -> tuple[Spec, ...]:
    del value, expected
    return ()


def _guard_batch(size: int, args: Any, batched: Any) -> Any:
    del size, args, batched
    raise TracerError(
        "a Python branch was traced for one example and cannot decide for a batch",
        "in op GUARD",
        "use np.where or autodiff.cond in the function",
    )


define(
    Op(
        "GUARD",
        _guard_spec,
        impl=kernels.guard,
        batch=_guard_batch,
        derivative="none",
        outputs=0,
        effect=True,
        jax="rules:guard",
        doc="Raise where a traced Python decision would come out differently.",
    )
)
del bind, np
