"""A gated unit, activation(gate) x up, told by both of its factors: other tensors of the dump."""

import itertools
from collections.abc import Iterator
from typing import Any

from checks.gates.causes.case import Case, rms
from checks.gates.causes.forms import FORMS, OTHERS
from checks.gates.comparison.record import Cause
from checks.tolerances import constant

_NEAREST = 8
_MOST = 1 << 16  # entries that are looked at


def gated(case: Case, others: Iterator[tuple[str, Any]]) -> Cause | None:
    """Return whether gate and up are exchanged, or the gate has another activation.

    The reference must be activation(gate) x up of two of its other tensors (Shazeer, 2020,
    arXiv:2002.05202, equation 6); the candidate is then computed from the same two.
    """
    if not case.whole or case.r.shape != case.c.shape:
        return None
    flat = [v.reshape(-1)[:_MOST] for v in (case.r, case.c)]
    small = Case(flat[0], flat[1], case.limit)
    noise = constant("gate_undone_better") * rms(small.c - small.r)
    near = [(n, x.reshape(-1)[:_MOST]) for n, x in itertools.islice(others, _NEAREST)]
    for (gate, a), (up, b) in itertools.permutations(near, 2):
        for name, form in FORMS.items():
            if not 0 < noise or not rms(form(a) * b - small.r) <= noise:
                continue
            what = f"where the reference is {name} of {gate}, times {up}"
            text = f"gate and up are exchanged: {name} of {up}, times {gate}, {what}"
            if found := small.cause("gate and up", text, small.c, form(b) * a):
                return found
            for other, applied in OTHERS.items():
                text = f"the candidate is {other} of {gate}, times {up}, {what}"
                if other != name and (
                    found := small.cause("activation", text, small.c, applied(a) * b)
                ):
                    return found
    return None
