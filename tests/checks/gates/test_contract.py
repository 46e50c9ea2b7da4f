"""The tolerance file and names.toml: what they may say, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.gates.errors import GateError
from checks.gates.formats.readers import open_side
from checks.gates.limits.contract import Contract, Limit, read_contract, rounded_up, write_contract
from checks.gates.naming.names import read_names, renamed
from tests.checks.gates.sides import TIGHT, judged, normal, write_limits, write_side

X = normal(6, 8)


def test_a_contract_is_read_as_it_was_written(tmp_path: Path) -> None:
    limits = {"a.b": Limit(0.5, 0.01), "c": Limit(0.0, math.inf, ("why",))}
    contract = Contract(tmp_path / "f.json", limits, ("first", "second"))
    assert read_contract(write_contract(contract.path, contract)) == contract


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"t": TIGHT | {"rel": 1}}, "unknown key 'rel'"),
        ({"t": {"max_abs": 1, "mean_ab": 1}}, "did you mean 'mean_abs'"),
        ({"tolerances": {"t": TIGHT}}, "a table inside a table: 't'"),
        ({"t": {"max_abs": 1}}, "mean_abs is absent"),
        ({"t": TIGHT | {"max_abs": -1}}, 'max_abs is no number >= 0, nor "inf": -1'),
        ({"t": TIGHT | {"max_abs": None}}, 'nor "inf": None'),
        ({"t": TIGHT | {"max_abs": True}}, 'nor "inf": True'),
        ({"t": TIGHT | {"max_abs": "1"}}, "nor \"inf\": '1'"),
        ({"t": 3}, "not a table of limits: 3"),
        ({"a/b": TIGHT}, "the tensor name 'a/b' holds '/'"),
        ({"_comment": 3}, "_comment is no text: 3"),
        ({"dec.logits": {"max_abs": "inf", "mean_abs": "inf"}}, "infinite limits checks nothing"),
    ],
)
def test_a_wrong_contract_is_named(tmp_path: Path, entries: Any, words: str) -> None:
    file = write_limits(tmp_path / "f.json", entries)
    with pytest.raises(GateError) as caught:
        read_contract(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3
    assert caught.value.code == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"t": {"max_abs": NaN, "mean_abs": 1}}', 'nor "inf": nan'),
        ('{"t": {"max_abs": 1, "max_abs": 2, "mean_abs": 1}}', "'max_abs' stands twice"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
    ],
)
def test_unreadable_text_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(GateError, match=words):
        read_contract(tmp_path / "f.json")
    with pytest.raises(GateError, match="cannot be read: No such file"):
        read_contract(tmp_path / "g.json")


def test_zero_is_a_limit(tmp_path: Path) -> None:
    zero = {"t": {"max_abs": 0.0, "mean_abs": 0.0}}
    assert judged(tmp_path / "a", {"t": X}, {"t": X}, zero).exit_code == 0
    assert judged(tmp_path / "b", {"t": X}, {"t": np.nextafter(X, 9)}, zero).exit_code == 1


@pytest.mark.parametrize(
    ("value", "up"), [(1.01e-5, 1.1e-5), (1.1e-5, 1.1e-5), (3.0, 3.0), (99.5, 100.0), (0.0, 0.0)]
)
def test_rounded_up(value: float, up: float) -> None:
    assert rounded_up(value) == pytest.approx(up, rel=1e-12)
    assert rounded_up(value) >= value


def test_roles(tmp_path: Path) -> None:
    soft = (X, {"role": "informational"})
    off = (X + 1, {"role": "informational"})
    limits = dict.fromkeys(["soft", "gate"], TIGHT)
    y = normal(6, 8, seed=1)
    result = judged(tmp_path / "a", {"soft": soft, "gate": y}, {"soft": off, "gate": y + 1}, limits)
    assert result.first is not None and result.first.name == "gate"
    result = judged(tmp_path / "b", {"soft": soft, "gate": y}, {"soft": off, "gate": y}, limits)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "soft"
    result = judged(tmp_path / "c", {"t": X, "d": X}, {"t": X, "e": X}, {"t": TIGHT})
    assert result.exit_code == 0
    assert [r.status for r in result.rows] == ["ok", "MISSING-reference", "MISSING-candidate"]
    debug = {"t": (X, {"role": "debug"})}
    with pytest.raises(GateError, match="'t' is a debug tensor and stands in the tolerance file"):
        judged(tmp_path / "d", debug, debug)


def test_missing_everywhere_is_no_valid_comparison(tmp_path: Path) -> None:
    result = judged(tmp_path, {"t": X}, {"t": X}, {"t": TIGHT, "u": TIGHT})
    assert result.exit_code == 2
    assert "'u' is missing on the reference" in result.problems[0].what


NAMES = r"""
[roles]
"*.soft" = "informational"

[[candidate]]
match = 'encoder\.layers\.(\d+)'
name = 'enc.block.\1.out'
transpose = [1, 0]

[[candidate]]
match = "qkv"
name = ["q", "k"]
split = 1
"""


def test_rules(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_text(NAMES)
    reference = {"enc.block.3.out": X, "q": X[:, :4], "k": X[:, 4:], "a.soft": X}
    candidate = {"encoder.layers.3": X.T, "qkv": X, "a.soft": X + 1}
    result = judged(tmp_path, reference, candidate)
    assert [(r.name, r.status) for r in result.rows] == [
        ("enc.block.3.out", "ok"),
        ("q", "ok"),
        ("k", "ok"),
        ("a.soft", "FAIL"),
    ]
    assert result.rows[3].role == "informational"
    assert "names by" in result.notes[0]


def test_slices_and_casts(tmp_path: Path) -> None:
    rule = "[[reference]]\nmatch = 't'\nname = 'u'\nslice = '1:, :4'\ncast = 'bf16'\n"
    (tmp_path / "names.toml").write_text(rule)
    side = open_side(write_side(tmp_path / "s", {"t": X}))
    made = renamed(side, read_names(tmp_path / "names.toml"), "reference").tensors["u"]
    assert (made.tensor.shape, made.tensor.dtype) == ((5, 4), "bfloat16")
    assert made.load().dtype.name == "bfloat16"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[reference]]\nmatch = 'u'\nname = 'v'", "the rule matches no tensor"),
        ("[[reference]]\nmatch = '.'\nname = 'v'", "two tensors are called 'v'"),
        ("[[reference]]\nmatch = '('\nname = 'v'", "no regular expression"),
        ("[[reference]]\nmatch = 't'\nname = 'a/b'", "holds '/'"),
        ("[[reference]]\nmatch = 't'\nname = '\\1'", "no name: invalid group reference"),
        ("[[reference]]\nmatch = 't'\nname = ['a', 'b']", "2 names and no split"),
        ("[[reference]]\nmatch = 't'\nname = 'a'\ntranspose = [0, 2]", "does not fit [6, 8]"),
        ("[[reference]]\nmatch = 't'\nnme = 'a'", "no rule"),
        ("[[reference]]\nmatch = 't'\nname = 'a'\nreshape = 1", "unknown key 'reshape'"),
        ("[roles]\nt = 'gates'", "unknown role 'gates'"),
        ("[other]", "unknown key 'other'"),
        ("[", "not TOML"),
    ],
)
def test_a_wrong_rule_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "names.toml").write_text(text)
    with pytest.raises(GateError) as caught:
        judged(tmp_path, {"t": X, "s": X}, {"t": X, "s": X})
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_a_rule_takes_whole_names_only(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_text("[[reference]]\nmatch = 'block.1'\nname = 'one'\n")
    side = open_side(write_side(tmp_path / "s", {"block.1": X, "block.10": X}))
    found = renamed(side, read_names(tmp_path / "names.toml"), "reference")
    assert list(found.tensors) == ["one", "block.10"]


def test_json_of_a_contract_is_flat(tmp_path: Path) -> None:
    file = write_contract(tmp_path / "f.json", Contract(tmp_path, {"t": Limit(1.0, math.inf)}))
    assert json.loads(file.read_text()) == {
        "_comment": [],
        "t": {"max_abs": 1.0, "mean_abs": "inf"},
    }
