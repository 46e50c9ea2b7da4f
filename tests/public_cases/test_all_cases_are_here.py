"""The table holds exactly the forty cases, and every right answer in it is held by a test."""

import ast
import re
from pathlib import Path

import pytest

from tests.public_cases.cases import Right, cases

FORTY = """
A01 A02 A03 A05 A06 A08 A10 B01 B03 B04 B06 C01 C03 C04 C05 C07 D01 D03 D06 D07
E01 E03 E04 E06 E08 F01 F02 F05 F06 F07 G01 G02 G03 G05 H01 H03 H04 H06 H07 H08
""".split()
FILES = {p.name: p.read_text() for p in sorted(Path(__file__).parent.glob("test_*.py"))}


def test_the_table_holds_exactly_the_forty() -> None:
    assert len(FORTY) == 40
    assert list(cases()) == FORTY


def ids_by_file() -> dict[str, set[str]]:
    """Ids of cases by the files that have a test named after them."""
    return {
        name: {i.upper() for i in re.findall(r"^def test_([a-h]\d\d)_", text, re.MULTILINE)}
        for name, text in FILES.items()
    }


def test_the_folder_tests_exactly_the_forty() -> None:
    assert set().union(*ids_by_file().values()) == set(FORTY)


@pytest.mark.parametrize("case", FORTY)
def test_a_case_is_complete(case: str) -> None:
    found = cases()[case]
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", found.repository)
    assert found.number > 0 and found.kind in ("issue", "pull request")
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", also) for also in found.also)
    assert case in ids_by_file()[found.test]
    assert found.title and len({r.what for r in found.right}) == len(found.right) > 0
    for answer in found.right:
        kinds = (answer.value, answer.between, answer.one_of, answer.verdict)
        assert sum(k is not None for k in kinds) == 1, answer.what


def test_every_right_answer_is_named_by_a_test() -> None:
    strings = {
        node.value
        for text in FILES.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unheld = [
        f"{case.id}: {answer.what}"
        for case in cases().values()
        for answer in case.right
        if answer.what not in strings
    ]
    assert not unheld


def test_a_wrong_answer_does_not_hold() -> None:
    close = Right("X", "x", value=[1.0, "inf"], rtol=1e-9)
    close.holds([1.0 + 1e-10, float("inf")])
    for got in ([1.0 + 1e-8, float("inf")], [1.0, float("-inf")], [1.0, float("nan")], [1.0]):
        with pytest.raises(AssertionError, match="X, x"):
            close.holds(got)
    with pytest.raises(AssertionError):
        Right("X", "x", value=["nan"]).holds([float("nan")])
    for answer in (Right("X", "x", between=([0.0], [1.0])), Right("X", "x", one_of=([0.0], [1.0]))):
        answer.holds([1.0])
        with pytest.raises(AssertionError, match="right is"):
            answer.holds([1.5])
        with pytest.raises(AssertionError):
            answer.holds([float("nan")])
    zero = Right("X", "x", value=0.0, rtol=1e-9)
    with pytest.raises(AssertionError):
        zero.holds(1e-30, narrow=True)
