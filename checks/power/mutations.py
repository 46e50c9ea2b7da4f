"""The table of mutations: which rules each applies to, where, and the wrong rule it makes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.forward import is_inexact
from autodiff.op import Op
from autodiff.trace import bind, program_of, spec_of
from checks.power import edits
from checks.power.rules import Call, Rule, flatten, is_own, results_of, with_results

DERIVATIVES = ("jvp", "transpose", "vjp")
SLIGHTLY = 1.001
SITES_OWN, SITES_DERIVED = 4, 2

Places = Callable[[Op, str, Sequence[Call]], list[str]]
Wrong = Callable[[Op, str, Rule, str], Rule]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One way of being wrong.

    Attributes:
      name: as the report shows it.
      rules: the rules it applies to.
      places(op, rule name, calls): where in this rule; none where it does not apply.
      wrong(op, rule name, rule, place): the wrong rule.
    """

    name: str
    rules: tuple[str, ...]
    places: Places
    wrong: Wrong


# --- the whole rule ------------------------------------------------------------------------


def _whole(change: Callable[[Any], Any]) -> Wrong:
    """Every tangent or cotangent changed alike."""

    def wrong(op: Op, name: str, rule: Rule, place: str) -> Rule:
        del place

        def mutant(*args: Any, **params: Any) -> Any:
            result = rule(*args, **params)
            old = results_of(op, name, result)
            return with_results(op, name, result, [_changed(v, change) for v in old])

        return mutant

    return wrong


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    inexact = value is not None and is_inexact(spec_of(value).dtype)
    return change(value) if inexact else value


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda t: bind("MUL", t, np.asarray(factor, spec_of(t).dtype))


def _negated(value: Any) -> Any:
    return bind("NEG", value)


def _everywhere(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
    del op, name
    return ["all"] if calls else []


# --- operands ------------------------------------------------------------------------------


def _operands(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
    """Operands whose term a rule computes, where there are at least two."""
    found: set[int] = set()
    for call in calls:
        terms = call.args[1] if name == "jvp" else call.right
        found.update(i for i, t in enumerate(terms) if t is not None)
    chosen = sorted(found)
    limit = SITES_OWN if is_own(op, name) else SITES_DERIVED
    return [f"operand {i}" for i in _spread(chosen, limit)] if len(chosen) > 1 else []


def _index(place: str) -> int:
    return int(place.split()[-1])


def _without_operand(op: Op, name: str, rule: Rule, place: str) -> Rule:
    """The term of one operand is not there."""
    lost = _index(place)

    def mutant(*args: Any, **params: Any) -> Any:
        if name == "jvp":
            tangents = tuple(_nothing(t) if i == lost else t for i, t in enumerate(args[1]))
            return rule(args[0], tangents, *args[2:], **params)
        result = rule(*args, **params)
        kept = [_nothing(v) if i == lost else v for i, v in enumerate(results_of(op, name, result))]
        return with_results(op, name, result, kept)

    return mutant


def _nothing(value: Any) -> Any:
    return None if value is None else np.zeros(spec_of(value).shape, spec_of(value).dtype)


def _pairs(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
    """Neighbouring operands of one spec, both differentiated."""
    found: set[int] = set()
    for call in calls:
        terms = call.args[1] if name == "jvp" else call.right
        for i in range(len(terms) - 1):
            if terms[i] is not None and terms[i + 1] is not None:
                if spec_of(terms[i]) == spec_of(terms[i + 1]):
                    found.add(i)
    limit = SITES_OWN if is_own(op, name) else SITES_DERIVED
    return [f"operands {i} and {i + 1}" for i in _spread(sorted(found), limit)]


def _exchanged(op: Op, name: str, rule: Rule, place: str) -> Rule:
    """The terms of two operands stand for one another."""
    second = _index(place)

    def exchange(terms: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
        pair = slice(second - 1, second + 1)
        present = [o for o in operands[pair] if o is not None]
        if len({spec_of(o) for o in present}) > 1 or len(terms) <= second:
            return tuple(terms)
        return (*terms[: second - 1], *terms[pair][::-1], *terms[second + 1 :])

    def mutant(*args: Any, **params: Any) -> Any:
        if name == "jvp":
            return rule(args[0], exchange(args[1], args[0]), *args[2:], **params)
        result = rule(*args, **params)
        old = results_of(op, name, result)
        return with_results(op, name, result, exchange(old, old))

    return mutant


# --- equations of the rule -----------------------------------------------------------------


def _spread(found: Sequence[Any], limit: int) -> list[Any]:
    """At most `limit` of a list, evenly spread."""
    if len(found) <= limit:
        return list(found)
    return [found[round(i * (len(found) - 1) / (limit - 1))] for i in range(limit)]


class _Traced:
    """A rule traced call by call, each program kept with the sites of one kind of slip."""

    def __init__(self, op: Op, name: str, rule: Rule, finder: edits.Finder) -> None:
        self.op, self.name, self.rule, self.finder = op, name, rule, finder
        self.programs: dict[Any, tuple[Any, list[edits.Site], Any]] = {}

    def sites(self, args: Any, params: dict[str, Any]) -> tuple[Any, list[edits.Site], Any, Any]:
        """The program of a call, its sites, its result's form, and the call's values."""
        flat = flatten(self.name, self.rule, args, params)
        if flat.key not in self.programs:
            form: list[Any] = []

            def apply(*values: Any) -> list[Any]:
                result = flat.apply(values)
                form[:] = [result]
                return [v for v in results_of(self.op, self.name, result) if v is not None]

            specs = [spec_of(v) for v in flat.values]
            program = program_of(apply, specs, f"{self.name}_{self.op.kind.lower()}")
            found = list(self.finder(program, flat.known))
            self.programs[flat.key] = program, found, form[0]
        return *self.programs[flat.key], flat.values


def _sites(finder: edits.Finder) -> Places:
    """The places of a slip: the most that any call's program has, evenly spread."""

    def places(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
        from checks.power.rules import rule_of

        rule = rule_of(op, name)
        if op.control or rule is None:
            return []
        traced = _Traced(op, name, rule, finder)
        most = max((len(traced.sites(c.args, c.params)[1]) for c in calls), default=0)
        limit = SITES_OWN if is_own(op, name) else SITES_DERIVED
        return [f"site {i}" for i in _spread(range(most), limit)]

    return places


def _slipped(finder: edits.Finder) -> Wrong:
    def wrong(op: Op, name: str, rule: Rule, place: str) -> Rule:
        traced, number = _Traced(op, name, rule, finder), _index(place)

        def mutant(*args: Any, **params: Any) -> Any:
            program, found, form, values = traced.sites(args, params)
            if number >= len(found):
                return rule(*args, **params)
            outs = iter(edits.run_slipped(program, values, found[number]))
            old = results_of(op, name, form)
            return with_results(op, name, form, [None if v is None else next(outs) for v in old])

        return mutant

    return wrong


def _slip(name: str, finder: edits.Finder, rules: tuple[str, ...] = DERIVATIVES) -> Mutation:
    return Mutation(name, rules, _sites(finder), _slipped(finder))


# --- batching ------------------------------------------------------------------------------


def _batched_operands(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
    found = {i for c in calls for i, b in enumerate(c.args[2]) if b}
    limit = SITES_OWN if is_own(op, name) else SITES_DERIVED
    return [f"operand {i}" for i in _spread(sorted(found), limit)]


def _first_row(op: Op, name: str, rule: Rule, place: str) -> Rule:
    """One operand's batch axis is forgotten: its first row serves all."""
    del op, name
    stale = _index(place)

    def mutant(size: int, args: Any, batched: Any, **params: Any) -> Any:
        shared = [
            np.broadcast_to(a[:1], np.shape(a)) if i == stale and batched[i] and size else a
            for i, a in enumerate(args)
        ]
        return rule(size, tuple(shared), batched, **params)

    return mutant


def _axis_last(op: Op, name: str, rule: Rule, place: str) -> Rule:
    """The batch axis of the result is the last one, and said to be the first."""
    del place

    def mutant(*args: Any, **params: Any) -> Any:
        result = rule(*args, **params)
        flags = result[1] if op.multiple else (result[1],)
        moved = [
            np.moveaxis(v, 0, -1) if flag else v
            for v, flag in zip(results_of(op, name, result), flags, strict=True)
        ]
        return with_results(op, name, result, moved)

    return mutant


def _ranked(op: Op, name: str, calls: Sequence[Call]) -> list[str]:
    del op, name
    return ["result"] if any(np.ndim(r) > 1 for c in calls for r in c.right) else []


def _next_row(op: Op, name: str, rule: Rule, place: str) -> Rule:
    """Each row holds the result of the next one."""
    del place

    def mutant(size: int, args: Any, batched: Any, **params: Any) -> Any:
        result = rule(size, args, batched, **params)
        flags = result[1] if op.multiple else (result[1],)
        rows = [
            np.concatenate([v[1:], v[:1]]) if flag and size else v
            for v, flag in zip(results_of(op, name, result), flags, strict=True)
        ]
        return with_results(op, name, result, rows)

    return mutant


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("scaled by 2", DERIVATIVES, _everywhere, _whole(_scaled(2.0))),
    Mutation("scaled by 1.001", DERIVATIVES, _everywhere, _whole(_scaled(SLIGHTLY))),
    Mutation("sign", DERIVATIVES, _everywhere, _whole(_negated)),
    Mutation("dropped argument", DERIVATIVES, _operands, _without_operand),
    _slip("dropped term", edits.dropped_summands, ("jvp",)),
    Mutation("swapped arguments", DERIVATIVES, _pairs, _exchanged),
    _slip("swapped operands", edits.exchanged_operands),
    _slip("lost accumulation", edits.dropped_summands, ("transpose", "vjp")),
    _slip("lost use", edits.lost_uses),
    _slip("missing sum", edits.lost_sums, ("transpose", "vjp")),
    _slip("missing transpose", edits.missing_transposes, (*DERIVATIVES, "batch")),
    _slip("wrong axis", edits.wrong_axes, (*DERIVATIVES, "batch")),
    _slip("identity for a permutation", edits.identity_permutations, (*DERIVATIVES, "batch")),
    _slip("wrong constant", edits.wrong_constants),
    Mutation("stale batch axis: one row", ("batch",), _batched_operands, _first_row),
    Mutation("stale batch axis: last", ("batch",), _ranked, _axis_last),
    Mutation("stale batch axis: next row", ("batch",), _everywhere, _next_row),
)


def mutation(name: str) -> Mutation:
    """The mutation of that name; an unknown one suggests the nearest."""
    from autodiff.errors import OpError, nearest

    known = {m.name: m for m in MUTATIONS}
    if name not in known:
        hint = nearest(name, known) or f"there are {', '.join(known)}"
        raise OpError(f"unknown mutation {name!r}", "in checks.power.mutations", hint)
    return known[name]
