"""Where a limit comes from, as the tolerance file says it."""

from collections.abc import Mapping, Sequence

from checks.gates.limits.contract import LIMITS, Limit

PROVISIONAL, FLOOR, NOISE, DRIFT, KEPT = "provisional", "floor", "noise", "drift", "kept"
ORIGIN = "From: "  # what a line of an entry's _comment about its origin begins with


def widest(parts: Mapping[str, Limit]) -> tuple[Limit, tuple[str, str]]:
    """Return the larger of each limit, and the name of what it is from; the first of equal ones."""
    decided = [max(parts, key=lambda n: getattr(parts[n], key)) for key in LIMITS]
    largest, mean = (getattr(parts[n], k) for n, k in zip(decided, LIMITS, strict=True))
    return Limit(largest, mean), (decided[0], decided[1])


def origin(decided: Sequence[str], runs: str = "", before: Sequence[str] = ()) -> str:
    """Return the line of an entry's comment that says what its limits are from.

    Arguments:
        decided: of max_abs and of mean_abs, such as "floor" or "noise".
        runs: how many runs stand behind them.
        before: the entry's comment so far: a limit that is kept is still from what it was from.
    """
    known = _origins(before)
    words = []
    for key, by in zip(LIMITS, decided, strict=True):
        old = known.get(key)
        words.append(f"{old} ({KEPT})" if by == KEPT and old else by)
    if len(set(words)) == 1:
        text = words[0]
    else:
        text = ", ".join(f"{k} {word}" for k, word in zip(LIMITS, words, strict=True))
    return f"{ORIGIN}{text}" + (f"; {runs}" if runs else "") + "."


def _origins(comment: Sequence[str]) -> dict[str, str]:
    """What max_abs and mean_abs are from, as a comment says it."""
    found = {}
    for line in (c for c in comment if c.startswith(ORIGIN)):
        text = line.removeprefix(ORIGIN).rstrip(".").partition(";")[0].replace(f" ({KEPT})", "")
        parts = text.split(", ")
        for key in LIMITS:
            own = next((p.removeprefix(f"{key} ") for p in parts if p.startswith(f"{key} ")), "")
            found[key] = own or parts[0]
    return {k: v for k, v in found.items() if v != KEPT}


def without_origin(comment: Sequence[str]) -> tuple[str, ...]:
    """Return the other lines of a comment."""
    return tuple(line for line in comment if not line.startswith(ORIGIN))
