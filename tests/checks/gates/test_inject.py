"""The injection folder: a C program and a Python one, each part on the reference's inputs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from checks import gates
from checks.cli import main
from checks.gates.blocks.block import Block
from checks.gates.blocks.injection import Injection, injected
from checks.gates.blocks.isolated import Isolation
from checks.gates.blocks.running import emptied, run_command, status
from checks.gates.capture.inject import inject
from checks.gates.errors import GateError
from checks.gates.formats.readers import open_side
from tests.checks.gates.sides import normal, write_side

LAYERS, WIDTH = 6, 8
PORT = Path(__file__).with_name("port.c")
Captured = pytest.CaptureFixture[str]


def parameters() -> tuple[Any, list[Any], list[Any]]:
    x = normal(WIDTH, seed=100)
    w = [0.6 * normal(WIDTH, WIDTH, seed=n) for n in range(LAYERS)]
    return x, w, [0.3 * normal(WIDTH, seed=50 + n) for n in range(LAYERS)]


def layer(w: Any, x: Any) -> Any:
    return np.tanh(w["w"] @ x + w["b"])


def blocks() -> tuple[Block, ...]:
    """A Python model that is right, for the order and the causes."""
    _, w, b = parameters()
    names = ["x", *(f"layer.{n}.out" for n in range(LAYERS))]
    return tuple(
        Block(names[n + 1], (names[n],), layer, {"w": w[n], "b": b[n]}) for n in range(LAYERS)
    )


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled port, its weights and the reference's dump."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("port")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", folder / "port", PORT, "-lm"], check=True)
    x, w, b = parameters()
    parts = [x, *(v for pair in zip(w, b, strict=True) for v in pair)]
    (folder / "weights").write_bytes(b"".join(v.tobytes() for v in parts))
    with gates.Dump(folder / "reference", side="reference", command="") as d:
        y = d.put("x", x, role="debug")
        for n in range(LAYERS):
            y = d.put(f"layer.{n}.out", layer({"w": w[n], "b": b[n]}, y))
    return folder


def command(port: Path, *faulty: int) -> str:
    words = [port / "port", port / "weights", LAYERS, WIDTH, *faulty]
    return " ".join(str(w) for w in words)


def verdicts(found: Isolation) -> list[str]:
    return [r.verdict for r in found.rows]


def test_a_c_program(port: Path, tmp_path: Path) -> None:
    candidate = run_command(command(port, 3), tmp_path / "plain" / "out")
    injection = injected(tmp_path / "work", port / "reference")
    injection.run(command(port, 3))
    found = injection.read(candidate=candidate)
    assert [r.output for r in found.rows if r.verdict == "own"] == ["layer.3.out"]
    assert verdicts(found) == ["ok", "ok", "ok", "own", "inherited", "inherited"]
    row = found.rows[4]
    assert row.output == "layer.4.out" and row.inputs == ("layer.3.out",)
    assert row.own_error is not None and row.own_error < 1e-6
    assert row.amplification is not None and 0.1 < row.amplification < 10
    assert found.exit_code == 1


def test_a_good_c_program(port: Path, tmp_path: Path) -> None:
    injection = injected(tmp_path / "work", port / "reference")
    injection.run(command(port))
    found = injection.read()
    assert verdicts(found) == ["ok"] * LAYERS


def test_the_cause_comes_from_a_python_model(port: Path, tmp_path: Path) -> None:
    injection = injected(tmp_path / "work", port / "reference")
    injection.run(command(port, 1, 4))
    found = injection.read(blocks=blocks())
    own = [r for r in found.rows if r.verdict == "own"]
    assert [r.output for r in own] == ["layer.1.out", "layer.4.out"]
    for row in own:
        assert row.cause is not None and row.cause.name == "transposed weight"


def test_what_is_not_dumped_is_named(port: Path, tmp_path: Path) -> None:
    injection = injected(tmp_path / "work", port / "reference")
    short = f"{port / 'port'} {port / 'weights'} 4 {WIDTH}"
    injection.run(short)
    found = injection.read(blocks=blocks())
    assert verdicts(found) == ["ok"] * 4 + ["unchecked"] * 2
    assert found.rows[4].note == f"the candidate did not dump it to {injection.out}"
    assert found.exit_code == 2


def test_a_program_that_does_not_take_them_is_refused(port: Path, tmp_path: Path) -> None:
    """Its hook compiled out, the candidate dumps the same as ever: that proves nothing."""
    candidate = run_command(command(port, 3), tmp_path / "plain" / "out")
    injection = injected(tmp_path / "work", port / "reference")
    run_command(command(port, 3), injection.out)  # GATE_INJECT_DIR is not set
    with pytest.raises(GateError, match="dumped the same with injected inputs") as error:
        injection.read(candidate=candidate)
    assert error.value.code == 2


def test_the_command(port: Path, tmp_path: Path, capsys: Captured) -> None:
    reference = str(port / "reference")
    candidate = str(run_command(command(port, 3), tmp_path / "plain" / "out"))
    work, file = str(tmp_path / "work"), tmp_path / "isolation.json"
    options = ["--command", command(port, 3), "--inject", work, "--json", str(file)]
    assert main(["gate", "isolate", reference, candidate, *options]) == 1
    one = capsys.readouterr().out.splitlines()
    ending = "FAIL: 3 of 6 rows fine, 1 wrong by itself, 2 inherited; first layer.3.out: "
    assert one[-1] == ending + "unclassified"
    assert json.loads(file.read_text())["own"] == ["layer.3.out"]
    assert main(["gate", "isolate", reference, candidate, "--prepare", work]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{work}/in: 7 tensors; run the candidate, then read it:"
    assert lines[1] == f"  GATE_INJECT_DIR={work}/in GATE_DUMP_DIR={work}/out CMD"
    assert lines[2] == f"  gradsweep gate isolate {reference} {candidate} --from {work}"
    told = {"GATE_INJECT_DIR": f"{work}/in", "GATE_DUMP_DIR": f"{work}/out"}
    subprocess.run(command(port, 3).split(), env=os.environ | told, check=True)
    assert main(["gate", "isolate", reference, candidate, "--from", work]) == 1
    assert capsys.readouterr().out.splitlines() == one


# --- a Python program ---------------------------------------------------------------------------

PROGRAM = """
import os
import sys

import numpy as np

from checks import gates
from tests.checks.gates.test_inject import LAYERS, layer, parameters

faulty = [int(a) for a in sys.argv[2:]]
x, w, b = parameters()
with gates.Dump(sys.argv[1], side="candidate", command="", overwrite=True) as d:
    for n in range(LAYERS):
        bias = 0 * b[n] if n in faulty else b[n]
        x = layer({"w": w[n], "b": bias}, x)
        x = gates.inject(f"layer.{n}.out", d.put(f"layer.{n}.out", x))
"""


def test_a_python_program(port: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", str(root))
    (tmp_path / "program.py").write_text(PROGRAM)
    injection = injected(tmp_path / "work", port / "reference")
    injection.run(f"{sys.executable} {tmp_path / 'program.py'} {{out}} 2 5", timeout=120)
    found = injection.read(blocks=blocks())
    assert verdicts(found) == ["ok", "ok", "own", "ok", "ok", "own"]
    assert {r.cause.name for r in found.rows if r.cause} == {"missing bias"}


def test_inject_gives_the_array_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [normal(3, 4, seed=n).astype(np.float16) for n in range(2)]
    write_side(tmp_path / "r", {"h": values[0], "h#1": values[1]})
    x = np.zeros((3, 4), np.float32)
    assert inject("h", x) is x  # nothing is set
    monkeypatch.setenv("GATE_INJECT_DIR", str(injected(tmp_path / "w", tmp_path / "r").given))
    assert inject("other", x) is x
    first = inject("h", x)
    assert first.dtype == np.float32 and np.array_equal(first, values[0])
    torch = pytest.importorskip("torch")
    second = inject("h", torch.zeros(3, 4, dtype=torch.float64))
    assert isinstance(second, torch.Tensor) and second.dtype == torch.float64
    assert np.array_equal(second.numpy(), values[1])
    assert inject("h", x) is x  # a third call that the reference has not
    with pytest.raises(GateError, match=r"'k' is \[2\] in the reference, \[3\] here"):
        write_side(tmp_path / "s", {"k": normal(2)})
        monkeypatch.setenv("GATE_INJECT_DIR", str(injected(tmp_path / "v", tmp_path / "s").given))
        inject("k", np.zeros(3))


def test_inject_takes_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_side(tmp_path / "r", {"h": normal(3)})
    monkeypatch.setenv("GATE_INJECT_DIR", str(injected(tmp_path / "w", tmp_path / "r").given))
    with pytest.raises(GateError, match="a traced value has no entries yet"):
        ad.trace(lambda x: inject("h", x), normal(3))


def test_modules_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate in PyTorch, one layer of which is off: hooks dump, then inject."""
    torch = pytest.importorskip("torch")

    class Pair(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return x, torch.tanh(self.linear(x))

    class Stack(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.ModuleList(Pair() for _ in range(4))

        def forward(self, x: Any) -> Any:
            for module in self.layers:
                x = module(x)[1]
            return x

    x, points = torch.linspace(-1, 1, 8).reshape(2, 4), {"layer.{N}.out": "layers.*:1"}
    model = Stack()
    with gates.Dump(tmp_path / "r", side="reference") as d:
        d.attach(model, points, pick="all")
        plain = model(x)
    with torch.no_grad():
        model.layers[1].linear.weight.mul_(1.5)
    injection = injected(tmp_path / "w", tmp_path / "r")
    with gates.Dump(injection.out, side="candidate") as d:
        d.attach(model, points, pick="all")
        monkeypatch.setenv("GATE_INJECT_DIR", str(injection.given))
        with gates.injecting(model, points):
            assert torch.equal(model(x), plain)
    assert verdicts(injection.read()) == ["ok", "own", "ok", "ok"]
    assert not any(m._forward_hooks for m in model.modules())
    with (
        pytest.raises(GateError, match="no place 'a' in it"),
        gates.injecting(model, {"layer.{N}.out": "layers.*:a"}),
    ):
        model(x)


# --- the folder ---------------------------------------------------------------------------------


def test_raw_files(tmp_path: Path) -> None:
    """What a C program reads: little-endian values alone; narrow floats as f32."""
    half = normal(2, 3).astype(ml_dtypes.bfloat16)
    tensors = {
        "a": normal(2, 3),
        "b": half,
        "c": half.astype(np.float16),
        "d": normal(3).astype(np.float64),
        "ids": np.arange(4),
        "mask": np.array([True, False]),
        "bytes": np.arange(3, dtype=np.uint8),
        "long": normal(300_000),  # more than one chunk
        "a#1": normal(1, 3),
        "grad.a": normal(2, 3),
    }
    write_side(tmp_path / "r", tensors)
    folder = injected(tmp_path / "w", tmp_path / "r").given
    files = {p.name for p in folder.iterdir()} - {"manifest.jsonl", "run.json"}
    ends = [
        "a.f32",
        "b.f32",
        "c.f32",
        "d.f64",
        "ids.i64",
        "mask.bool",
        "bytes.u8",
        "a#1.f32",
        "long.f32",
    ]
    assert files == {*ends, *(f"{e.rpartition('.')[0]}.json" for e in ends)}
    raw = np.frombuffer((folder / "b.f32").read_bytes(), "<f4").reshape(2, 3)
    assert np.array_equal(raw, half.astype(np.float32))
    sidecar = json.loads((folder / "b.json").read_text())
    assert sidecar == {"name": "b", "dtype": "f32", "shape": [2, 3], "layout": "row-major"}
    side = open_side(folder)
    assert side.run is not None and side.run.side == "injection"
    for key, value in tensors.items():
        if key != "grad.a":
            assert np.array_equal(
                side.tensors[key].load(), value.astype(side.tensors[key].load().dtype)
            )


def test_an_injection_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"a": normal(2), "b": normal(2)})
    injected(tmp_path / "w", tmp_path / "r")
    made = injected(tmp_path / "w", tmp_path / "r", only=["b"])
    assert list(open_side(made.given).tensors) == ["b"]
    assert {p.name for p in (tmp_path / "w").iterdir()} == {"in", "out", ".gradsweep"}
    (tmp_path / "mine" / "in").mkdir(parents=True)
    (tmp_path / "mine" / "in" / "thesis.txt").write_text("three years")
    with pytest.raises(GateError, match="holds something that is no injection"):
        injected(tmp_path / "mine", tmp_path / "r")
    (tmp_path / "other" / "out").mkdir(parents=True)
    (tmp_path / "other" / "out" / "data").write_text("")
    with pytest.raises(GateError, match="holds 1 files that no run left there"):
        injected(tmp_path / "other", tmp_path / "r")
    assert (tmp_path / "other" / "out" / "data").exists()
    with pytest.raises(GateError, match="there is no tensor 'c'"):
        injected(tmp_path / "w", tmp_path / "r", only=["c"])


def test_a_damaged_reference_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"a": normal(2)})
    injected(tmp_path / "w", tmp_path / "r")
    write_side(tmp_path / "s", {"b": normal(2)})
    (tmp_path / "s" / "b.bin").write_bytes(bytes(8))
    with pytest.raises(GateError, match="the values of 'b' have crc32"):
        injected(tmp_path / "w", tmp_path / "s")
    assert list(open_side(tmp_path / "w" / "in").tensors) == ["a"]


def test_no_tensor_in_common(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"a": normal(2)})
    write_side(tmp_path / "w" / "out", {"b": normal(2)})
    with pytest.raises(GateError, match="dumped no tensor of the reference's") as error:
        Injection(tmp_path / "w", tmp_path / "r").read()
    assert error.value.code == 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "the command is empty"),
        ("no-such-program-at-all", "the command cannot be started: No such file"),
        (f"{sys.executable} -c 'raise SystemExit(\"no weights\")'", "ended with code 1\n  | no we"),
        (f"{sys.executable} -c pass", "the command dumped nothing"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", r"took more than 0\.5 s"),
    ],
    ids=["empty", "absent", "failing", "silent", "slow"],
)
def test_a_command_that_fails_is_named(tmp_path: Path, line: str, text: str) -> None:
    limit = 0.5 if "sleep" in line else None
    with pytest.raises(GateError, match=text):
        run_command(line, tmp_path / "work" / "out", timeout=limit)


def test_what_a_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_INJECT_DIR", "of an outer run")
    out = tmp_path / "work" / "out"
    code = "import os,sys; open(sys.argv[1]+'/a','w').write(repr([os.environ.get('GATE_'+n) for n"
    code += " in ('INJECT_DIR','DUMP_DIR','DUMP_ONLY')]))"
    line = f'{sys.executable} -c "{code}" {{out}}'
    run_command(line, out)
    assert (out / "a").read_text() == repr([None, str(out), None])
    run_command(line, out, inject=tmp_path, only=["a", "b.c"])
    assert (out / "a").read_text() == repr([str(tmp_path), str(out), "a,b.c"])
    assert status([sys.executable, "-c", "raise SystemExit(1)"]) == 1
    with pytest.raises(GateError, match="ended with code 5"):
        status([sys.executable, "-c", "raise SystemExit(5)"])


def test_a_folder_is_emptied_only_where_runs_write(tmp_path: Path) -> None:
    out = emptied(tmp_path / "out")
    (out / "old").touch()
    assert list(emptied(out).iterdir()) == []
