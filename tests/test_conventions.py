"""Every row of docs/conventions.md is what the engine answers, in both modes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import autodiff as ad
from autodiff import ops

DOCUMENT = Path(__file__).parents[1] / "docs" / "conventions.md"
ROW = re.compile(r"^\| `(.+?)` \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
ROWS = ROW.findall(DOCUMENT.read_text())
NAMES = {"np": np, "ops": ops, "special": special, "inf": np.inf, "nan": np.nan}


def arrays(text: str) -> list[np.ndarray]:
    found = eval(f"({text},)", dict(NAMES))
    return [np.asarray(v, np.complex128 if np.iscomplexobj(v) else np.float64) for v in found]


def test_the_document_has_rows() -> None:
    assert len(ROWS) >= 50
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize(("expression", "at", "gradient"), ROWS, ids=lambda text: text[:40])
def test_a_row_is_what_the_engine_answers(expression: str, at: str, gradient: str) -> None:
    point, want = arrays(at), arrays(gradient)
    code = compile(expression, str(DOCUMENT), "eval")

    def f(*args: Any) -> Any:
        return eval(code, {**NAMES, **dict(zip("xyz", args, strict=False))})

    nums = tuple(range(len(point)))
    with np.errstate(all="ignore"):
        found = {"reverse": ad.grad(f, nums)(*point)}
        if not np.iscomplexobj(point[0]):
            found["forward"] = tuple(ad.jacfwd(f, n)(*point) for n in nums)
    for mode, slopes in found.items():
        for got, right in zip(slopes, want, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-14, atol=1e-15, err_msg=mode)
