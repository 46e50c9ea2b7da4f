"""A gradient that is wrong at kinks and ties alone."""

import numpy as np

from checks.gradients.diagnosis.causes import Fault
from checks.gradients.diagnosis.pattern import Region, ties, words
from checks.gradients.diagnosis.trial import Trial, bends
from checks.gradients.report import Worst


def at_kinks(trial: Trial, worst: Worst | None) -> tuple[int, Fault, str] | None:
    """The point, the fault and the entries in words; None where the worst entry is at no kink."""
    for k, mask in trial.held.items():
        path, x = trial.target.point_paths[k], trial.target.points[k]
        if worst is None or worst.argument != path or k in trial.bent:
            continue
        if worst.left is None and worst.right is None:
            continue
        tied = ties(x)
        if tied[worst.index]:
            fault = Fault("ties", _at_ties(trial, k, worst), None, Region("ties", mask))
            count, lie = int(np.count_nonzero(tied)), "those that equal another"
        else:
            text = f"is off where {path} = 0 only, at a kink"
            fault = Fault("kink", text, None, Region("x = 0", mask))
            count, lie = int(np.count_nonzero(x == 0)), f"where {path} = 0"
        pattern = words(count, x.size, lie, path)
        return k, fault, pattern if count == 1 else f"at most {pattern}"
    return None


def _at_ties(trial: Trial, point: int, worst: Worst) -> str:
    """What the equal entries take together, and what they should: moved as one they are smooth."""
    x, text = trial.target.points[point], "is off at ties only"
    same = x == x[worst.index]
    step = float(trial.size(point)[worst.index])
    probe, found = trial.evidence.careful(trial.alone(point, np.where(same, step, 0.0)))
    if bends(found) or probe.agrees or abs(probe.difference) <= probe.allowed:
        return text
    shares = f"the shares of its {np.count_nonzero(same)} equal entries sum to"
    if [y.size for y in trial.target.centre] == [1]:
        unit = step * (float(np.ravel(trial.evidence.cotangents[0])[0]) or 1.0)
        taken, total = probe.claimed / unit, probe.difference / unit
        return f"{text}: {shares} {taken:.6g} and should sum to {total:.6g}"
    return f"{text}: {shares} {probe.claimed / probe.difference:.6g} times what they should"
