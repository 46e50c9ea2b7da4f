"""`gradsweep gate names`: what matches, and rules for the rest that a person may accept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.cli import main
from checks.gates.formats.readers import open_side
from checks.gates.naming.fits import orders
from checks.gates.naming.names import read_names, renamed
from checks.gates.naming.suggest import matching, suggest, to_toml
from tests.checks.gates.sides import normal, write_side

Captured = pytest.CaptureFixture[str]
BLOCKS = [normal(6, 8, seed=n) * (1 + n) for n in range(4)]


def near(array: Any, seed: int = 99) -> Any:
    return (array * (1 + 1e-6 * normal(*array.shape, seed=seed))).astype(array.dtype)


def sides(folder: Path, left: Any, right: Any) -> Any:
    return [open_side(write_side(folder / n, s)) for n, s in (("r", left), ("c", right))]


def rules(folder: Path, left: Any, right: Any) -> Any:
    """What is suggested; its text must be read as it is, and give the reference's names."""
    r, c = sides(folder, left, right)
    found = suggest(r, c)
    file = folder / "names.toml"
    file.write_text(to_toml(found, "r", "c"))
    if found.rules:
        after = renamed(c, read_names(file), "candidate")
        for rule in found.rules:
            for pair in rule.pairs:
                there = after.tensors[pair.reference].tensor
                assert there.shape == r.tensors[pair.reference].tensor.shape
    return found, file.read_text()


def test_a_family_becomes_one_rule(tmp_path: Path) -> None:
    left = {f"enc.block.{n}.out": b for n, b in enumerate(BLOCKS)}
    right = {f"model.layers.{n}.output_0": near(b) for n, b in enumerate(BLOCKS)}
    found, text = rules(tmp_path, left, right)
    (rule,) = found.rules
    assert (rule.match, rule.name) == (r"model\.layers\.(\d+)\.output_0", r"enc.block.\1.out")
    lines = text.splitlines()
    assert lines[:2] == [
        "# Proposed for c, under the names of r.",
        "# Read every rule, and remove what is wrong: nothing applies them until you do.",
    ]
    assert lines[3] == "# sure: 4 pairs (4 sure)"
    assert lines[4].startswith("#   the worst, model.layers.") and lines[4].endswith(", in order")
    assert lines[5].endswith("model.layers.2.output_0 = enc.block.2.out, ...")
    assert lines[6:] == [
        "[[candidate]]",
        r"match = 'model\.layers\.(\d+)\.output_0'",
        r"name = 'enc.block.\1.out'",
    ]


def test_numbers_that_follow_no_pattern_become_single_rules(tmp_path: Path) -> None:
    left = {f"enc.{n}": b for n, b in enumerate(BLOCKS)}
    right = {f"layer{n + 1}": near(b) for n, b in enumerate(BLOCKS)}  # counted from 1
    found, _ = rules(tmp_path, left, right)
    assert [(r.match, r.name) for r in found.rules] == [
        (f"layer{n + 1}", f"enc.{n}") for n in range(4)
    ]


def test_two_numbers_each_find_their_own(tmp_path: Path) -> None:
    left = {f"s{a}.h{b}.q": normal(3, 5, seed=10 * a + b) for a in range(2) for b in range(3)}
    right = {f"x{b}-{a}v7": near(left[f"s{a}.h{b}.q"]) for a in range(2) for b in range(3)}
    found, _ = rules(tmp_path, left, right)
    assert [(r.match, r.name) for r in found.rules] == [(r"x(\d+)\-(\d+)v7", r"s\2.h\1.q")]
    assert all(f.grounds.endswith(", in order") for f in found.rules[0].pairs)


def test_pairs_out_of_order_are_told(tmp_path: Path) -> None:
    left = {n: normal(3, 4, seed=k) for k, n in enumerate("abcd")}
    right = {n: near(left[m]) for n, m in (("q", "b"), ("r", "c"), ("s", "d"), ("p", "a"))}
    found, _ = rules(tmp_path, left, right)
    words = {r.match: r.pairs[0].grounds.rpartition(", ")[2] for r in found.rules}
    assert words == {"p": "out of order", "q": "in order", "r": "in order", "s": "in order"}


def test_a_number_that_stays(tmp_path: Path) -> None:
    left = {f"e{n}x0.{n}": b for n, b in enumerate(BLOCKS)}
    found, _ = rules(tmp_path, left, {f"h{n}": near(b) for n, b in enumerate(BLOCKS)})
    assert found.rules[0].name == r"e\1x0.\1"


def test_a_transposed_tensor(tmp_path: Path) -> None:
    """The order of axes that names.toml needs, of three axes of which two are equal."""
    x = normal(4, 4, 3)
    found, text = rules(tmp_path, {"a": x}, {"b": near(x).transpose(2, 1, 0)})
    assert found.rules[0].transpose == (2, 1, 0)
    after = renamed(open_side(tmp_path / "c"), read_names(tmp_path / "names.toml"), "candidate")
    np.testing.assert_allclose(after.tensors["a"].load(), x, rtol=1e-4)
    assert "#   the axes stand in another order\n" in text and "transpose = [2, 1, 0]" in text


def test_one_name_and_other_axes(tmp_path: Path) -> None:
    x, y = normal(4, 6), normal(3, 3)
    left, right = {"w": x, "v": y, "u": x}, {"w": near(x).T, "v": y.T, "u": x[:2]}
    found, text = rules(tmp_path, left, right)
    assert [(r.match, r.name, r.transpose) for r in found.rules] == [("w", "w", (1, 0))]
    assert found.unlike == {
        "w": "float32 [4, 6] and float32 [6, 4]",
        "u": "float32 [4, 6] and float32 [2, 6]",
    }
    assert "nothing fits" not in text


def test_orders_of_axes() -> None:
    assert orders((4, 3), (3, 4)) == [(1, 0)]
    assert orders((4, 4), (4, 4)) == [(0, 1), (1, 0)]
    assert orders((1, 5), (5, 1)) == [(1, 0)] and orders((1, 1), (1, 1)) == [(0, 1)]
    assert orders((4, 3), (4, 4)) == [] and orders((), ()) == [()]
    assert len(orders((2,) * 7, (2,) * 7)) == 3


def test_what_fits_two_alike_is_open(tmp_path: Path) -> None:
    x, y = normal(5, 6), normal(5, 6, seed=3)
    right = {"p": near(x), "q": near(x, 98), "s": near(y), "z": 9 + x}
    found, text = rules(tmp_path, {"a": x, "b": y}, right)
    assert [(r.match, r.name) for r in found.rules] == [("s", "b")]
    assert {f.candidate for f in found.ambiguous["a"]} == {"p", "q"}
    assert "# open: a may be one of\n#   " in text and "match = 'p'" not in text
    assert text.endswith("\n# nothing fits, on the candidate:\n#   z  float32 [5, 6]\n")


def test_a_settled_pair_settles_another(tmp_path: Path) -> None:
    """q is nearly p; once p is a's, q can only be b's."""
    x = normal(5, 6)
    y = (x * 1.02).astype(np.float32)
    found, _ = rules(tmp_path, {"a": x, "b": y}, {"p": near(x), "q": near(y)})
    assert {(r.match, r.name) for r in found.rules} == {("p", "a"), ("q", "b")}


def test_a_pattern_settles_what_was_open(tmp_path: Path) -> None:
    """Two blocks of equal values: the other blocks say which is which."""
    same = [*BLOCKS[:2], BLOCKS[3], BLOCKS[3]]
    left = {f"enc.{n}": b for n, b in enumerate(same)}
    found, text = rules(tmp_path, left, {f"h.{n}": near(b, n) for n, b in enumerate(same)})
    assert [(r.match, r.name) for r in found.rules] == [(r"h\.(\d+)", r"enc.\1")]
    assert len(found.rules[0].pairs) == 2 and not found.ambiguous and "open" not in text
    assert "nothing fits" not in text


def test_broken_values_are_told_by_statistics_or_shape(tmp_path: Path) -> None:
    x, y = normal(50, 60), normal(7, 9)
    left, right = {"a": x, "b": y}, {"p": np.roll(x, 1, 0), "q": y + 50}
    found, text = rules(tmp_path, left, right)
    assert [(r.pairs[0].grade, r.match) for r in found.rules] == [("likely", "p"), ("weak", "q")]
    assert "# likely: statistics agree to 0 of the rms, in order\n" in text
    assert "# weak: shape and dtype alone, float32 [7, 9]; the values differ, in order\n" in text


def test_shapes_alone_decide_only_where_there_is_no_rival(tmp_path: Path) -> None:
    """Of ten alike with other values nothing is told; of two, one settled, the other one is."""
    left = {f"a.{n}": normal(5, seed=n) for n in range(10)}
    left |= {"x": normal(7, 3), "y": normal(7, 3, seed=1)}
    right = {f"{n}b": 9 + normal(5, seed=50 + n) for n in range(10)}
    right |= {"p": near(left["x"]), "q": 9 + left["y"]}
    found, text = rules(tmp_path, left, right)
    assert {(r.match, r.name, r.pairs[0].grade) for r in found.rules} == {
        ("p", "x", "sure"),
        ("q", "y", "weak"),
    }
    assert set(found.ambiguous) == {f"a.{n}" for n in range(10)}
    assert "#   7b: shape and dtype alone, float32 [5]; the values differ\n#   and 2 more\n" in text


def test_few_entries_are_never_sure(tmp_path: Path) -> None:
    found, _ = rules(tmp_path, {"a": normal(3)}, {"p": near(normal(3))})
    assert [(r.match, r.pairs[0].grade) for r in found.rules] == [("p", "likely")]


def test_other_shapes_kinds_and_calls_do_not_fit(tmp_path: Path) -> None:
    x = normal(4, 6)
    left = {"a": x, "i": np.arange(5), "twice": x[:2], "twice#1": x[2:]}
    right = {"p": x.reshape(6, 4)[:5], "q": np.arange(5.0), "r": x[:2]}
    found, text = rules(tmp_path, left, right)
    assert not found.rules and not found.ambiguous
    assert "# nothing fits, on the reference:\n#   a  float32 [4, 6]\n#   i  int64 [5]\n" in text
    assert "# nothing fits, on the candidate:\n#   p  float32 [5, 4]\n" in text


def test_another_width_of_a_number_fits(tmp_path: Path) -> None:
    left = {"ids": np.arange(9, dtype=np.int64), "x": normal(4, 6).astype(np.float16)}
    right = {"tokens": np.arange(9, dtype=np.int32), "h": left["x"].astype(np.float32)}
    found, _ = rules(tmp_path, left, right)
    assert {(r.match, r.name) for r in found.rules} == {("tokens", "ids"), ("h", "x")}


def test_a_pattern_leaves_names_that_match_alone(tmp_path: Path) -> None:
    """h.7 stands on both sides: the rule for h.0 and h.1 must not rename it."""
    left = {"e.0": BLOCKS[0], "e.1": BLOCKS[1], "h.7": BLOCKS[2]}
    right = {"h.0": near(BLOCKS[0]), "h.1": near(BLOCKS[1]), "h.7": near(BLOCKS[2])}
    found, _ = rules(tmp_path, left, right)
    assert [(r.match, r.name) for r in found.rules] == [(r"h\.0", "e.0"), (r"h\.1", "e.1")]
    after = renamed(open_side(tmp_path / "c"), read_names(tmp_path / "names.toml"), "candidate")
    assert set(after.tensors) == set(left)


def test_non_finite_entries_in_the_same_number_fit(tmp_path: Path) -> None:
    x = normal(8, 8)
    x[0, :3] = -np.inf
    found, _ = rules(tmp_path, {"a": x, "b": normal(8, 8, seed=2)}, {"p": x.copy()})
    assert [(r.match, r.name) for r in found.rules] == [("p", "a")]


def test_another_number_of_non_finite_entries_does_not(tmp_path: Path) -> None:
    x = normal(8, 8)
    broken = x.copy()
    broken[0, :3] = np.nan
    found, _ = rules(tmp_path, {"a": x}, {"p": broken})
    assert [r.pairs[0].grade for r in found.rules] == ["weak"]


def test_a_large_tensor_is_sampled(tmp_path: Path) -> None:
    x, y = normal(100, 110), normal(100, 110, seed=5)
    found, _ = rules(tmp_path, {"a": x, "b": y}, {"p": near(y).T, "q": near(x).T})
    assert {(r.match, r.name) for r in found.rules} == {("p", "b"), ("q", "a")}
    assert {r.transpose for r in found.rules} == {(1, 0)}


def test_a_quote_in_a_name(tmp_path: Path) -> None:
    found, _ = rules(tmp_path, {"a": BLOCKS[0]}, {'it\'s "b"': near(BLOCKS[0])})
    assert found.rules[0].renames('it\'s "b"') == "a"


# --- the command -----------------------------------------------------------------------------


def test_without_suggest_names_are_listed(tmp_path: Path, capsys: Captured) -> None:
    left = {"a": BLOCKS[0], "b": BLOCKS[1], "d": BLOCKS[3]}
    sides(tmp_path, left, {"b": BLOCKS[1], "c": BLOCKS[2][:2], "d": BLOCKS[3].T})
    both = [str(tmp_path / n) for n in "rc"]
    assert main(["gate", "names", *both]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [" ".join(line) for line in lines] == [
        "2 names on both sides, 1 of another shape or dtype:",
        "d float32 [6, 8] and float32 [8, 6]",
        "1 name on the reference alone:",
        "a float32 [6, 8]",
        "1 name on the candidate alone:",
        "c float32 [2, 8]",
    ]
    assert matching(*map(open_side, both)).both == ("b", "d")


def test_the_file_is_written_once(tmp_path: Path, capsys: Captured) -> None:
    sides(tmp_path, {"a": BLOCKS[0]}, {"p": near(BLOCKS[0])})
    command = ["gate", "names", str(tmp_path / "r"), str(tmp_path / "c")]
    assert main([*command, "--suggest"]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "n.toml"
    assert main([*command, "--suggest", "--output", str(file)]) == 0
    assert file.read_text() == printed and "[[candidate]]" in printed
    out = capsys.readouterr().out
    assert out == f"{file}: 1 rule proposed for {tmp_path / 'c'}, 0 open; read them before use\n"
    assert main([*command, "--suggest", "--output", str(file)]) == 3
    err = capsys.readouterr().err
    assert f"the file exists\n  at {file}\n  name another one; merge by hand" in err
    assert main([*command, "--output", str(tmp_path / "m.toml")]) == 3
    assert "there is nothing to write\n  at --output\n  add --suggest" in capsys.readouterr().err
    assert main([*command, "--names", str(file)]) == 0
    assert capsys.readouterr().out.startswith("1 name on both sides\n0 names on the reference")
