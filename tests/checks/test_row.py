import json
import math

import pytest

from checks.row import ResultsError, Row

GOOD = dict(op="EXP", sample="a", surface="f32", dtype="float32", status="pass")


def test_a_row_survives_its_line():
    row = Row(
        "SOFTMAX",
        'odd "name"\u2028\n</script>',
        "device_f32@emulated:gb10",
        "float32",
        "fail",
        error=math.nan,
        tolerance=2e-4,
        unit="relative",
        tolerance_source="override SOFTMAX",
        default_tolerance=1e-4,
        componentwise=math.inf,
        ulp=3.5,
        seconds=0.25,
        reason="r",
        link="https://example.org/1",
        message="what\n  where\n  fix",
        repro="gradsweep sweep --op SOFTMAX",
        seed=12,
        worst_index=(0, 3),
        got=complex(math.nan, -math.inf),
        expected=1 + 2j,
        evaluations=7,
    )
    line = row.to_json()
    assert "\n" not in line
    json.loads(line, parse_constant=pytest.fail)
    again = Row.from_json(line)
    assert again.to_json() == line
    assert math.isnan(again.error) and again.componentwise == math.inf
    assert again.expected == 1 + 2j and math.isnan(again.got.real)
    assert (again.worst_index, again.sample) == ((0, 3), row.sample)


@pytest.mark.parametrize("value", [True, 3, 2.5, -math.inf, 1j, "text", None])
def test_values_keep_their_type(value):
    again = Row.from_json(Row(**GOOD, got=value).to_json()).got
    assert again == value and type(again) is type(value)


def test_defaults_are_left_out_but_for_those_readers_count_on() -> None:
    always = {"error": None, "tolerance": None, "ulp": None, "seconds": 0.0}
    assert json.loads(Row(**GOOD).to_json()) == always | GOOD


@pytest.mark.parametrize(
    "change, text",
    [
        (dict(op=""), "op is empty"),
        (dict(sample=" "), "sample is empty"),
        (dict(status="passed"), r"unknown status 'passed'; did you mean 'pass'\?"),
        (dict(surface="f23"), r"unknown surface 'f23'; did you mean 'f32'\?"),
        (dict(unit="ulps"), r"unknown unit 'ulps'; did you mean 'ulp'\?"),
        (dict(error=-1.0), "error is not a number >= 0: -1.0"),
        (dict(error="1"), "error is not a number >= 0: '1'"),
        (dict(seconds=math.nan), "seconds is not finite"),
        (dict(seed=1.5), "seed is not an integer"),
        (dict(evaluations=-1), "evaluations is not an integer"),
        (dict(worst_index=(1.0,)), "worst_index is no index"),
        (dict(got=[1]), "got is a list"),
        (dict(error=2.0, tolerance=1.0), "a pass whose error 2.0 is above its tolerance 1.0"),
        (dict(error=1e-300), "a pass whose error"),
        (dict(error=math.nan, tolerance=1.0), "a pass whose error nan"),
        (dict(status="fail"), "a failure without a message"),
        (dict(status="excluded"), "excluded without a reason"),
        (dict(status="stale"), "stale without a reason"),
        (dict(status="skipped"), "skipped without a reason"),
        (dict(missing="jax"), "pass with a missing package"),
    ],
)
def test_a_row_checks_itself(change, text):
    with pytest.raises(ResultsError, match=text) as caught:
        Row(**{**GOOD, **change})
    assert str(caught.value).count("\n") == 2
    assert "row " in caught.value.where


@pytest.mark.parametrize(
    "line, text",
    [
        ("{", "not JSON: "),
        ('{"error": NaN}', "not JSON: NaN is no JSON value"),
        ("[1]", "not a JSON object"),
        ('{"op": "EXP"}', "no sample, surface, dtype, status"),
        (json.dumps({**GOOD, "eror": 1.0}), r"unknown field 'eror'; did you mean 'error'\?"),
        (json.dumps({**GOOD, "op": 3}), "op is empty"),
    ],
)
def test_corrupt_lines_are_named(line, text):
    with pytest.raises(ResultsError, match=text):
        Row.from_json(line)


@pytest.mark.parametrize(
    "error, tolerance, expected",
    [(None, 1.0, None), (0.0, None, 0.0), (0.0, 0.0, 0.0), (0.5, 2.0, 0.25), (0.0, 1e-9, 0.0)],
)
def test_headroom(error, tolerance, expected):
    assert Row(**GOOD, error=error, tolerance=tolerance).headroom == expected


def test_headroom_without_room():
    row = Row(**{**GOOD, "status": "fail"}, message="m", error=3.0, tolerance=0.0, unit="exact")
    assert row.headroom == math.inf
