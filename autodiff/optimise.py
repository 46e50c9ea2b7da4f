"""Exact rewrites of a program of primitives before it is compiled.

Every rewrite gives the same bits, except that a transposed product is computed as the product of
the transposed operands, whose sums a BLAS may order differently.
"""

import dataclasses
import operator
from collections.abc import Callable, Mapping

import numpy as np

from autodiff.op import get
from autodiff.program import Atom, Equation, Literal, Program, Var
from autodiff.simplify import simplify, with_inputs
from autodiff.text import uniform

FOLDED = 1 << 16  # elements of a constant result that is computed when compiling
_LAYOUT = frozenset({"RESHAPE", "TRANSPOSE", "BROADCAST", "SUM_TO", "CAST", "STOP_GRADIENT"})


def optimise(program: Program) -> Program:
    """Fewer and cheaper equations for the same results; the program is simplified already."""
    while True:
        rewritten = _Pass(program).run()
        if rewritten is program:
            return program
        smaller = simplify(rewritten)
        if _same(smaller, program):
            return smaller
        program = smaller


def _same(a: Program, b: Program) -> bool:
    pairs = zip(a.equations, b.equations, strict=False)
    return len(a.equations) == len(b.equations) and all(
        x.op is y.op and x.inputs == y.inputs for x, y in pairs
    )


class _Pass:
    """One walk over the equations, rewriting each in the light of what produced its operands."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[Var, Atom] = {}
        self.producers: dict[Var, Equation] = {}
        self.uses: dict[Var, int] = {}
        for atom in (*(a for eq in program.equations for a in eq.inputs), *program.outputs):
            if isinstance(atom, Var):
                self.uses[atom] = self.uses.get(atom, 0) + 1

    def run(self) -> Program:
        """The program with every equation rewritten once."""
        kept: list[Equation] = []
        equations = self.program.equations
        for old in equations:
            inputs = tuple(map(self.read, old.inputs)) if self.names else old.inputs
            eq = old if inputs == old.inputs else with_inputs(old, inputs)
            for new in self.rewrite(eq):
                kept.append(new)
                for v in new.outputs:
                    self.producers[v] = new
        if len(kept) == len(equations) and all(map(operator.is_, kept, equations)):
            return self.program
        outputs = tuple(map(self.read, self.program.outputs))
        return dataclasses.replace(self.program, equations=tuple(kept), outputs=outputs)

    def read(self, atom: Atom) -> Atom:
        while isinstance(atom, Var) and atom in self.names:
            atom = self.names[atom]
        return atom

    def made_by(self, atom: Atom, kind: str) -> Equation | None:
        """The equation of that kind that produced a value."""
        eq = self.producers.get(atom) if isinstance(atom, Var) else None
        return eq if eq is not None and eq.op.kind == kind else None

    def rewrite(self, eq: Equation) -> list[Equation]:
        """The equations to put in its place (none where its result is a known value)."""
        if eq.op.control or eq.op.effect or len(eq.outputs) != 1:
            return [eq]
        value = self.known(eq)
        if value is not None:
            self.names[eq.outputs[0]] = value
            return []
        if eq.op.elementwise and len(eq.inputs) > 1:
            eq = self.unbroadcast(eq)
        rule = _RULES.get(eq.op.kind)
        return [eq] if rule is None else rule(self, eq)

    def known(self, eq: Equation) -> Atom | None:
        """A value known already: a constant, or the operand itself."""
        (out,) = eq.outputs
        if eq.inputs and not eq.op.body and all(isinstance(a, Literal) for a in eq.inputs):
            return _folded(eq, out)
        if eq.op.kind in _LAYOUT and eq.inputs[0].spec == out.spec:
            moved = eq.op.kind == "TRANSPOSE" and sorted(eq.params["axes"]) != list(
                eq.params["axes"]
            )
            return None if moved else eq.inputs[0]
        if eq.op.kind == "NEG":
            inner = self.made_by(eq.inputs[0], "NEG")
            return None if inner is None else inner.inputs[0]
        if eq.op.kind in _UNITS and _is_number(eq.inputs[1], _UNITS[eq.op.kind]):
            return eq.inputs[0] if eq.inputs[0].spec == out.spec else None
        if eq.op.kind == "MUL" and _is_number(eq.inputs[0], 1.0):
            return eq.inputs[1] if eq.inputs[1].spec == out.spec else None
        return None

    def unbroadcast(self, eq: Equation) -> Equation:
        """Operands before their BROADCAST, constants of equal elements as scalars.

        As long as the operands still broadcast to the result's shape.
        """
        inputs = list(eq.inputs)
        for i, atom in enumerate(inputs):
            plain = self.narrower(atom)
            if plain is None:
                continue
            shapes = [a.spec.shape for j, a in enumerate(inputs) if j != i]
            if np.broadcast_shapes(plain.spec.shape, *shapes) == eq.outputs[0].spec.shape:
                inputs[i] = plain
        changed = tuple(inputs)
        return eq if changed == eq.inputs else with_inputs(eq, changed)

    def narrower(self, atom: Atom) -> Atom | None:
        if isinstance(atom, Literal):
            full = atom.value.ndim > 0 and uniform(atom.value)
            return Literal(atom.value[(0,) * atom.value.ndim].reshape(())) if full else None
        eq = self.made_by(atom, "BROADCAST")
        return None if eq is None else eq.inputs[0]


_UNITS: Mapping[str, float] = {"MUL": 1.0, "DIV": 1.0, "SUB": 0.0}


def _is_number(atom: Atom, number: float) -> bool:
    """Whether an operand is a real constant, each element of which is that number (+0 for 0)."""
    if not isinstance(atom, Literal) or atom.spec.dtype.kind not in "fiu" or not atom.spec.size:
        return False
    if not (atom.value.ndim == 0 or uniform(atom.value)):
        return False
    first = atom.value[(0,) * atom.value.ndim]
    return bool(first == number and not np.signbit(np.float64(first)))


def _folded(eq: Equation, out: Var) -> Literal | None:
    from autodiff.interpret import evaluate_native

    values = [a.value for a in eq.inputs if isinstance(a, Literal)]
    if eq.op.kind == "BROADCAST":  # takes no memory
        return Literal(np.broadcast_to(values[0], out.spec.shape))
    if out.spec.size > FOLDED:
        return None
    return Literal(evaluate_native(eq.op, values, dict(eq.params)))


# --- rules ---------------------------------------------------------------------------------


def _transpose(walk: _Pass, eq: Equation) -> list[Equation]:
    """Transposes composed; that of a product used once becomes a product of transposes."""
    axes = eq.params["axes"]
    inner = walk.made_by(eq.inputs[0], "TRANSPOSE")
    if inner is not None:
        both = tuple(inner.params["axes"][a] for a in axes)
        if both == tuple(range(len(both))):
            walk.names[eq.outputs[0]] = inner.inputs[0]
            return []
        return [dataclasses.replace(eq, inputs=inner.inputs, params={"axes": both})]
    product = walk.made_by(eq.inputs[0], "MATMUL") or walk.made_by(eq.inputs[0], "STRONG_MATMUL")
    single = isinstance(eq.inputs[0], Var) and walk.uses.get(eq.inputs[0]) == 1
    if product is None or not single or axes != (1, 0):
        return [eq]
    if any(len(a.spec.shape) != 2 for a in product.inputs):
        return [eq]
    swapped = []
    made: list[Equation] = []
    for atom in reversed(product.inputs):
        turned = Var(atom.spec.with_shape(atom.spec.shape[::-1]))
        turn = Equation(eq.op, (atom,), {"axes": (1, 0)}, (turned,), product.source)
        rest = _transpose(walk, turn)
        made += rest
        walk.producers.update((v, e) for e in rest for v in e.outputs)
        swapped.append(walk.read(turned))
    params = dict(product.params)
    if "zeros" in params:  # the operand whose zeros win changes sides
        params["zeros"] = 1 - params["zeros"]
    turned_product = Equation(product.op, tuple(swapped), params, eq.outputs, product.source)
    return [*made, turned_product]


def _reshape(walk: _Pass, eq: Equation) -> list[Equation]:
    inner = walk.made_by(eq.inputs[0], "RESHAPE")
    return [eq] if inner is None else [with_inputs(eq, inner.inputs)]


def _add(walk: _Pass, eq: Equation) -> list[Equation]:
    """x + (-y) is x - y, bit for bit."""
    x, y = eq.inputs
    negated = walk.made_by(y, "NEG")
    if negated is not None and x.spec.dtype.kind in "fc":
        return [dataclasses.replace(eq, op=get("SUB"), inputs=(x, negated.inputs[0]))]
    return [eq]


_RULES: Mapping[str, Callable[[_Pass, Equation], list[Equation]]] = {
    "TRANSPOSE": _transpose,
    "RESHAPE": _reshape,
    "ADD": _add,
}
