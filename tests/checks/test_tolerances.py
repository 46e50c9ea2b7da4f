import itertools

import ml_dtypes
import numpy as np
import pytest

from checks import tolerances
from checks.row import Row
from checks.tolerance_file import SURFACES, ToleranceTableError, read_table
from checks.tolerances import Tolerance, constant, lookup, stale_overrides

TABLE = """
{defaults}
[variants.vmap.reducing]
float64 = 1e-12
[overrides]
f32 = [
  {{ op = "EIGH", dtype = "float32", value = 1e-3, reason = "close eigenvalues" }},
  {{ op = "EIGH", sample = "spread", dtype = "float32", value = 5e-5, reason = "well apart" }},
  {{ op = "NEG", dtype = "float32", value = 1e-9, reason = "exact by construction" }},
]
vmap = [
  {{ op = "SUM", dtype = "float64", variant = "reducing", value = 1e-11, reason = "long rows" }},
]
[constants]
suggestion_margin = 1.2
"""


@pytest.fixture
def table(tmp_path):
    rows = {
        name: 'any = "exact"' if name in ("shapes", "vmap") else "float32 = 2e-5\nfloat64 = 1e-9"
        for name in SURFACES
    }
    defaults = "\n".join(f"[defaults.{name}]\n{row}" for name, row in rows.items())
    file = tmp_path / "table.toml"
    file.write_text(TABLE.format(defaults=defaults))
    return read_table(file)


def row(op="EIGH", sample="close", error=5e-4, surface="f32", dtype="float32", **more):
    return Row(
        op,
        sample,
        surface,
        dtype,
        "pass",
        error=error,
        tolerance=1.0,
        default_tolerance=more.pop("default_tolerance", 2e-5),
        **more,
    )


@pytest.mark.parametrize(
    "surface, dtype, variant, expected",
    [
        ("shapes", "float32", None, (0, "exact")),
        ("f32", np.float32, None, (2e-5, "relative")),
        ("exact", "float64", None, (4, "ulp")),
        ("reverse", "float64", None, (1e-9, "relative")),
        ("forward", "float64", None, (1e-12, "relative")),
        ("second", "float64", None, (1e-8, "relative")),
        ("vmap", "float64", None, (0, "exact")),
        ("vmap", "float64", "reducing", (1e-12, "relative")),
        ("render", "float64", None, (0, "exact")),
        ("execute", "float64", None, (0, "exact")),
        ("execute", "float32", None, (4, "ulp")),
        ("execute", "float64", "reducing", (1e-13, "relative")),
        ("emit_f32", "float32", None, (2e-4, "relative")),
        ("emit_f64", "float64", None, (1e-10, "relative")),
        ("device_f32", "float32", None, (2e-4, "relative")),
        ("device_f32", "float32", "products", (1e-2, "relative")),
        ("device_f32", "float32", "bf16_products", (3e-2, "relative")),
        ("device_f64", "float64", None, (1e-10, "relative")),
        ("device_self", "float32", None, (0, "exact")),
        ("torch", "float64", None, (1e-10, "relative")),
        ("special", "float32", None, (0, "exact")),
        # A complex result is judged like its real part; whole numbers are exact everywhere.
        ("reverse", "complex128", None, (1e-9, "relative")),
        ("f32", "complex64", None, (2e-5, "relative")),
        ("f32", "int64", None, (0, "exact")),
        ("device_f32", bool, "products", (0, "exact")),
        ("emit_f32", "int4", None, (0, "exact")),
        ("f32", ml_dtypes.bfloat16, None, (8e-3, "relative")),
        ("device_f32@emulated:gb10", "float32", "products", (1e-2, "relative")),
    ],
)
def test_the_shipped_defaults_are_those_of_the_design(surface, dtype, variant, expected):
    found = lookup(surface, dtype, variant=variant)
    assert (found.value, found.unit) == expected
    assert (found.default, found.default_unit) == expected
    assert found.reason == ""


def test_every_surface_has_a_default():
    assert list(tolerances.default_table().defaults) == list(SURFACES)


def test_the_most_specific_override_wins(table):
    assert lookup("f32", "float32", table=table).source == "default"
    assert lookup("f32", "float32", "EXP", table=table).value == 2e-5
    of_op = lookup("f32", "float32", "EIGH", "close", table=table)
    assert of_op == Tolerance(
        1e-3, "relative", "override EIGH", "close eigenvalues", 2e-5, "relative"
    )
    of_sample = lookup("f32", "float32", "EIGH", "spread", table=table)
    assert (of_sample.value, of_sample.source) == (5e-5, "override EIGH/spread")
    assert lookup("f32", "complex64", "EIGH", table=table).value == 1e-3
    assert lookup("f32", "float64", "EIGH", table=table).value == 1e-9


def test_an_override_of_a_variant_leaves_the_default_alone(table):
    assert lookup("vmap", "float64", "SUM", variant="reducing", table=table).value == 1e-11
    assert lookup("vmap", "float64", "SUM", table=table).unit == "exact"


def test_a_dtype_without_a_row_in_the_variant_has_the_default(table):
    found = lookup("vmap", "float32", variant="reducing", table=table)
    assert (found.unit, found.source) == ("exact", "default")


@pytest.mark.parametrize("value, expected", [("1", 2e-5), ("0", 1e-3), ("", 1e-3)])
def test_strict_ignores_the_overrides(table, monkeypatch, value, expected):
    monkeypatch.setenv("GRADSWEEP_STRICT_TOLERANCES", value)
    assert lookup("f32", "float32", "EIGH", table=table).value == expected


def test_strict_is_zero_or_one(monkeypatch):
    monkeypatch.setenv("GRADSWEEP_STRICT_TOLERANCES", "yes")
    with pytest.raises(ToleranceTableError, match=r"neither 0 nor 1: 'yes'"):
        lookup("f32", "float32", "EXP")


@pytest.mark.parametrize(
    "arguments, text",
    [
        (dict(surface="f23", dtype="float32"), r"no surface 'f23'; did you mean 'f32'\?"),
        (
            dict(surface="reverse", dtype="float32"),
            r"surface reverse has no tolerance for float32\n.*\n  it has float64; add a row under",
        ),
        (
            dict(surface="device_f32", dtype="float32", variant="product"),
            r"has no variant 'product'; did you mean 'products'\?\n.*\n  its variants: products, b",
        ),
    ],
)
def test_a_wrong_look_up_names_the_way_out(arguments, text):
    with pytest.raises(ToleranceTableError, match=text) as caught:
        lookup(**arguments)
    assert caught.value.file.name == "tolerances.toml"


def test_an_unknown_constant_suggests_the_nearest():
    assert constant("suggestion_margin") == 1.2
    with pytest.raises(ToleranceTableError, match=r"did you mean 'suggestion_margin'\?"):
        constant("sugestion_margin")


@pytest.mark.parametrize("value, unit", [(-1, "ulp"), (1, "exact"), (np.nan, "ulp"), (1, "bits")])
def test_a_tolerance_checks_itself(value, unit):
    with pytest.raises(ValueError, match="no tolerance"):
        Tolerance(value, unit)


def names(found):
    return [item.override.name for item in found]


def test_an_override_that_some_row_needs_is_not_stale(table):
    rows = [
        row(error=5e-4),
        row(error=0.0),
        row(sample="spread", error=3e-5),
        row("NEG", error=1e-12),
        row("SUM", error=3e-12, surface="vmap", dtype="float64", default_tolerance=1e-12),
    ]
    assert stale_overrides(rows, table=table) == []


def test_an_override_that_no_row_needs_is_stale(table):
    rows = [row(error=1e-6), row(sample="spread", error=1e-5), row("NEG", error=1e-12)]
    found = stale_overrides(rows, table=table)
    assert names(found) == [
        "f32/EIGH/float32",
        "f32/EIGH/spread/float32",
        "vmap/SUM/reducing/float64",
    ]
    assert str(found[0]) == (
        "tolerance f32/EIGH/float32 (0.001) is not needed: worst error 1e-05 passes the default;"
        " remove it"
    )
    assert (found[1].rows, found[1].worst) == (1, 1e-5)
    assert "matches no result" in str(found[2])


def test_a_nan_error_needs_its_override(table):
    failed = Row("EIGH", "a", "f32", "float32", "fail", error=np.nan, message="NaN")
    assert "f32/EIGH/float32" not in names(stale_overrides([failed], table=table))


def test_a_selection_of_rows_leaves_the_others_alone(table):
    assert stale_overrides([], table=table, partial=True) == []
    assert names(stale_overrides([row(error=0.0)], table=table, partial=True)) == [
        "f32/EIGH/float32"
    ]
    skipped = Row("EIGH", "a", "f32", "float32", "skipped", reason="not run")
    assert len(stale_overrides([skipped], table=table)) == 4
    assert stale_overrides([skipped], table=table, partial=True) == []


def test_an_exact_default_is_needed_by_any_error(table):
    line = row("SUM", error=1e-13, surface="vmap", dtype="float64", default_tolerance=0.0)
    assert names(stale_overrides([line], table=table, partial=True)) == []


def test_override_names_are_checked_against_the_catalogue(table):
    samples = {"EIGH": {"close", "spread"}, "NEG": {"a"}, "SUM": {"a"}}
    tolerances.check_override_names(samples, table=table)
    with pytest.raises(ToleranceTableError, match=r"there is no op 'SUM'"):
        tolerances.check_override_names(dict(itertools.islice(samples.items(), 2)), table=table)
    samples["EIGH"] = {"spreads"}
    with pytest.raises(
        ToleranceTableError, match=r"sample of EIGH 'spread'; did you mean 'spreads"
    ):
        tolerances.check_override_names(samples, table=table)
