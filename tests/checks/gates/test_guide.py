"""The guide: every example of docs/gates.md is run in its order, and what it prints is real."""

import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.command import COMMANDS
from checks.gates.formats.manifest import ROLES, RunInfo, Tensor
from checks.gates.formats.readers import open_side
from checks.gates.limits.contract import read_contract
from checks.gates.naming.names import read_names
from tests.checks.gates.sides import write_limits

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "gates.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
HEAVY = ("torch", "jax")  # in processes of their own: they are not loaded twice into one
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def of(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def heavy(text: str) -> bool:
    return any(f"import {name}" in text for name in HEAVY)


def file_of(text: str) -> str:
    """The name of the file that a block is, from its first line."""
    found = re.match(r"# (\w+\.py)\n", text)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The folder in which everything was run, and a line printed and expected for each command."""
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(folder)]))
        patch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
        seen: list[tuple[str, str, str]] = []
        for language, text in BLOCKS:
            if language == "console":
                seen += _console(text)
            elif language == "python" and file_of(text):
                (folder / file_of(text)).write_text(text)
            elif language == "python" and not heavy(text):
                exec(compile(text, "docs/gates.md", "exec"), {"__name__": "__main__"})
        yield folder, seen
    sys.modules.pop("port", None)


def _console(text: str) -> list[tuple[str, str, str]]:
    seen, code = [], 0
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        stream = io.StringIO()
        if command == "echo $?":
            print(code, file=stream)
        else:
            words = shlex.split(command)
            assert words[0] == "gradsweep"
            with redirect_stdout(stream), redirect_stderr(stream):
                code = main(words[1:])
        seen.append((command, stream.getvalue(), expected))
    return seen


def masked(text: str) -> list[str]:
    """Lines without their numbers: last digits are those of the machine."""
    lines = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", text).splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def test_what_is_printed_is_real(guide: Any) -> None:
    _, seen = guide
    assert len(seen) >= 11
    for command, printed, expected in seen:
        assert masked(printed) == masked(expected), command


def test_masked_keeps_words() -> None:
    assert masked("ok  a.1  max 3.2e-05 ≤ 1") == masked("ok a.2 max 0 ≤ 1.5e+03")
    assert masked("ok  a.1") != masked("FAIL  a.1")


@pytest.mark.slow
@pytest.mark.parametrize("package", HEAVY)
def test_the_frameworks_examples_dump(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (text,) = [t for t in of("python") if f"import {package}" in t]
    _run("-W", "error", "-c", text, cwd=tmp_path)
    (folder,) = tmp_path.iterdir()
    names = list(open_side(folder).tensors)
    if package == "torch":
        assert names[:3] == [f"enc.block.{n}.out" for n in (0, 2, 4)]
        assert "grad.enc.block.4.out" in names and "grad.param.0.weight" in names
    else:
        assert names == ["enc.final"]


@pytest.mark.slow
def test_the_test_passes_and_fails(guide: Any) -> None:
    folder, _ = guide
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    installed = importlib.metadata.entry_points(group="pytest11")
    plugin = () if any(e.name == "gradsweep" for e in installed) else ("-p", "checks.plugin")
    command = ["-m", "pytest", *plugin, "-p", "no:cacheprovider", "test_port.py"]
    assert "1 passed" in _run(*command, cwd=folder)
    file = folder / "test_port.py"
    file.write_text(file.read_text().replace("forward(d)", "forward(d, wrong)").replace(
        "import forward", "import forward, wrong"))  # fmt: skip
    assert "first enc.block.1.out" in _run(*command, cwd=folder, code=1)


def _run(*command: str, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(cwd)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


MAIN = """
int main(int argc, char **argv) {
    float x[6] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 2.5f}, y[4] = {-1.0f, 3.0f, 0.25f, 8.0f};
    if (argc < 2) return 2;
    return dump_begin(argv[1]) || dump(argv[1], "enc.in", 0, x, 2, 3)
           || dump(argv[1], "enc.out", 0, y, 4, 1) || decode(argv[1], x, 3);
}
"""


def test_the_c_function_writes_a_dump(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    (source,) = of("c")
    (tmp_path / "dump.c").write_text(source + MAIN)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / "dump")]
    subprocess.run([compiler, *flags, str(tmp_path / "dump.c")], check=True, timeout=60)
    (tmp_path / "c").mkdir()
    for _ in range(2):  # a second run into the folder is no error
        subprocess.run([str(tmp_path / "dump"), str(tmp_path / "c")], check=True, timeout=60)
    with gates.Dump(tmp_path / "r", side="reference") as d:
        d.put("enc.in", np.arange(6, dtype=np.float32).reshape(2, 3) / 2)
        d.put("enc.out", np.array([[-1], [3], [0.25], [8]], np.float32))
        for step in range(3):
            d.put("dec.logits_raw", np.array([[step, step + 0.5]], np.float32))
    exact = {"max_abs": 0.0, "mean_abs": 0.0}
    every = dict.fromkeys(["enc.in", "enc.out", "dec.logits_raw"], exact)
    limits = write_limits(tmp_path / "t.json", every)
    assert gates.compare(tmp_path / "r", tmp_path / "c", limits).ok
    calls = ["dec.logits_raw", "dec.logits_raw#1", "dec.logits_raw#2"]
    assert list(open_side(tmp_path / "c").tensors) == ["enc.in", "enc.out", *calls]
    program = [str(tmp_path / "dump"), str(tmp_path / "none")]
    missing = subprocess.run(program, timeout=60, capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert missing.stderr == f"{tmp_path / 'none'}/manifest.jsonl: No such file or directory\n"


def test_the_files_are_read_as_printed(tmp_path: Path) -> None:
    (tolerances,), (names,) = of("json"), of("toml")
    (tmp_path / "t.json").write_text(tolerances)
    (tmp_path / "names.toml").write_text(names)
    limits = read_contract(tmp_path / "t.json").limits
    assert limits["enc.final"].passes(0.00024, 1e-5) and limits["dec.probs"].comment
    rules = read_names(tmp_path / "names.toml")
    assert len(rules.rules["candidate"]) == 2
    assert rules.role("dec.probs", "gate") == "informational"


def test_commands_stand_in_the_order_of_the_help() -> None:
    rows = re.findall(r"^\| (`.*) \| .* \|$", GUIDE.partition("## Commands")[2], re.MULTILINE)
    named = [word for row in rows for word in re.findall(r"`(\w+) [A-Z-]", row)]
    assert tuple(named[: len(COMMANDS)]) == COMMANDS


def test_commands_fields_and_roles_are_all_named() -> None:
    text = GUIDE.replace("`gradsweep gate ", "`")
    missing = [name for name in COMMANDS if f"`{name} " not in text]
    every = [f.name for kind in (Tensor, RunInfo) for f in fields(kind)]
    missing += [n for n in (*every, *ROLES) if f"`{n}`" not in text and n != "finished"]
    assert missing == []
    assert {"gate", "informational", "debug"} == set(ROLES)
