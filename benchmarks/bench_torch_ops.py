"""PyTorch's own op database under our checks and under torch.autograd.gradcheck.

PyTorch tests with these samples itself. What our checks call WRONG there is a fault of PyTorch's or
a false alarm of ours: every sample on which the two differ is printed, for a person to decide.
"""

import collections
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autodiff.optional import available
from checks import check_gradients

SAMPLES = 2  # of each op, evenly over those that are small
NUMBERS = 2000  # in all arguments of a sample
NEEDS = "torch", "expecttest"
LONGEST = 120  # of an exception's message


@dataclasses.dataclass(frozen=True)
class Call:
    """One sample: a function of the tensors that need a gradient."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[Any, ...]
    forward: bool


def calls(dtype: Any, samples: int = SAMPLES, only: Sequence[str] = ()) -> Iterator[Call]:
    """Samples of every differentiable op of the database, or of those named in `only`."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils._pytree import tree_flatten

    for op in op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if (only and name not in only) or not op.supports_autograd:
            continue
        if not op.supports_dtype(dtype, "cpu"):
            continue
        torch.manual_seed(0)
        small = []
        for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
            leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
            if 0 < sum(x.numel() for x in leaves if isinstance(x, torch.Tensor)) <= NUMBERS:
                small.append((sample, leaves, spec))
        for sample, leaves, spec in small[:: max(1, len(small) // samples)][:samples]:
            call = _call(op, name, sample, leaves, spec)
            if call.tensors:
                yield call


def _call(op: Any, name: str, sample: Any, leaves: list[Any], spec: Any) -> Call:
    import torch
    from torch.utils._pytree import tree_leaves, tree_unflatten

    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]

    def function(*tensors: Any) -> Any:
        given = list(leaves)
        for i, x in zip(places, tensors, strict=True):
            given[i] = x
        args, kwargs = tree_unflatten(given, spec)
        found = op.gradcheck_wrapper(op.get_op(), *args, **kwargs)
        if sample.output_process_fn_grad is not None:
            found = sample.output_process_fn_grad(found)
        kept = [y for y in tree_leaves(found) if y.is_floating_point() or y.is_complex()]
        return kept[0] if len(kept) == 1 else tuple(kept)

    function.__name__ = name
    tensors = tuple(leaves[i].detach().clone() for i in places)
    return Call(name, function, tensors, op.supports_forward_ad)


def _theirs(call: Call) -> str:
    """What gradcheck says: pass, fail, or the exception it ends with."""
    import torch

    tensors = tuple(x.clone().requires_grad_() for x in call.tensors)
    try:
        ok = torch.autograd.gradcheck(
            call.function, tensors, check_forward_ad=call.forward, raise_exception=False
        )
    except Exception as error:  # whatever the op raises is its answer
        return type(error).__name__
    return "pass" if ok else "fail"


def _ours(call: Call) -> tuple[str, str]:
    """Our verdict, and in a line why."""
    try:
        report = check_gradients(call.function, *call.tensors, framework="torch")
    except Exception as error:  # counted: a report should have said it
        return type(error).__name__, f"{error} ".splitlines()[0][:LONGEST]
    cause = report.cause.text if report.cause is not None else ""
    if report.ok:
        return str(report.verdict), ""
    failed = [check.name for check in report.checks if check.verdict == report.verdict]
    return str(report.verdict), "; ".join(filter(None, (", ".join(failed), cause)))


def main(only: Sequence[str] = ()) -> None:
    missing = [name for name in NEEDS if not available(name)]
    if missing:
        print(f"skipped: pip install {' '.join(missing)}")
        return
    import torch

    torch.set_num_threads(1)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    spent, ops, lines = [0.0, 0.0], set(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the ops' own, about deprecations
        for call in calls(torch.float64, only=only):
            start = time.perf_counter()
            verdict, why = _ours(call)
            middle = time.perf_counter()
            theirs = _theirs(call)
            spent = [spent[0] + middle - start, spent[1] + time.perf_counter() - middle]
            ops.add(call.name)
            counts[verdict, theirs] += 1
            differ = (verdict == "WRONG") != (theirs == "fail") and verdict != "VACUOUS"
            if differ or not verdict.isupper():
                shapes = [tuple(x.shape) for x in call.tensors]
                said = f"{verdict} ({why})" if why else verdict
                lines.append(f"  {call.name} {shapes}: {said}; gradcheck {theirs}")
    print(f"{len(ops)} ops, {sum(counts.values())} samples at float64")
    for (verdict, theirs), n in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  ours {verdict:16} gradcheck {theirs:12} {n:5}")
    print(f"ours {spent[0]:.1f} s, gradcheck (slow) {spent[1]:.1f} s")
    print("where the two differ:", *lines, sep="\n")
