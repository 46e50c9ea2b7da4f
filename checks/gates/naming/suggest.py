"""names.toml proposed for two sides: rules for a person to read, change and accept.

A rule is proposed only for a pair of which each is clearly the other's best fit; what fits two
alike is listed in a comment. Names that follow one pattern become one rule.
"""

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from checks.gates.formats.readers import Side
from checks.gates.naming.fits import GRADES, Fit, Known, fits, known
from checks.report.wording import plural

_DIGITS = re.compile(r"\d+")
_SHOWN, _LISTED = 3, 8


@dataclass(frozen=True, slots=True)
class Proposed:
    r"""One rule of [[candidate]].

    Arguments:
        match: a regular expression.
        name: the reference's name; \1 is the first group.
        transpose: the order of the axes; () as they are.
        pairs: what it is taken from.
    """

    match: str
    name: str
    transpose: tuple[int, ...]
    pairs: tuple[Fit, ...]

    def renames(self, name: str) -> str | None:
        """Return the name that a candidate's tensor gets; None where it does not match."""
        found = re.fullmatch(self.match, name)
        return found.expand(self.name) if found else None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What the names of two sides have in common, and rules for the rest.

    Arguments:
        both: names on both sides.
        left, right: names of the reference alone and of the candidate alone, with dtype and shape.
        unlike: names on both sides with another dtype or shape, with both.
        rules: proposed for [[candidate]].
        ambiguous: by name of the reference, fits of which none is clearly the best.
    """

    both: tuple[str, ...]
    left: dict[str, str]
    right: dict[str, str]
    unlike: dict[str, str]
    rules: tuple[Proposed, ...] = ()
    ambiguous: dict[str, tuple[Fit, ...]] | None = None


def matching(reference: Side, candidate: Side) -> Suggestion:
    """Return which names match and which do not; nothing is read."""
    ours, theirs = _names(reference), _names(candidate)
    both = tuple(n for n in ours if n in theirs)
    left = {n: label for n, label in ours.items() if n not in theirs}
    right = {n: label for n, label in theirs.items() if n not in ours}
    unlike = {n: f"{ours[n]} and {theirs[n]}" for n in both if ours[n] != theirs[n]}
    return Suggestion(both, left, right, unlike)


def suggest(reference: Side, candidate: Side) -> Suggestion:
    """Propose rules for the names that do not match, by shape, dtype, order and values."""
    base = matching(reference, candidate)
    left, right = known(reference, list(base.left)), known(candidate, list(base.right))
    pairs, ambiguous = _paired(fits(left, right), left)
    if reference.ordered and candidate.ordered:
        pairs = _ordered(pairs, list(base.right))
    shapes = {k.name: k for k in left}, {k.name: k for k in right}
    rules = [*_moved(reference, candidate, base), *_rules(pairs, base, shapes)]
    told = {f.candidate for r in rules for f in r.pairs}
    made = {new for n in base.right if n not in told and (new := _first(rules, n))}
    kept = {n: f for n, f in ambiguous.items() if n not in made}
    return replace(base, rules=tuple(rules), ambiguous=kept)


def _moved(reference: Side, candidate: Side, base: Suggestion) -> list[Proposed]:
    """Rules for tensors of one name whose axes stand in another order."""
    every = [f for n in base.unlike for f in fits(known(reference, [n]), known(candidate, [n]))]
    return [_single(f) for f in every if f.transpose]


def _names(side: Side) -> dict[str, str]:
    found: dict[str, str] = {}
    for stored in side.tensors.values():
        t = stored.tensor
        found.setdefault(t.name, f"{t.dtype} {list(t.shape)}")
    return found


def _paired(
    every: Sequence[Fit], left: Sequence[Known]
) -> tuple[list[Fit], dict[str, tuple[Fit, ...]]]:
    """Fits that are the best of both their tensors; each settled pair may settle another."""
    order = {k.name: n for n, k in enumerate(left)}
    rest, pairs = sorted(every, key=lambda f: f.rank), list[Fit]()
    while True:
        by_name: dict[tuple[str, str], list[Fit]] = {}
        for fit in rest:
            by_name.setdefault(("reference", fit.reference), []).append(fit)
            by_name.setdefault(("candidate", fit.candidate), []).append(fit)
        settled = [f for f in rest if _best(f, by_name)]
        if not settled:
            break
        pairs += settled
        names = {f.reference for f in settled}, {f.candidate for f in settled}
        rest = [f for f in rest if f.reference not in names[0] and f.candidate not in names[1]]
    several: dict[str, tuple[Fit, ...]] = {
        n: tuple(by_name["reference", n]) for n in order if ("reference", n) in by_name
    }
    return sorted(pairs, key=lambda f: order[f.reference]), several


def _best(fit: Fit, by_name: dict[tuple[str, str], list[Fit]]) -> bool:
    """Whether it is the first of both its tensors' fits, and clearly before the next ones."""
    for key in (("reference", fit.reference), ("candidate", fit.candidate)):
        first, *others = by_name[key][:2]
        if first is not fit or not all(fit.clearly_before(f) for f in others):
            return False
    return True


def _ordered(pairs: Sequence[Fit], right: list[str]) -> list[Fit]:
    """The pairs, with a word on whether both sides run through them in one order."""
    places = [right.index(f.candidate) for f in pairs]
    kept = _rising(places)
    words = [", in order" if n in kept else ", out of order" for n in range(len(places))]
    return [replace(f, grounds=f.grounds + w) for f, w in zip(pairs, words, strict=True)]


def _rising(places: Sequence[int]) -> set[int]:
    """Where a longest rising run through the places goes."""
    tails, before = list[int](), list[int]()
    for n, place in enumerate(places):
        at = bisect.bisect_left([places[t] for t in tails], place)
        before.append(tails[at - 1] if at else -1)
        tails[at : at + 1] = [n]
    kept, n = set[int](), tails[-1] if tails else -1
    while n >= 0:
        kept.add(n)
        n = before[n]
    return kept


def _rules(
    pairs: Sequence[Fit], base: Suggestion, shapes: tuple[dict[str, Known], dict[str, Known]]
) -> list[Proposed]:
    """Patterns where a family of names follows one, single names elsewhere; no rule contradicts
    another one, or the names that match already.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], list[Fit]] = {}
    for fit in pairs:
        key = (_blank(fit.candidate), _blank(fit.reference), fit.transpose)
        groups.setdefault(key, []).append(fit)
    single = [_single(f) for group in groups.values() if len(group) == 1 for f in group]
    patterns = []
    for group in groups.values():
        if len(group) > 1:
            pattern = _pattern(group)
            if pattern is None:
                single += [_single(f) for f in group]
            else:
                patterns.append(pattern)
    while wrong := _contradicting([*single, *patterns], base, shapes):
        patterns.remove(wrong)
        single += [_single(f) for f in wrong.pairs]
    names = list(base.left)
    return sorted(
        [*single, *patterns],
        key=lambda r: (len(r.pairs) > 1, names.index(r.pairs[0].reference)),
    )


def _blank(name: str) -> str:
    return _DIGITS.sub("#", name)


def _single(fit: Fit) -> Proposed:
    return Proposed(re.escape(fit.candidate), fit.reference, fit.transpose, (fit,))


def _pattern(group: Sequence[Fit]) -> Proposed | None:
    """One rule for names that differ in their numbers; None where no number gives another."""
    numbers = [(_DIGITS.findall(f.candidate), _DIGITS.findall(f.reference)) for f in group]
    moving = [n for n in range(len(numbers[0][0])) if len({c[n] for c, _ in numbers}) > 1]
    name = group[0].reference
    parts = _DIGITS.split(name)
    text = parts[0]
    for n, part in enumerate(parts[1:]):
        if len({r[n] for _, r in numbers}) == 1:
            text += numbers[0][1][n] + part
            continue
        source = [m for m in moving if all(c[m] == r[n] for c, r in numbers)]
        if not source:
            return None
        text += rf"\{moving.index(source[0]) + 1}{part}"
    pieces = _DIGITS.split(group[0].candidate)
    match = re.escape(pieces[0])
    for n, piece in enumerate(pieces[1:]):
        match += (r"(\d+)" if n in moving else numbers[0][0][n]) + re.escape(piece)
    return Proposed(match, text, group[0].transpose, tuple(group))


def _contradicting(
    rules: Sequence[Proposed],
    base: Suggestion,
    shapes: tuple[dict[str, Known], dict[str, Known]],
) -> Proposed | None:
    """The first pattern that renames a tensor to what it is not."""
    right = {f.candidate: f.reference for r in rules for f in r.pairs}
    taken = {n: n for n in base.both} | {v: k for k, v in right.items()}
    for name in (*base.both, *base.right):
        rule = next((r for r in rules if r.renames(name) is not None), None)
        if rule is None or len(rule.pairs) == 1:
            continue
        new = rule.renames(name)
        assert new is not None
        if name in right:
            wrong = new != right[name]
        else:
            owner = taken.get(new, name)
            wrong = name in base.both or owner != name or not _shaped(rule, name, new, shapes)
            taken[new] = name
        if wrong:
            return rule
    return None


def _shaped(
    rule: Proposed, name: str, new: str, shapes: tuple[dict[str, Known], dict[str, Known]]
) -> bool:
    """Whether a tensor that no pair speaks of fits the name that a pattern gives it."""
    if new not in shapes[0]:
        return True
    r, c = (s[n].stored.tensor.shape for s, n in zip(shapes, (new, name), strict=True))
    order = rule.transpose or tuple(range(len(c)))
    return len(order) == len(c) and tuple(c[n] for n in order) == r


def _first(rules: Sequence[Proposed], name: str) -> str | None:
    return next((new for r in rules if (new := r.renames(name)) is not None), None)


def to_toml(found: Suggestion, reference: str, candidate: str) -> str:
    """Return a names.toml that `read_names` accepts, a comment before each rule."""
    return "\n".join(_lines(found, reference, candidate)) + "\n"


def _lines(found: Suggestion, reference: str, candidate: str) -> Iterator[str]:
    yield f"# Proposed for {candidate}, under the names of {reference}."
    yield "# Read every rule, and remove what is wrong: nothing applies them until you do."
    for rule in found.rules:
        yield ""
        yield from _rule(rule)
    told = {f.candidate for r in found.rules for f in r.pairs}
    done = {f.reference for r in found.rules for f in r.pairs}
    for name, several in (found.ambiguous or {}).items():
        yield ""
        yield f"# open: {name} may be one of"
        yield from (f"#   {f.candidate}: {f.grounds}" for f in several[:_LISTED])
        if len(several) > _LISTED:
            yield f"#   and {len(several) - _LISTED} more"
    spoken = done | set(found.ambiguous or {})
    renamed = {_first(found.rules, n) for n in found.right}
    for which, names, known_ in (
        ("reference", found.left, spoken | renamed),
        ("candidate", found.right,
         told | {f.candidate for v in (found.ambiguous or {}).values() for f in v}
         | {n for n in found.right if _first(found.rules, n)}),
    ):  # fmt: skip
        lone = [n for n in names if n not in known_]
        if lone:
            yield ""
            yield f"# nothing fits, on the {which}:"
            yield from (f"#   {n}  {names[n]}" for n in lone)


def _rule(rule: Proposed) -> Iterator[str]:
    worst = max(rule.pairs, key=lambda f: f.rank)
    if len(rule.pairs) == 1:
        yield f"# {worst.grade}: {worst.grounds}"
    else:
        grades = [(g, sum(f.grade == g for f in rule.pairs)) for g in GRADES]
        counts = ", ".join(f"{n} {g}" for g, n in grades if n)
        yield f"# {worst.grade}: {plural(len(rule.pairs), 'pair')} ({counts})"
        yield f"#   the worst, {worst.candidate}: {worst.grounds}"
        shown = [f"{f.candidate} = {f.reference}" for f in rule.pairs[:_SHOWN]]
        yield f"#   {', '.join(shown)}{', ...' if len(rule.pairs) > _SHOWN else ''}"
    if rule.transpose:
        yield "#   the axes stand in another order"
    yield "[[candidate]]"
    yield f"match = {_literal(rule.match)}"
    yield f"name = {_literal(rule.name)}"
    if rule.transpose:
        yield f"transpose = {list(rule.transpose)}"


def _literal(text: str) -> str:
    """A TOML string: literal, unless a quote stands in it."""
    if "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
