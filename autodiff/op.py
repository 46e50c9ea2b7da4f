"""The Op record, its self-checks, the registry and the missing-rule error."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autodiff.errors import MissingRuleError, OpError, nearest
from autodiff.program import Program, Spec

Rule = Callable[..., Any]
DERIVATIVES = ("rule", "zero", "none")
KNOWN = 4096  # results of a spec rule that are kept


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """One operation: how it is evaluated, differentiated, batched and lowered.

    A *primitive* has `impl`; a *composite* has `body`, a function written in other ops from which
    every interpreter, lowering, batching rule and derivative follows.

    Signatures (arrays positional, parameters keyword-only):
      spec(*specs, **params) -> Spec or tuple of Specs
      impl(*arrays, **params) -> array or tuple       (control ops: impl(run, *arrays, **params))
      body(*values, **params) -> value or tuple
      jvp(primals, tangents, outputs, **params) -> tangent or tuple; a None tangent is zero
      transpose(cotangents, inputs, **params) -> tuple aligned with inputs; a linear operand
          arrives as `Undefined(spec)`, the entry of a known operand is None
      vjp(cotangents, primals, outputs, **params) -> tuple aligned with primals
      batch(size, args, batched, **params) -> (outputs, out_batched); batch axis leading
    Single-output ops receive and return the bare output, tangent and cotangent.
    Control ops carry sub-programs in params; their jvp returns (outputs, tangents), their vjp
    takes `wanted` (which operands need a cotangent) and, where the op has a rule
    residual(primals, **params) -> (outputs, residuals), those `residuals`.

    Attributes:
      derivative: "rule"; "zero" (derivative identically 0 where it exists: STEP, FLOOR); "none"
          (the result has no tangent space: comparisons, integers).
      outputs: number of outputs (0: it depends on params).
      template: Python source of one call with `{0}`, `{1}` for operands and `{name}` for params;
          by default the name of `impl` called with operands and params.
      jax: dotted name (`"jnp.exp"`, `"lax.erf"`) called as impl is, or a function
          f(*arrays, **params) from `autodiff.lower.jax_rules`, named by string `"rules:name"`.
      elementwise: out[i] depends on operand[i] alone (after broadcasting).
      product: a dot-like op whose `algorithm` parameter is subject to dot modes.
    """

    kind: str
    spec: Rule
    impl: Rule | None = None
    body: Rule | None = None
    jvp: Rule | None = None
    vjp: Rule | None = None
    transpose: Rule | None = None
    batch: Rule | None = None
    residual: Rule | None = None
    derivative: str = "rule"
    outputs: int = 1
    template: str | None = None
    jax: str | None = None
    exact: str | None = None
    elementwise: bool = False
    product: bool = False
    control: bool = False
    effect: bool = False
    doc: str = ""
    multiple: bool = dataclasses.field(init=False, default=False)
    _known: dict[Any, tuple[Spec, ...]] = dataclasses.field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiple", self.outputs != 1)
        if self.kind != self.kind.upper() or not self.kind.isidentifier():
            raise OpError(f"op kind {self.kind!r} is not an upper-case name")
        if (self.impl is None) == (self.body is None):
            raise OpError(f"op {self.kind} needs either impl (primitive) or body (composite)")
        if self.derivative not in DERIVATIVES:
            raise OpError(f"op {self.kind}: derivative {self.derivative!r} not in {DERIVATIVES}")
        if self.derivative != "rule" and (self.jvp or self.vjp):
            raise OpError(f"op {self.kind}: derivative is {self.derivative!r} but a rule is given")
        if self.vjp is not None and self.jvp is None and self.impl is not None:
            raise OpError(f"op {self.kind} has a vjp but no jvp")
        if self.batch is None and self.impl is not None:
            raise OpError(f"primitive {self.kind} has no batching rule")
        if self.impl is not None and self.jax is None and not self.control:
            raise OpError(f"primitive {self.kind} has no jax lowering")
        _check_params(self)

    def known_specs(
        self, specs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> tuple[Spec, ...] | None:
        """Specs of the outputs where the rule has said them; None where it has to be asked, or a
        parameter has no hash.
        """
        if self.control:
            return None
        try:
            return self._known.get(_spec_key(specs, params) if params else specs)
        except TypeError:
            return None

    def out_specs(self, specs: tuple[Spec, ...], params: Mapping[str, Any]) -> tuple[Spec, ...]:
        """Specs of the outputs for operand specs and params; what the rule said is kept."""
        if self.control:
            return self._ruled(specs, params)
        key = _spec_key(specs, params) if params else specs
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = self._known[key] = self._ruled(specs, params)
            return found
        except TypeError:  # a parameter without a hash
            return self._ruled(specs, params)

    def _ruled(self, specs: tuple[Spec, ...], params: Mapping[str, Any]) -> tuple[Spec, ...]:
        result = self.spec(*specs, **params)
        return (result,) if isinstance(result, Spec) else tuple(result)

    def __repr__(self) -> str:
        return f"Op({self.kind})"


def _spec_key(specs: tuple[Spec, ...], params: Mapping[str, Any]) -> Any:
    # 1, 1.0 and True are equal: their types keep them apart
    return (specs, *params.items(), *map(type, params.values()))


def _keyword_names(rule: Rule) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _check_params(op: Op) -> None:
    expected = _keyword_names(op.spec)
    if expected is None:
        return
    for name in ("body", "jvp", "vjp", "transpose", "batch"):
        rule = getattr(op, name)
        found = None if rule is None else _keyword_names(rule)
        if found is not None and op.control:
            found -= {"wanted", "strong", "residuals"}
        if found is not None and found != expected:
            raise OpError(
                f"op {op.kind}: parameters of {name} are {sorted(found)}",
                f"the spec rule has {sorted(expected)}",
            )


def check_names(op: Op, params: Mapping[str, Any]) -> None:
    """Raise OpError where an op was given parameters that it does not have, or not all it has."""
    expected = _keyword_names(op.spec)
    if expected is None or expected == set(params):
        return
    strange = sorted(set(params) - expected)
    what = f"has no parameter {strange[0]!r}" if strange else "was not given all its parameters"
    hint = nearest(strange[0], expected) if strange else ""
    takes = ", ".join(sorted(expected)) or "none"
    raise OpError(
        f"op {op.kind} {what}",
        f"in op {op.kind}, given {', '.join(params) or 'none'}; it takes {takes}",
        hint or f"use the public function of {op.kind} in autodiff.ops, which has defaults",
    )


OPS: dict[str, Op] = {}


def define(op: Op) -> Op:
    """Add an op to the registry; a kind may be defined once."""
    if op.kind in OPS:
        places = " and ".join(o.spec.__module__ for o in (OPS[op.kind], op))
        raise OpError(f"op {op.kind} is defined twice", f"in {places}", "rename or remove one")
    OPS[op.kind] = op
    return op


def get(kind: str) -> Op:
    """The op of that kind; an unknown one suggests the nearest."""
    try:
        return OPS[kind]
    except KeyError:
        hint = nearest(kind.upper(), OPS) or "autodiff.op.OPS lists all"
        raise OpError(f"unknown op {kind!r}", "in autodiff's registry of ops", hint) from None


def missing_rule(op: Op, rule: str, source: str | None = None) -> MissingRuleError:
    """The error for an op that lacks the rule a transform needs."""
    return MissingRuleError(
        f"op {op.kind} has no {rule} rule",
        f"at {source}" if source else f"in op {op.kind}",
        f"give the Op record of {op.kind} a `{rule}`, or write the function in other ops",
        kind=op.kind,
        rule=rule,
    )


@functools.lru_cache(maxsize=4096)
def _body_program(op: Op, specs: tuple[Spec, ...], params: tuple[tuple[str, Any], ...]) -> Program:
    from autodiff.trace import program_of, unsourced

    assert op.body is not None
    with unsourced():
        return program_of(functools.partial(op.body, **dict(params)), specs, name=op.kind.lower())


def body_program(op: Op, specs: tuple[Spec, ...], params: Mapping[str, Any]) -> Program:
    """The traced body of a composite at the given operand specs (cached)."""
    return _body_program(op, specs, tuple(sorted(params.items())))
