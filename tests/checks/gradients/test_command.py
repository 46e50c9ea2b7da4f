"""`gradsweep check`: a function of a file at arrays of files; verdicts, JSON and mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checks import cli
from checks.domains import Domain
from checks.gradients.inputs import InputError, argument, arguments

ROOT = Path(__file__).parents[3]

SOURCE = """
import numpy as np
from helper import scale


def loss(x, w=2.0, *, b=0.0):
    return np.sum(np.tanh(x * w + b)) * scale


def sine(x):
    return np.sin(x)


def right(x, ct):
    return (ct * np.cos(x),)


def wrong(x, ct):
    return (2.0 * ct * np.cos(x),)


def relu(x):
    return np.maximum(x, 0.0)


def matmul(a, b):
    return a @ b


def dot(p):
    return p["w"] @ p["x"]


class Model:
    @staticmethod
    def loss(x):
        return np.sin(x)


number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text("scale = 1.5\n")
    (tmp_path / "broken.py").write_text("import numpy as np\nx = 1 / 0\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    np.save(tmp_path / "x.npy", np.array([[0.5, 1.0], [2.0, -1.0]]))
    np.save(tmp_path / "objects.npy", np.array([1, "a", None], dtype=object))
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.savez(tmp_path / "data.npz", w=np.ones(2), v=np.zeros(3))
    (tmp_path / "corrupt.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "corrupt.npz").write_bytes(b"PK\x03\x04 and nothing else")
    (tmp_path / "tree.json").write_text('{"w": [1.0, 2.0], "x": [0.5, 0.25]}')
    (tmp_path / "ragged.json").write_text("[[1.0], [1.0, 2.0]]")
    (tmp_path / "bad.json").write_text('{"w": [1.0,')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [n for n in sys.modules if n.startswith("gradsweep_check_")] + ["helper"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def check(*words):
    return cli.main(["check", *words])


def test_a_right_function_exits_0_with_its_report(folder, capsys):
    words = ("--args", "normal(3,4)", "b=2.5", "--order", "2")
    assert check("own.py::loss", *words, "--seed", "7", "--json", "out/report.json") == 0
    out = capsys.readouterr().out
    assert "PASS" in out.splitlines()[0] and "loss" in out.splitlines()[0]
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["ok"] is True and report["seed"] == 7 and report["evaluations"] > 0
    assert any(c["name"].startswith("second") for c in report["checks"])


def test_a_wrong_gradient_exits_1_and_names_its_entry(folder, capsys):
    assert check("own.py::sine", "--args", "x.npy", "--vjp", "own.py::right") == 0
    assert check("own.py::sine", "--args", "x.npy", "--vjp", "own.py::wrong") == 1
    out = capsys.readouterr().out
    assert "WRONG" in out and "x[" in out
    assert "gradsweep check own.py::sine --args x.npy --vjp own.py::wrong" in out


def test_kinks_pass_where_they_are_allowed(folder, capsys):
    assert check("own.py::relu", "--args", "[0.0, 1.0]") == 1
    assert "KINK" in capsys.readouterr().out
    assert check("own.py::relu", "--args", "[0.0, 1.0]", "--allow", "kinks") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("own.py::matmul", "--args", "x.npy", "data.npz:w"),
        ("own.py::matmul", "--args", "b=data.npz:w", "a=x.npy", "--argnums", "b"),
        ("own.py::dot", "--args", "tree.json"),
        ("own.py::matmul", "--args", "spd(2)", "[[1.0, 2.0], [3.0, 4.0]]"),
        ("own.py::sine", "--args", "0.5", "--modes", "reverse", "--tolerance", "1e-6"),
        ("own.py::Model.loss", "--args", "between(-1, 1, 2)"),
    ],
    ids=["files", "by name", "json", "expressions", "number", "dotted"],
)
def test_arguments(folder, words):
    assert check(*words) == 0


def test_a_jax_function(folder):
    pytest.importorskip("jax")
    (folder / "jaxed.py").write_text("import jax.numpy as jnp\ndef f(x):\n    return jnp.sin(x)\n")
    assert check("jaxed.py::f", "--args", "normal(3)") == 0
    assert check("jaxed.py::f", "--args", "normal(3)", "--framework", "jax") == 0


MISTAKES = [
    (("own.py",), "'own.py' names no function"),
    (("owm.py::loss",), "there is no file owm.py|did you mean 'own.py'"),
    (("own.py::los",), "there is no function 'los'|in own.py|did you mean 'loss'?"),
    (("own.py::number",), "'number' is a int, no function"),
    (("broken.py::f",), "importing broken.py fails: ZeroDivisionError|broken.py:2"),
    (("syntax.py::f",), "importing syntax.py fails: SyntaxError|syntax.py"),
    (("own.py::sine",), "without a value for its argument x|add them after --args"),
    (("own.py::sine", "--args", "1.0", "2.0"), "takes 1 argument by position, args= holds 2"),
    (("own.py::sine", "--args", "y=1.0"), "has no argument 'y'|its arguments: x"),
    (("own.py::sine", "--args", "1.0", "x=2.0"), "x is given by place and by name"),
    (("own.py::sine", "--args", "x=1.0", "x=2.0"), "x is given twice"),
    (("own.py::sine", "--args", "no.npy"), "there is no file no.npy"),
    (("own.py::sine", "--args", "no.json"), "no.json cannot be read"),
    (("own.py::sine", "--args", "corrupt.npy"), "corrupt.npy is corrupt"),
    (("own.py::sine", "--args", "empty.npy"), "empty.npy is corrupt"),
    (("own.py::sine", "--args", "corrupt.npz:w"), "corrupt.npz:w is corrupt"),
    (("own.py::sine", "--args", "objects.npy"), "holds pickled objects, which are not loaded"),
    (("own.py::sine", "--args", "text.npy"), "entries, not numbers"),
    (("own.py::sine", "--args", "data.npz"), "data.npz holds 2 arrays|data.npz:KEY, of w, v"),
    (("own.py::sine", "--args", "data.npz:ww"), "has no array 'ww'|did you mean 'w'"),
    (("own.py::sine", "--args", "x.npy:w"), "x.npy has no key 'w'"),
    (("own.py::sine", "--args", "bad.json"), "bad.json is no JSON"),
    (("own.py::sine", "--args", "ragged.json"), "ragged.json is no array"),
    (("own.py::sine", "--args", "norml(3)"), "there is no domain 'norml'|did you mean 'normal'"),
    (("own.py::sine", "--args", "normal(-3)"), "-3 is not the length of an axis"),
    (("own.py::sine", "--args", "normal(n)"), "'normal(n)' is no domain"),
    (("own.py::sine", "--args", "__import__('os')"), "there is no domain '__import__'"),
    (("own.py::sine", "--args", "x.npz.__class__"), "is neither a file nor a value"),
    (("own.py::sine", "--args", "1 +"), "is neither a file nor a value"),
    (("own.py::sine", "--args", "[1, 2]"), "has no argument to differentiate"),
    (("own.py::sine", "--args", "1.0", "--framework", "jaxx"), "did you mean 'jax'"),
    (("own.py::sine", "--args", "1.0", "--allow", "kink"), "did you mean 'kinks'"),
    (("own.py::sine", "--args", "1.0", "--modes", "revers"), "did you mean 'reverse'"),
    (("own.py::sine", "--args", "1.0", "--vjp", "own.py::wong"), "did you mean 'wrong'"),
    (("own.py::sine", "--args", "1.0", "--seed", "-1"), "--seed -1 is negative"),
    (("own.py::sine", "--args", "1.0", "--argnums", "3"), "argument 3 holds no array"),
    (("own.py::matmul", "--args", "[1.0]", "[1.0,2.0]"), "matmul raises ValueError|own.py:"),
    (("own.py::sine", "--args", "1.0", "--json", "own.py/x.json"), "cannot be written"),
]


@pytest.mark.parametrize(("words", "texts"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_three_lines_and_exit_2(folder, capsys, words, texts):
    assert check(*words) == 2
    error = capsys.readouterr().err
    for text in texts.split("|"):
        assert text in error
    assert error.startswith("gradsweep: ") and len(error.splitlines()) <= 3
    assert "Traceback" not in error


def test_usage_errors_exit_2(folder, capsys):
    with pytest.raises(SystemExit) as caught:
        check("own.py::sine", "--order", "4")
    assert caught.value.code == 2 and "invalid choice" in capsys.readouterr().err


def test_values_are_parsed_and_never_evaluated():
    placed, named = arguments(["2", "True", "None", "'text'", "[[1, 2]]", "n=(1.5, 2)"])
    assert placed[:4] == [2, True, None, "text"]
    np.testing.assert_array_equal(placed[4], [[1, 2]])
    np.testing.assert_array_equal(named["n"], [1.5, 2])
    assert isinstance(argument("integers(0, 3, 4)"), Domain)
    assert isinstance(argument("normal(3, dtype='float32')"), Domain)
    for text in ("open('x')", "(lambda: 1)()", "1 if True else 2", "x", "[y for y in (1,)]"):
        with pytest.raises(InputError):
            argument(text)


@pytest.mark.slow
def test_the_installed_command(folder):
    done = subprocess.run(
        [sys.executable, "-m", "checks", "check", "own.py::sine", "--args", "normal(2)"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and "PASS" in done.stdout, done.stderr
