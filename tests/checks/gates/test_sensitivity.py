"""`gradsweep gate power REFERENCE`: which wrong tensors a tolerance file lets through."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.cli import main
from checks.gates.errors import GateError
from checks.gates.limits.sensitivity import counted, mutants, sensitivity
from tests.checks.gates.sides import TIGHT, normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
X = normal(6, 6, 16)
STRUCTURE = {
    "transposed 0, 1",
    "roll 1 along 0",
    "roll 1 along 1",
    "roll 1 along 2",
    "heads swapped, of 8",
    "dead channel",
    "last token repeated",
    "last row zeroed",
}
VALUES = {
    "scaled by 1.001",
    "scaled by 1.01",
    "offset by 0.001 rms",
    "epsilon of a row norm",
    "one sign turned",
    "one NaN",
    "rounded to bfloat16",
    "rounded to tf32",
}


def tried(folder: Path, tensors: Any, limits: Any, **options: Any) -> Any:
    side = write_side(folder / "r", tensors)
    return list(sensitivity(side, write_limits(folder / "t.json", limits), **options))


def limit(max_abs: Any, mean_abs: Any) -> Any:
    return {"max_abs": max_abs, "mean_abs": mean_abs}


def test_every_mutant_is_what_it_says() -> None:
    made = dict(mutants(X))
    assert set(made) == STRUCTURE | VALUES
    for name, array in made.items():
        assert array.shape == X.shape and array.dtype == X.dtype, name
        assert np.sum(array != X) > 0, name
    np.testing.assert_array_equal(made["transposed 0, 1"], X.swapaxes(0, 1))
    np.testing.assert_array_equal(made["roll 1 along 2"], np.roll(X, 1, 2))
    np.testing.assert_array_equal(made["heads swapped, of 8"][..., :2], X[..., 2:4])
    np.testing.assert_array_equal(made["heads swapped, of 8"][..., 4:], X[..., 4:])
    (dead,) = np.unique(np.nonzero(made["dead channel"] != X)[2])
    assert not made["dead channel"][..., dead].any()
    np.testing.assert_array_equal(made["last token repeated"][:, -1], X[:, -2])
    np.testing.assert_array_equal(made["last token repeated"][:, :-1], X[:, :-1])
    assert not made["last row zeroed"][:, -1].any()
    np.testing.assert_allclose(made["scaled by 1.001"] / X, 1.001, rtol=1e-6)
    rms = np.sqrt(np.mean(X.astype(float) ** 2))
    np.testing.assert_allclose(made["offset by 0.001 rms"] - X, 1e-3 * rms, rtol=1e-3)
    ratio = made["epsilon of a row norm"].astype(float) / X
    square = np.mean(X.astype(float) ** 2, -1, keepdims=True)
    np.testing.assert_allclose(ratio**-2 - 1, 9e-6 / square + 0 * X, rtol=0.1)
    assert np.sum(made["one sign turned"] != X) == 1
    assert np.isnan(made["one NaN"]).sum() == 1
    bf16 = X.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(made["rounded to bfloat16"], bf16)


def test_tf32_keeps_ten_bits_and_rounds_to_even() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, -3.0], np.float32)
    got = dict(mutants(x))["rounded to tf32"]
    np.testing.assert_array_equal(got, np.array([1, 1 + 2.0**-9, 1 + 2.0**-10, -3], np.float32))


def test_a_tight_file_catches_all_and_an_infinite_one_the_nan_alone(tmp_path: Path) -> None:
    (tight,) = tried(tmp_path / "a", {"t": X}, {"t": limit(1e-9, 1e-9)})
    assert len(tight.tried) == 16 and not tight.let_through and counted([tight]) == (16, 16)
    assert not any(t.systematic for t in tight.tried)
    (wide,) = tried(tmp_path / "b", {"t": X}, {"t": limit("inf", "inf")})
    assert [t.mutant for t in wide.tried if t.caught] == ["one NaN"]
    assert all(t.used == 0 for t in wide.let_through)


def test_what_passes_is_named_with_its_share_of_the_limit(tmp_path: Path) -> None:
    """A limit of 0.1 on max_abs and none on the mean."""
    (found,) = tried(tmp_path, {"t": X}, {"t": limit(0.1, 1e9)})
    passing = {t.mutant: t for t in found.let_through}
    assert set(passing) == VALUES - {"one sign turned", "one NaN"}
    used = np.abs(X).max() * 1e-3 / 0.1
    assert passing["scaled by 1.001"].used == pytest.approx(used, rel=1e-3)
    assert passing["scaled by 1.001"].systematic and passing["epsilon of a row norm"].systematic
    assert not passing["rounded to bfloat16"].systematic
    assert found.tried[0].used > 1 and not found.tried[0].systematic


def test_the_mean_decides_too(tmp_path: Path) -> None:
    (found,) = tried(tmp_path, {"t": X}, {"t": limit(1e9, 2e-4)})
    assert {t.mutant for t in found.let_through} == {"epsilon of a row norm", "rounded to tf32"}


def test_mutants_that_change_nothing_are_not_tried(tmp_path: Path) -> None:
    flat = np.ones((4, 4), np.float32)
    half = X.astype(ml_dtypes.bfloat16)
    found = tried(
        tmp_path,
        {"flat": flat, "half": half},
        {"flat": limit(0.0, 0.0), "half": limit(0.0, 0.0)},
    )
    flat_, half_ = ({t.mutant for t in s.tried} for s in found)
    assert not flat_ & {"transposed 0, 1", "roll 1 along 0", "last token repeated"}
    assert "scaled by 1.001" in flat_ and "last row zeroed" in flat_
    assert not half_ & {"rounded to bfloat16", "rounded to tf32", "epsilon of a row norm"}
    assert "one NaN" in half_
    assert all(t.caught for s in found for t in s.tried)


@pytest.mark.parametrize(
    ("array", "wanted", "unwanted"),
    [
        (np.arange(12), {"roll 1 along 0", "one entry off by one"}, {"scaled by 1.001"}),
        (np.arange(12) % 2 == 0, {"one entry off by one"}, {"one NaN"}),
        (np.float32(3.0), {"scaled by 1.01", "one NaN"}, {"roll 1 along 0", "dead channel"}),
        (X[0] + 1j * X[1], {"scaled by 1.01", "dead channel"}, {"rounded to tf32"}),
        (np.zeros((0, 3), np.float32), set(), {"one NaN"}),
        (np.full((1, 3), -np.inf, np.float32), {"last row zeroed"}, set()),
    ],
    ids=["int", "bool", "scalar", "complex", "empty", "infinite"],
)
def test_any_dtype_and_shape(array: Any, wanted: Any, unwanted: Any) -> None:
    made = dict(mutants(np.asarray(array)))
    assert wanted <= set(made) and not unwanted & set(made)
    assert all(m.dtype == np.asarray(array).dtype for m in made.values())


def test_a_dead_channel_is_one_of_median_size() -> None:
    x = np.diag(np.arange(1.0, 6.0))
    dead = dict(mutants(x))["dead channel"]
    assert np.flatnonzero(np.diag(dead) == 0).tolist() == [2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = {"enc.a": X, "enc.b": (X, {"role": "informational"}), "dec.c": normal(4, 5), "debug": X}
    write_side(tmp_path / "r", made)
    limits = {"enc.a": limit(0.01, 0.01), "enc.b": limit("inf", "inf"), "dec.c": limit(0, 0)}
    write_limits(tmp_path / "t.json", limits)
    return tmp_path


def power(folder: Path, *options: Any) -> int:
    command = ["gate", "power", folder / "r", "--tolerances", folder / "t.json", *options]
    return main([str(c) for c in command])


def test_the_command(folder: Path, capsys: Captured) -> None:
    file = folder / "power.json"
    assert power(folder, "--json", file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["enc.a", "gate"],
        ["enc.b", "informational"],
        ["dec.c", "gate"],
    ]
    assert "lets through scaled by 1.001 (0." in lines[0] and ", systematic)" in lines[0]
    assert lines[2].endswith("13 of 13 caught")
    record = json.loads(file.read_text())
    assert (record["caught"], record["tried"]) == (24, 29)
    assert record["share"] == pytest.approx(24 / 29)
    assert lines[3] == "24 of 29 mutants of the gates caught (82.8%)"
    a = {m["mutant"]: m for m in record["tensors"][0]["mutants"]}
    assert len(a) == 16 and a["one NaN"] == {
        "mutant": "one NaN", "caught": True, "used": "nan", "systematic": False
    }  # fmt: skip
    assert a["scaled by 1.001"]["caught"] is False


def test_least(folder: Path, capsys: Captured) -> None:
    assert power(folder, "--least", "0.8") == 0
    assert power(folder, "--least", "0.9") == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("(82.8%), fewer than 90.0%")
    assert power(folder, "--only", "dec.*", "--least", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("13 of 13 mutants")
    with pytest.raises(SystemExit) as caught:
        power(folder, "--least", "90")
    assert caught.value.code == 3 and "'90' is no share" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["r"], 3, "the limits are absent\n  at --tolerances"),
        (["r", "--tolerances", "t.json", "--seeds", "3"], 3, "--seeds is of the corpus"),
        (["r", "--tolerances", "t.json", "--clean", "3"], 3, "--clean is of the corpus"),
        (["r", "--tolerances", "t.json", "--first-seed", "3"], 3, "--first-seed is of the corpus"),
        (["r", "--tolerances", "t.json", "--policy", "bfloat16"], 3, "--policy is of the corpus"),
        (["r", "--tolerances", "t.json", "--limits", "init"], 3, "--limits is of the corpus"),
        (["r", "--tolerances", "t.json", "--only", "x"], 2, "no contract tensors: nothing was"),
        (["r", "--tolerances", "more.json"], 2, "'gone' is missing on the reference"),
        (["r", "--tolerances", "none.json"], 3, "cannot be read"),
        (["--tolerances", "t.json"], 3, "there is no dump to mutate\n  at --tolerances"),
        (["--least", "0.5"], 3, "there is no dump to mutate\n  at --least"),
    ],
)
def test_mistakes(
    folder: Path, capsys: Captured, monkeypatch: Any, options: Any, code: int, text: str
) -> None:
    write_limits(folder / "more.json", {"gone": limit(0, 0)})
    monkeypatch.chdir(folder)
    assert main(["gate", "power", *options]) == code
    assert text in capsys.readouterr().err


def test_without_a_dump_the_corpus_is_run(monkeypatch: Any, capsys: Captured) -> None:
    seen = []

    def of_study(given: Any) -> int:
        seen.append(given)
        return 7

    study = types.ModuleType("checks.gates.corpus.study")
    study.main = of_study  # type: ignore[attr-defined]
    monkeypatch.setattr("checks.gates.commands.power._present", lambda module: True)
    monkeypatch.setitem(sys.modules, "checks.gates.corpus.study", study)
    monkeypatch.setattr("importlib.import_module", lambda name: sys.modules[name])
    options = ["--seeds", "2", "--only", "mask*", "--json", "f.json", "--limits", "init"]
    options += ["--policy", "bfloat16", "--first-seed", "50", "--clean", "3"]
    study_code = main(["gate", "power", *options])
    assert study_code == 7
    (given,) = seen
    assert (given.seeds, given.only, given.json) == (2, "mask*", Path("f.json"))
    assert (given.limits, given.policy, given.first_seed, given.clean) == (
        *("init", "bfloat16", 50, 3),
    )
    monkeypatch.setattr("checks.gates.commands.power._present", lambda module: False)
    assert main(["gate", "power"]) == 3
    assert "the corpus of faults is not installed" in capsys.readouterr().err


def test_roles_of_names_toml_count(folder: Path, capsys: Captured) -> None:
    (folder / "names.toml").write_text("[roles]\n'enc.a' = 'informational'\n")
    assert power(folder) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("13 of 13 mutants of the gates")


@pytest.mark.parametrize("value", [np.full((4, 5), np.nan, np.float32), np.zeros((0, 5))])
def test_a_reference_that_nothing_can_be_tried_on(tmp_path: Path, value: Any) -> None:
    reference = write_side(tmp_path / "reference", {"a": value})
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT})
    with pytest.raises(GateError, match="the reference 'a'") as caught:
        list(sensitivity(reference, limits))
    assert caught.value.code == 2
