"""Which result depends on which entry: the structure of a traced program, coloured by columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

import autodiff as ad
from autodiff.errors import AutodiffError
from autodiff.program import Equation, Literal, Program, Var
from checks.gradients.target import Target

Array = np.ndarray[Any, Any]
Pattern = Any  # a sparse bool matrix (entries of a variable, entries of all points)
MOVING = frozenset(
    "BROADCAST CONCAT DIAGONAL DIAGONAL_MATRIX DYNAMIC_SLICE GATHER PAD RESHAPE REVERSE SLICE "
    "SPLIT TRANSPOSE TRIANGLE WINDOWS".split()
)
SUMMING = frozenset(("SUM", "WIDE_SUM", "MAX", "MIN", "PROD"))
MOST = 4_000_000


def colours_of(target: Target) -> list[Array] | None:
    """Groups of columns that no result shares; None where there is no structure to use."""
    if target.framework.name != "numpy" or target.manual.given:
        return None
    try:
        program = ad.inline(ad.trace(lambda *points: target.flat(points), *target.points))
    except AutodiffError:
        return None
    pattern = pattern_of(program)
    if pattern is None:
        return None
    groups = colour(pattern)
    return groups if len(groups) < pattern.shape[1] else None


def pattern_of(program: Program) -> Pattern | None:
    """The structure of all results together; None where an operation mixes everything."""
    sizes = [v.spec.size for v in program.inputs]
    total, known, start = sum(sizes), {}, 0
    for v, size in zip(program.inputs, sizes, strict=True):
        rows = np.arange(size)
        known[v] = _matrix(rows, start + rows, (size, total))
        start += size
    for eq in program.equations:
        found = _equation(eq, known, total)
        if found is None:
            return None
        known.update(zip(eq.outputs, found, strict=True))
    parts = [_of(a, known, total) for a in program.outputs]
    whole = sparse.vstack(parts, format="csr") if parts else None
    return whole if whole is not None and whole.nnz <= MOST else None


def _matrix(rows: Array, columns: Array, shape: tuple[int, int]) -> Pattern:
    return sparse.csr_matrix((np.ones(len(rows), bool), (rows, columns)), shape=shape)


def _of(atom: Any, known: dict[Var, Pattern], total: int) -> Pattern:
    if isinstance(atom, Literal) or atom not in known:
        return sparse.csr_matrix((atom.spec.size, total), dtype=bool)
    return known[atom]


def _equation(eq: Equation, known: dict[Var, Pattern], total: int) -> list[Pattern] | None:
    """Patterns of an equation's outputs; None where every output depends on every entry."""
    operands = [_of(a, known, total) for a in eq.inputs]
    if eq.op.derivative != "rule" or not any(p.nnz for p in operands):
        return [sparse.csr_matrix((v.spec.size, total), dtype=bool) for v in eq.outputs]
    if eq.op.elementwise:
        return [_elementwise(eq, operands)] * len(eq.outputs)
    if eq.op.kind in MOVING:
        return _moved(eq, operands)
    if eq.op.kind in SUMMING and len(operands) == 1:
        return _summed(eq, operands[0])
    return None


def _elementwise(eq: Equation, operands: Sequence[Pattern]) -> Pattern:
    shape = eq.outputs[0].spec.shape
    total = sum(
        p[np.broadcast_to(np.arange(a.spec.size).reshape(a.spec.shape), shape).ravel()]
        for a, p in zip(eq.inputs, operands, strict=True)
    )
    return sparse.csr_matrix(total, dtype=bool)


def _moved(eq: Equation, operands: Sequence[Pattern]) -> list[Pattern] | None:
    """An operation that moves entries: run on their numbers (1 and up; 0 is what it adds)."""
    numbers, start = [], 1
    for a in eq.inputs:
        if a.spec.dtype.kind not in "fc":
            if not isinstance(a, Literal):
                return None  # moved by values that only the run knows
            numbers.append(a.value)
            continue
        numbers.append(np.arange(start, start + a.spec.size, dtype=float).reshape(a.spec.shape))
        start += a.spec.size
    stacked = sparse.vstack(
        [sparse.csr_matrix((1, operands[0].shape[1]), dtype=bool)]
        + [p for a, p in zip(eq.inputs, operands, strict=True) if a.spec.dtype.kind in "fc"],
        format="csr",
    )
    assert eq.op.impl is not None
    outs = eq.op.impl(*numbers, **eq.params)
    outs = outs if eq.op.multiple else (outs,)
    return [stacked[np.asarray(o).ravel().astype(int)] for o in outs]


def _summed(eq: Equation, operand: Pattern) -> list[Pattern] | None:
    """A reduction: each result depends on what it reduced, found on numbers kept by an axis."""
    source, out = eq.inputs[0].spec, eq.outputs[0].spec
    axes = eq.params.get("axis", eq.params.get("axes"))
    axes = tuple(range(len(source.shape))) if axes is None else axes
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    kept = [
        1 if i in {a % len(source.shape) for a in axes} else n for i, n in enumerate(source.shape)
    ]
    if int(np.prod(kept)) != out.size:
        return None
    rows = np.broadcast_to(np.arange(out.size).reshape(kept), source.shape).ravel()
    choose = _matrix(rows, np.arange(source.size), (out.size, source.size))
    return [sparse.csr_matrix(choose.astype(int) @ operand.astype(int), dtype=bool)]


def colour(pattern: Pattern) -> list[Array]:
    """Greedy groups of columns without a common row, widest columns first."""
    columns = pattern.tocsc()
    taken: list[Array] = []
    groups: list[list[int]] = []
    for j in np.argsort(-np.diff(columns.indptr), kind="stable"):
        rows = columns.indices[columns.indptr[j] : columns.indptr[j + 1]]
        for used, group in zip(taken, groups, strict=True):
            if not used[rows].any():
                used[rows] = True
                group.append(int(j))
                break
        else:
            used = np.zeros(pattern.shape[0], bool)
            used[rows] = True
            taken.append(used)
            groups.append([int(j)])
        if len(groups) > len(columns.indptr) // 2:
            return [np.array([j]) for j in range(pattern.shape[1])]
    return [np.array(g) for g in groups]
