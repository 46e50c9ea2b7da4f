"""Other paths through a hand-written backward of PyTorch: what it gets may be undefined, strided,
expanded, or not wanted, and what it gives back has to stay the same.

One call of the function and of its backward each; the results are compared with those of the
ordinary path at rounding level. Graphs of PyTorch's own operators alone are left alone.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from checks.gradients.evidence import Evidence
from checks.gradients.frameworks.torch import torch
from checks.gradients.inside import of_one_road
from checks.gradients.modes import first_line, natives_like
from checks.gradients.narrow import narrow_tolerance
from checks.gradients.report import PASS, WRONG, Check
from checks.gradients.target import Target, size_of, wide
from checks.tolerances import constant

Array = np.ndarray[Any, Any]
ALONE = 4  # arguments and results that are taken one by one


@dataclasses.dataclass(frozen=True)
class Path:
    """One way through: the tensors that go in, and which of them count.

    Arguments:
        points, cotangents: what the function and its backward get.
        wanted: the arguments that need a gradient; None for all.
        used: the results that are used; None for all.
    """

    points: Sequence[Any]
    cotangents: Sequence[Any]
    wanted: int | None = None
    used: int | None = None


Gradients = list[Array | None]


class _BackwardError(Exception):
    """The backward of one path raised."""


def path_checks(target: Target) -> list[Check]:
    """The checks `strides`, `partial inputs` and `single results` of a function with a hand-written
    backward.
    """
    points = target.native(target.points)
    cts = natives_like(target, target.cotangents("paths"), target.centre)
    plain = Path(points, cts)
    outs, inputs = _forward(target, plain)
    ordinary = _backward(target, plain, outs, inputs)
    limits = _limits(target, cts, ordinary)
    made = [_strides(target, plain, ordinary, limits)]
    if made[0] is None or made[0].verdict == PASS:
        made.append(_expanded(target, plain, limits))
    if len(points) > 1:
        made.append(_partial(target, plain, ordinary, limits))
    if sum(y.requires_grad for y in outs) > 1:
        made.append(_single(target, plain, ordinary, limits))
    return [of_one_road(target, c) for c in made if c is not None]


# --- one path ------------------------------------------------------------------------------


def _forward(target: Target, path: Path) -> tuple[list[Any], list[Any]]:
    target.tally.calls += 1
    inputs = [
        x.detach().requires_grad_(path.wanted in (None, i)) for i, x in enumerate(path.points)
    ]
    with torch.enable_grad():
        given = [x.view_as(x) if x.requires_grad else x for x in inputs]
        return [torch.as_tensor(y) for y in target.flat(given)], inputs


def _backward(target: Target, path: Path, outs: list[Any], inputs: list[Any]) -> Gradients:
    target.tally.derivatives += 1
    known = [i for i, y in enumerate(outs) if y.requires_grad and path.used in (None, i)]
    asked = [x for x in inputs if x.requires_grad]
    found: Any = [None] * len(asked)
    if known:
        try:
            found = torch.autograd.grad(
                [outs[i] for i in known],
                asked,
                [path.cotangents[i] for i in known],
                allow_unused=True,
            )
        except Exception as error:  # whatever a backward of the user's raises
            raise _BackwardError(first_line(error)) from error
    each = iter(found)
    taken = [next(each) if x.requires_grad else None for x in inputs]
    return [None if g is None else np.array(wide(target.to_numpy(g))) for g in taken]


# --- comparing -----------------------------------------------------------------------------


def _limits(target: Target, cts: Sequence[Any], ordinary: Gradients) -> list[Any]:
    """What each gradient may differ by on another path: roundings."""
    cotangents = [wide(target.to_numpy(c)) for c in cts]
    terms = Evidence(target, cotangents, None).size_of(target.centre)
    narrow = target.unit > constant("narrow_unit")
    share = narrow_tolerance(target) if narrow else constant("gradient_tolerance")
    rounding = constant("vacuous_units") * target.unit * terms
    return [
        share * float(np.max(np.abs(g), initial=0.0)) + rounding / size_of(x)
        if g is not None
        else rounding / size_of(x)
        for g, x in zip(ordinary, target.points, strict=True)
    ]


def _against(
    target: Target,
    name: str,
    how: str,
    ordinary: Gradients,
    limits: Sequence[Any],
    found: Gradients,
) -> Check:
    """The worst entry of the gradients of one path against those of the ordinary one."""
    worst = Check(name, PASS, detail=how)
    each = zip(found, ordinary, limits, target.point_paths, strict=True)
    for got, want, limit, path in each:
        if got is None and want is None:
            continue
        one = np.zeros_like(want) if got is None else got
        other = np.zeros_like(one) if want is None else want
        if not one.size:
            continue
        size = float(np.max(np.abs(other), initial=0.0)) or 1.0
        off = np.nan_to_num(np.abs(one - other), nan=np.inf)
        off = np.where(np.isnan(one) & np.isnan(other), 0.0, off)
        error, allowed = float(np.max(off)) / size, float(np.max(limit)) / size
        if np.any(off > limit):
            at = np.unravel_index(int(np.argmax(off - limit)), off.shape)
            index = f"[{', '.join(str(int(i)) for i in at)}]" if at else ""
            text = f"the gradient of {path}{index} is {one[at]:.9g} {how}, {other[at]:.9g} else"
            return Check(name, WRONG, error, allowed, allowed, text)
        if allowed > worst.allowed:
            worst = Check(name, PASS, error, allowed, allowed, how)
    return worst


def _taken(
    target: Target, name: str, how: str, path: Path, compare: Callable[[Gradients], Check]
) -> Check | None:
    """The check of one path; None where the function itself refuses it."""
    try:
        outs, inputs = _forward(target, path)
    except Exception:  # it asserts a layout, for one: no fault of a derivative
        return None
    try:
        return compare(_backward(target, path, outs, inputs))
    except _BackwardError as error:
        return Check(name, WRONG, detail=f"the backward raises {error} {how}")


# --- the paths -----------------------------------------------------------------------------


def strided(x: Any) -> Any:
    """The same values with gaps between them in memory; matrices transposed there too."""
    if not x.dim() or x.layout != torch.strided:
        return x
    turned = x.transpose(-1, -2) if x.dim() > 1 else x
    room = turned.new_zeros((*turned.shape[:-1], 2 * turned.shape[-1]))
    laid = room[..., ::2]
    laid.copy_(turned)
    return laid.transpose(-1, -2) if x.dim() > 1 else laid


def _strides(
    target: Target, plain: Path, ordinary: Gradients, limits: Sequence[Any]
) -> Check | None:
    """Strided arguments and cotangents; where that differs, each alone is tried for the text."""
    points, cts = [list(map(strided, xs)) for xs in (plain.points, plain.cotangents)]
    ways = (
        ("for strided arguments and cotangents", Path(points, cts)),
        ("for strided arguments", Path(points, plain.cotangents)),
        ("for a strided cotangent", Path(plain.points, cts)),
    )
    found: list[Check] = []
    for how, path in ways:
        check = _taken(
            target,
            "strides",
            how,
            path,
            functools.partial(_against, target, "strides", how, ordinary, limits),
        )
        if check is not None and (check.verdict == WRONG or not found):
            found.append(check)
        if found and found[0].verdict == PASS:
            break
    return found[-1] if found else None


def _expanded(target: Target, plain: Path, limits: Sequence[Any]) -> Check | None:
    """Cotangents of one number expanded (as those of `.sum()` are) against the same written out."""
    name, how = "strides", "for an expanded cotangent"
    ones = [
        c.reshape(-1)[:1].clone().reshape([1] * c.dim()).expand(c.shape) if c.numel() else c
        for c in plain.cotangents
    ]
    written = dataclasses.replace(plain, cotangents=[c.contiguous() for c in ones])
    try:
        outs, inputs = _forward(target, written)
        want = _backward(target, written, outs, inputs)
    except _BackwardError:
        return None
    check = _taken(
        target,
        name,
        how,
        dataclasses.replace(plain, cotangents=ones),
        functools.partial(_against, target, name, how, want, limits),
    )
    return check if check is not None and check.verdict == WRONG else None


def _partial(
    target: Target, plain: Path, ordinary: Gradients, limits: Sequence[Any]
) -> Check | None:
    """Each argument alone needing a gradient."""
    name, last = "partial inputs", None
    for i, path in enumerate(target.point_paths[:ALONE]):
        how = f"where only {path} needs one"
        alone: Gradients = [g if k == i else None for k, g in enumerate(ordinary)]
        check = _taken(
            target,
            name,
            how,
            dataclasses.replace(plain, wanted=i),
            functools.partial(_against, target, name, how, alone, limits),
        )
        if check is not None and check.verdict == WRONG:
            return check
        last = check or last
    return last


def _single(
    target: Target, plain: Path, ordinary: Gradients, limits: Sequence[Any]
) -> Check | None:
    """Each result used alone: together they make the ordinary gradient."""
    name, how = "single results", "summed over results used alone"
    count = len(target.centre)
    if count > ALONE:
        return None
    total: Gradients = [None] * len(ordinary)

    def add(g: Gradients) -> Check:
        for k, part in enumerate(g):
            if part is not None:
                before = total[k]
                total[k] = part if before is None else before + part
        return Check(name, PASS)

    for i in range(count):
        text = f"where only result {target.smooth[i]} is used"
        check = _taken(target, name, text, dataclasses.replace(plain, used=i), add)
        if check is None or check.verdict == WRONG:
            return check
    return _against(target, name, how, ordinary, limits, total)
