from pathlib import Path

import pytest

from checks import tolerances
from checks.tolerance_file import SURFACES, ToleranceTableError, read_table

SHIPPED = Path(tolerances.__file__).with_name("tolerances.toml").read_text()


def override(line, surface="f32"):
    return SHIPPED.replace("[overrides]\n", f"[overrides]\n{surface} = [ {line} ]\n")


GOOD = 'op = "EXP", dtype = "float32", value = 1e-3, reason = "why"'


def read(tmp_path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return read_table(file)


def test_an_override_is_read(tmp_path):
    (row,) = read(tmp_path, override(f"{{ {GOOD} }}")).overrides
    assert (row.surface, row.op, row.sample, row.variant, row.dtype) == (
        "f32",
        "EXP",
        None,
        None,
        "float32",
    )
    assert (row.bound.value, row.bound.unit, row.reason) == (1e-3, "relative", "why")
    assert row.key == "overrides.f32[0]"


@pytest.mark.parametrize(
    "value, expected", [("3", (3, "relative")), ('"8 ulp"', (8, "ulp")), ('"exact"', (0, "exact"))]
)
def test_the_three_units(tmp_path, value, expected):
    text = SHIPPED.replace(
        "[defaults.special]\nany =", f"[defaults.special]\nfloat64 = {value}\nany ="
    )
    bound = read(tmp_path, text).defaults["special"]["float64"]
    assert (bound.value, bound.unit) == expected
    assert str(bound) == value.strip('"')


@pytest.mark.parametrize("value", ["0", "-2e-5", "nan", "inf", "true", '"4"', '"x ulp"', '"0 ulp"'])
def test_a_value_is_positive_and_finite(tmp_path, value):
    text = SHIPPED.replace("float64 = 1e-9", f"float64 = {value}")
    with pytest.raises(ToleranceTableError, match="not a positive finite number") as caught:
        read(tmp_path, text)
    assert caught.value.key == "defaults.reverse.float64"
    _, where, fix = str(caught.value).split("\n")
    assert where == f"  at defaults.reverse.float64 in {tmp_path / 'mine.toml'}"
    assert fix == '  write a number such as 2e-5, "4 ulp" or "exact"'


@pytest.mark.parametrize(
    "old, new, text",
    [
        ("[defaults.f32]", "[defaults.f23]", r"unknown surface 'f23'; did you mean 'f32'\?"),
        ("[constants]", "[constant]", r"unknown part 'constant'; did you mean 'constants'\?"),
        ("[limits.reverse]\nloosest", "[limits.reverse]\nlosest", r"limit 'losest'; did you mean"),
        ("float64 = 1e-9", "flaot64 = 1e-9", r"unknown dtype 'flaot64'; did you mean 'float64'\?"),
        ("float64 = 1e-9", "", r"defaults.reverse is empty"),
        (
            "richardson_levels = 6",
            "richardson_levels = 0",
            r"finite number: 0\n  at constants.rich",
        ),
        ("[defaults.second]\nfloat64 = 1e-8", "", r"surface second has no default\n"),
        ("[defaults.f32]", "[defaults.f32", r"not TOML: .*line \d+"),
    ],
)
def test_a_wrong_table_is_named(tmp_path, old, new, text):
    assert old in SHIPPED
    with pytest.raises(ToleranceTableError, match=text):
        read(tmp_path, SHIPPED.replace(old, new))


@pytest.mark.parametrize(
    "line, text",
    [
        (GOOD.replace("op =", "ops ="), r"unknown key 'ops'; did you mean 'op'\?"),
        (
            GOOD.replace(', reason = "why"', ""),
            r"override without a reason\n  at overrides.f32\[0\]",
        ),
        (GOOD.replace("why", " "), r"override without a reason"),
        (GOOD.replace('op = "EXP", ', ""), r"override without a op"),
        (GOOD.replace("float32", "f32"), r"unknown dtype 'f32'"),
        (GOOD.replace("float32", "float64"), r"surface f32 has no default for float64"),
        (GOOD.replace("value = 1e-3, ", ""), r"not a positive finite number: None"),
        (GOOD.replace("1e-3", '"3 ulp"'), r"3 ulp is ulp, the value it overrides \(2e-05\) is rel"),
        (GOOD + ', sample = ""', r"override without a sample"),
        (GOOD + ', variant = "products"', r"unknown variant 'products'"),
    ],
)
def test_a_wrong_override_is_named(tmp_path, line, text):
    with pytest.raises(ToleranceTableError, match=text):
        read(tmp_path, override(f"{{ {line} }}"))


def test_overrides_of_one_thing_are_one(tmp_path):
    with pytest.raises(ToleranceTableError, match=r"f32/EXP/float32 is overridden twice, first at"):
        read(tmp_path, override(f"{{ {GOOD} }}, {{ {GOOD} }}"))
    other = GOOD + ', sample = "large"'
    assert len(read(tmp_path, override(f"{{ {GOOD} }}, {{ {other} }}")).overrides) == 2


def test_device_comparisons_are_never_pinned_tighter_than_1e_4(tmp_path):
    tight = GOOD.replace("1e-3", "9e-5")
    with pytest.raises(
        ToleranceTableError, match=r"pinned to 9e-05, tighter than 0.0001"
    ) as caught:
        read(tmp_path, override(f"{{ {tight} }}", "device_f32"))
    assert caught.value.key == "overrides.device_f32[0].value"
    with pytest.raises(ToleranceTableError, match=r"pinned to exact"):
        exact = GOOD.replace("1e-3", '"exact"')
        read(tmp_path, override(f"{{ {exact} }}", "device_f32"))
    read(tmp_path, override(f"{{ {GOOD.replace('1e-3', '1e-4')} }}", "device_f32"))


def test_reverse_is_never_looser_than_1e_6(tmp_path):
    loose = GOOD.replace("float32", "float64").replace("1e-3", "2e-6")
    with pytest.raises(ToleranceTableError, match=r"loosened to 2e-06, looser than 1e-06"):
        read(tmp_path, override(f"{{ {loose} }}", "reverse"))
    read(tmp_path, override(f"{{ {loose.replace('2e-6', '1e-6')} }}", "reverse"))


def test_an_exact_default_may_be_loosened_in_any_unit(tmp_path):
    for value in ("1e-12", '"2 ulp"'):
        line = GOOD.replace("1e-3", value).replace("float32", "float64")
        assert read(tmp_path, override(f"{{ {line} }}", "render")).overrides


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ToleranceTableError, match=r"no tolerance table: No such file"):
        read_table(tmp_path / "absent.toml")


def test_overrides_are_lists_of_tables(tmp_path):
    with pytest.raises(ToleranceTableError, match=r"not a list\n  at overrides.f32"):
        read(tmp_path, SHIPPED.replace("[overrides]\n", "[overrides]\nf32 = 1\n"))
    with pytest.raises(ToleranceTableError, match=r"overrides.f32\[0\] is not a table"):
        read(tmp_path, override("1"))


def test_the_surfaces_are_sixteen():
    assert len(SURFACES) == len(set(SURFACES)) == 16
