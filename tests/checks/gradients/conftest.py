"""What several files of gradient tests use."""

import math

import pytest

from checks.gradients.diagnosis import diagnose, trial
from checks.tolerances import constant


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time limit: what is found must not depend on the machine."""

    def patient(name: str) -> float:
        return math.inf if name == "diagnosis_seconds" else constant(name)

    monkeypatch.setattr(trial, "constant", patient)
    monkeypatch.setattr(diagnose, "constant", patient)
