import math

import pytest

from checks.report.wording import complaint, duration, judged, number, plural, used
from checks.results import Row


@pytest.mark.parametrize(
    "share, text",
    [
        (None, ""),
        (0.0, "="),
        (1e-9, "<0.1%"),
        (0.00432, "0.4%"),
        (0.0099, "1%"),
        (0.5, "50%"),
        (0.999, "100%"),
        (1.4, "140%"),
        (9.99, "999%"),
        (12.3, "12x"),
        (3e7, "3e7x"),
        (math.inf, "inf"),
        (math.nan, "NaN"),
    ],
)
def test_used(share, text):
    assert used(share) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (None, ""),
        (0.0, "0"),
        (2e-5, "2e-05"),
        (1.936e-4, "1.94e-04"),
        (0.25, "0.25"),
        (12345.0, "1.23e+04"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (59.94, "59.9 s"),
        (245.0, "4 min 05 s"),
        (3725, "1 h 02 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_plural():
    assert [plural(n, "op") for n in (0, 1, 2, 1234)] == ["0 ops", "1 op", "2 ops", "1,234 ops"]


def row(status="pass", **more):
    return Row("EXP", "a", "f32", "float32", status, **more)


@pytest.mark.parametrize(
    "fields, text",
    [
        (dict(), ""),
        (dict(error=1e-6, tolerance=2e-5), "1e-06 \u2264 2e-05"),
        (dict(error=3.0, tolerance=4.0, unit="ulp"), "3 ulp \u2264 4 ulp"),
        (dict(error=0.0, tolerance=0.0, unit="exact"), "equal"),
        (
            dict(status="fail", message="m", error=1.0, tolerance=0.0, unit="exact"),
            "1 entry differs",
        ),
        (
            dict(status="fail", message="m", error=7.0, tolerance=0.0, unit="exact"),
            "7 entries differ",
        ),
        (dict(status="fail", message="m", error=1e-3, tolerance=2e-5), "0.001 > 2e-05"),
        (dict(status="fail", message="m", error=math.nan, tolerance=2e-5), "NaN"),
    ],
)
def test_judged(fields, text):
    assert judged(row(**fields)) == text


def test_a_failure_complains_in_its_own_lines():
    lines = complaint(row("fail", message="what\n  at where\n  do this", repro="gradsweep x"))
    assert lines == [
        "FAIL  EXP  f32  a  float32",
        "  what",
        "  at where",
        "  do this",
        "  gradsweep x",
    ]
    assert len(complaint(row("fail", message="run gradsweep x", repro="gradsweep x"))) == 2


def test_a_stale_exclusion_says_what_to_remove():
    first, second, third = complaint(row("stale", reason="flushes", link="https://example.org/7"))
    assert first.startswith("STALE  EXP")
    assert second == "  the exclusion no longer holds: flushes  (https://example.org/7)"
    assert "catalogue/exclusions.py" in third
