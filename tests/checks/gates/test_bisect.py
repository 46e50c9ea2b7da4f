"""`gates.bisect`: in order, by dumping one tensor a run, and by replacing the first tensors."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.blocks.bisection import Bisection, Step, bisect
from checks.gates.blocks.block import Block
from checks.gates.blocks.replacing import bisect_replaced, chain
from checks.gates.errors import GateError
from checks.gates.formats.readers import open_side
from checks.gates.reports.bisection import verdict
from tests.checks.gates import stack
from tests.checks.gates.sides import normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
W = stack.weights()
NAMES = stack.all_names()
FAULTY = {**W, "2.q": W["2.q"].T.copy()}


def other_mlp(w: Any, x: Any) -> Any:
    return stack.mlp(w, x) + 0.01 * x


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bisect")
    stack.dump(folder / "reference", W)
    stack.dump(folder / "good", W, side="candidate")
    stack.dump(folder / "candidate", FAULTY, side="candidate")
    return folder


def off(name: str) -> dict[str, Any]:
    """The change that adds a hundredth of a sine to one part's output."""
    calls: dict[str, Callable[..., Any]] = {
        "embed": stack.embed,
        "attn": stack.attention,
        "mlp": stack.mlp,
        "logits": stack.head,
    }
    call = calls[name.rpartition(".")[2]]

    def changed(*given: Any) -> Any:
        y = call(*given)
        return y + np.float32(0.01) * np.sin(np.arange(y.shape[-1], dtype=np.float32))

    return {"head" if name == "logits" else name: changed}


class Candidate:
    """Runs the stack with dumping restricted, as GATE_DUMP_ONLY does; keeps what was asked."""

    def __init__(self, folder: Path, w: Any = FAULTY, changes: Any = None) -> None:
        self.folder, self.w, self.changes = folder, w, changes
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, names: Sequence[str]) -> Path:
        self.asked.append(tuple(names))
        folder = self.folder / str(len(self.asked))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GATE_DUMP_ONLY", ",".join(names))
            stack.dump(folder, self.w, self.changes, side="candidate")
        return folder


def test_in_order(dumps: Path) -> None:
    found = bisect(dumps / "reference", candidate=dumps / "candidate", blocks=stack.blocks(FAULTY))
    assert (found.last_good, found.first_bad) == ("1.mlp", "2.attn")
    assert [s.tensor for s in found.steps] == NAMES
    assert [s.verdict for s in found.steps] == ["good"] * 5 + ["bad"] * 5
    assert (found.runs, found.most, found.exit_code) == (0, 0, 1)
    assert found.between == ["2.attn"] and not found.unknown
    (own,) = found.own
    assert own.verdict == "own"
    assert own.cause is not None and own.cause.name == "transposed weight"


def test_nothing_is_off(dumps: Path) -> None:
    found = bisect(dumps / "reference", candidate=dumps / "good")
    assert verdict(found) == "PASS: nothing is off (10 tensors, no run)"
    assert (found.first_bad, found.exit_code, found.between) == (None, 0, [])


@pytest.mark.parametrize("place", range(len(NAMES)))
def test_by_running_again(dumps: Path, tmp_path: Path, place: int) -> None:
    """Whichever block is off, it is found in the number of runs promised."""
    name = NAMES[place]

    candidate = Candidate(tmp_path, W, off(name))
    found = bisect(dumps / "reference", candidate)
    assert found.first_bad == name
    assert found.last_good == (NAMES[place - 1] if place else None)
    assert found.most == 1 + math.ceil(math.log2(len(NAMES)))
    assert found.runs == len(candidate.asked) <= found.most
    assert all(len(names) == 1 for names in candidate.asked)
    assert len(set(candidate.asked)) == len(candidate.asked)


def test_what_a_first_dump_tells_is_not_run_for(dumps: Path, tmp_path: Path) -> None:
    """First, middle and last block are known: only what is in between is asked for."""
    known = tmp_path / "known"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE_DUMP_ONLY", "embed,1.mlp,3.mlp,logits")
        stack.dump(known, FAULTY, side="candidate")
    candidate = Candidate(tmp_path)
    found = bisect(dumps / "reference", candidate, candidate=known, blocks=stack.blocks(FAULTY))
    assert (found.last_good, found.first_bad) == ("1.mlp", "2.attn")
    assert {n for names in candidate.asked for n in names} <= {"2.attn", "2.mlp", "3.attn"}
    assert found.runs <= found.most == 2
    assert [s.number for s in found.steps][:4] == [0] * 4
    assert [r.output for r in found.own] == ["2.attn"]


def test_without_a_run_the_gap_is_named(dumps: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE_DUMP_ONLY", "embed,1.mlp,3.mlp,logits")
        stack.dump(tmp_path / "c", FAULTY, side="candidate")
    blocks = stack.blocks(FAULTY)
    found = bisect(dumps / "reference", candidate=tmp_path / "c", blocks=blocks)
    assert (found.last_good, found.first_bad) == ("1.mlp", "3.mlp")
    assert found.between == ["2.attn", "2.mlp", "3.attn", "3.mlp"]
    assert found.unknown == ["2.attn", "2.mlp", "3.attn"]
    assert [r.verdict for r in found.own] == ["own", "ok", "ok", "inherited"]


def test_a_run_that_dumps_everything_needs_no_other(dumps: Path) -> None:
    asked = []

    def run(names: Sequence[str]) -> Path:
        asked.append(names)
        return dumps / "candidate"

    found = bisect(dumps / "reference", run)
    assert (found.first_bad, asked) == ("2.attn", [("logits",)])


def test_a_run_that_dumps_something_else_is_refused(dumps: Path, tmp_path: Path) -> None:
    other = Candidate(tmp_path)
    with pytest.raises(GateError, match="the run did not dump 'logits'") as error:
        bisect(dumps / "reference", lambda names: other(("embed",)))
    assert error.value.code == 2


def test_what_cannot_be_searched(dumps: Path, tmp_path: Path) -> None:
    with pytest.raises(GateError, match="there is nothing to compare with"):
        bisect(dumps / "reference")
    with pytest.raises(GateError, match=r"no tensor to look at that matches 'dec\.\*'"):
        bisect(dumps / "reference", candidate=dumps / "good", only="dec.*")


def test_only_and_limits(dumps: Path, tmp_path: Path) -> None:
    found = bisect(dumps / "reference", candidate=dumps / "candidate", only="*.mlp")
    assert (found.last_good, found.first_bad, found.tensors) == ("1.mlp", "2.mlp", 4)
    wide = {"max_abs": 100, "mean_abs": 100}
    limits = write_limits(tmp_path / "wide.json", dict.fromkeys(NAMES, wide))
    assert bisect(dumps / "reference", None, limits, candidate=dumps / "candidate").exit_code == 0


# --- replacing ----------------------------------------------------------------------------------


def test_replacing_finds_the_last_of_several(dumps: Path, tmp_path: Path) -> None:
    """Two blocks are off; the later one spoils the output alone."""
    changes = {"0.mlp": other_mlp, "2.mlp": other_mlp}
    blocks = stack.blocks(W, changes)
    steps: list[Step] = []
    run = chain(dumps / "reference", blocks, tmp_path / "runs")
    found = bisect_replaced(dumps / "reference", run, blocks=blocks, step=steps.append)
    assert (found.first_bad, found.last_good, found.kind) == ("2.mlp", "2.attn", "replace")
    assert found.runs == len(found.steps) <= found.most == 2 + math.ceil(math.log2(9))
    assert steps == list(found.steps)
    assert [r.verdict for r in found.own] == ["own"]
    for s in steps:  # good exactly where the culprit is among the replaced
        assert (s.verdict == "good") == ("2.mlp" in s.names)
    first = bisect(dumps / "reference", candidate=chain_dump(run))
    assert first.first_bad == "0.mlp"


def chain_dump(run: Any) -> Path:
    folder: Path = run(())
    return folder


@pytest.mark.parametrize("name", [NAMES[0], "3.attn", NAMES[-2], NAMES[-1]])
def test_replacing_finds_any(dumps: Path, tmp_path: Path, name: str) -> None:
    blocks = stack.blocks(W, off(name))
    run = chain(dumps / "reference", blocks, tmp_path / "runs")
    assert bisect_replaced(dumps / "reference", run).first_bad == name


def test_a_good_output_needs_one_run(dumps: Path, tmp_path: Path) -> None:
    run = chain(dumps / "reference", stack.blocks(W), tmp_path / "runs")
    found = bisect_replaced(dumps / "reference", run)
    assert (found.first_bad, found.exit_code, found.runs) == (None, 0, 1)


def test_another_output_may_be_judged(dumps: Path, tmp_path: Path) -> None:
    blocks = stack.blocks(W, {"0.mlp": other_mlp, "2.mlp": other_mlp})
    run = chain(dumps / "reference", blocks, tmp_path / "runs")
    assert bisect_replaced(dumps / "reference", run, final="2.attn").first_bad == "0.mlp"
    with pytest.raises(GateError, match="there is no tensor 'nothing' to judge"):
        bisect_replaced(dumps / "reference", run, final="nothing")


def test_a_check_may_judge(dumps: Path, tmp_path: Path) -> None:
    """By tokens alone: the argmax of the logits."""
    blocks = stack.blocks(W, {"1.mlp": lambda w, x: -stack.mlp(w, x)})
    run = chain(dumps / "reference", blocks, tmp_path / "runs")
    right = gates_load(dumps / "reference", "logits").argmax(-1)

    def check(folder: Path) -> bool:
        return bool((gates_load(folder, "logits").argmax(-1) == right).all())

    found = bisect_replaced(dumps / "reference", run, check=check)
    assert found.first_bad == "1.mlp"
    assert all(s.row is None for s in found.steps)


def gates_load(folder: Path, name: str) -> Any:
    return open_side(folder).tensors[name].load()


def test_a_chain_names_the_block_it_cannot_call(dumps: Path, tmp_path: Path) -> None:
    blocks = [Block("embed", ("token",), lambda w, t: t, {"w": 1})]
    run = chain(dumps / "reference", blocks, tmp_path / "runs")
    with pytest.raises(GateError, match="the block of 'embed' cannot be called: the reference has"):
        run(())


# --- GATE_DUMP_ONLY -----------------------------------------------------------------------------


def test_a_dump_keeps_to_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_DUMP_ONLY", "b,enc.*.out")
    x = normal(3)
    with gates.Dump(tmp_path / "d", side="candidate", roles={"a": "debug"}) as d:
        assert d.put("a", x) is x
        d.put("b", x, inputs=["a"])
        d.put("enc.0.out", x)
        d.put("enc.0.out", x)
        d.put("enc.out", x)
    side = open_side(tmp_path / "d")
    assert list(side.tensors) == ["b", "enc.0.out", "enc.0.out#1"]
    assert side.tensors["b"].tensor.inputs == ()
    with pytest.raises(GateError, match="the dump is not open"):
        d.put("a", x)


def test_a_dump_by_hooks_keeps_to_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    monkeypatch.setenv("GATE_DUMP_ONLY", "layer.1")
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"layer.{N}": "*"}, pick="all")
        d.grads()
        model(torch.randn(2, 3)).sum().backward()
    assert list(open_side(tmp_path / "d").tensors) == ["layer.1"]


# --- the command --------------------------------------------------------------------------------

PROGRAM = """
import json
import os
import sys

import numpy as np

out, only = os.environ["GATE_DUMP_DIR"], os.environ.get("GATE_DUMP_ONLY")
given = os.environ.get("GATE_INJECT_DIR", "nowhere")
x = np.array([0.5, -0.25, 0.125], np.float32)
for n in range(6):
    x = np.tanh(2 * x) if str(n) in sys.argv[1:] else np.tanh(x)
    name = f"out.{n}"
    if only is None or name in only.split(","):
        x.tofile(f"{out}/{name}.f32")
        with open(f"{out}/{name}.json", "w") as file:
            json.dump({"dtype": "f32", "shape": [3], "layout": "row-major"}, file)
    if os.path.exists(f"{given}/{name}.f32"):
        x = np.fromfile(f"{given}/{name}.f32", np.float32)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that knows the gate by its environment alone, and its reference's dump; layers
    named on its command line are off.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    x, tensors = np.array([0.5, -0.25, 0.125], np.float32), {}
    for n in range(6):
        x = tensors[f"out.{n}"] = np.tanh(x)
    write_side(tmp_path / "reference", tensors)
    return tmp_path


def command(folder: Path, *options: str, faulty: str = "") -> int:
    line = f"{sys.executable} {folder / 'program.py'} {faulty}"
    return main(["gate", "bisect", str(folder / "reference"), "--command", line, *options])


def test_the_command(program: Path, capsys: Captured) -> None:
    file = program / "found.json"
    assert command(program, "--json", str(file), faulty="2 4") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[:-1]] == [
        ["run", "1", "bad", "out.5"],
        ["run", "2", "bad", "out.2"],
        ["run", "3", "good", "out.0"],
        ["run", "4", "good", "out.1"],
    ]
    expected = "FAIL: last good out.1, first bad out.2 (6 tensors, 4 runs of at most 4)"
    assert lines[-1] == expected
    record = json.loads(file.read_text())
    assert (record["first_bad"], record["runs"], record["most_runs"]) == ("out.2", 4, 4)
    assert record["steps"][0]["row"]["status"] == "FAIL"
    assert command(program) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "PASS: out.5 is good; 1 looked at (6 tensors, 1 run of at most 1)"
    )


def test_the_command_replaces(program: Path, capsys: Captured) -> None:
    assert command(program, "--replace", "--work", str(program / "work"), faulty="2 4") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["run", "1", "bad", "out.5", "0"]
    assert lines[1].split()[:5] == ["run", "2", "good", "out.5", "5"]
    assert lines[-1].startswith("FAIL: the output is good from where out.4 is replaced")
    check = f"{sys.executable} -c 'import sys; sys.exit(not {{0}})'"
    good = check.replace("{0}", "1")
    assert command(program, "--replace", "--check", good, faulty="2") == 0
    assert command(program, "--replace", "--check", check.replace("{0}", "0"), faulty="2") == 1
    assert "out.5 is replaced" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "nothing to compare with"),
        (["--replace"], "nothing to run"),
        (["--final", "a"], "--final goes with --replace"),
        (["--check", "a"], "--check goes with --replace"),
    ],
)
def test_mistakes_are_named(program: Path, options: list[str], text: str, capsys: Captured) -> None:
    assert main(["gate", "bisect", str(program / "reference"), *options]) == 3
    assert text in capsys.readouterr().err


def wrong() -> Any:
    return stack.blocks(FAULTY)


def test_the_command_with_blocks(dumps: Path, capsys: Captured) -> None:
    reference, candidate = str(dumps / "reference"), str(dumps / "candidate")
    blocks = ["--blocks", "tests.checks.gates.test_bisect:wrong"]
    assert main(["gate", "bisect", reference, candidate, *blocks]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("own        2.attn")
    assert lines[-1] == "FAIL: last good 1.mlp, first bad 2.attn (10 tensors, no run)"
    assert main(["gate", "bisect", reference, "--replace", *blocks]) == 1
    assert "2.attn is replaced" in capsys.readouterr().out.splitlines()[-1]


def test_a_shape_is_told(tmp_path: Path, capsys: Captured) -> None:
    write_side(tmp_path / "r", {"a": normal(2, 3)})
    write_side(tmp_path / "c", {"a": normal(3, 2)})
    assert main(["gate", "bisect", str(tmp_path / "r"), str(tmp_path / "c")]) == 1
    assert "SHAPE [2, 3] against [3, 2]" in capsys.readouterr().out


def test_a_bisection_is_a_record() -> None:
    found = Bisection("r", "dump", 3, 2, (), None, None)
    assert (found.exit_code, found.runs) == (0, 0)


def test_a_candidate_without_the_last_tensor_is_not_good(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    for folder, names in (("r", "ab"), ("c", "a"), ("none", "z")):
        with gates.Dump(tmp_path / folder, side="candidate") as d:
            for name in names:
                d.put(name, x)
    for folder in ("c", "none"):
        with pytest.raises(GateError, match="did not dump 'b', the last one") as caught:
            bisect(tmp_path / "r", candidate=tmp_path / folder)
        assert caught.value.code == 2


# --- a port that names its own folder -----------------------------------------------------------

PORT = """
import sys

import numpy as np

from checks import gates

x = np.array([0.5, -0.25, 0.125], np.float32)
with gates.Dump(sys.argv[1], side=sys.argv[2], command="", overwrite=True) as d:
    for n in range(6):
        x = np.tanh(2 * x) if str(n) in sys.argv[3:] else np.tanh(x)
        x = gates.inject(f"out.{n}", d.put(f"out.{n}", x))
"""


@pytest.fixture
def port(program: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its own dump, of six tensors, two of which are off."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    (program / "port.py").write_text(PORT)
    line = [sys.executable, str(program / "port.py"), str(program / "own"), "candidate", "2", "4"]
    subprocess.run(line, check=True, timeout=60)
    assert list(open_side(program / "own").tensors) == [f"out.{n}" for n in range(6)]
    return program


@pytest.mark.parametrize("place", ["own", pytest.param("{out}", marks=pytest.mark.slow)])
def test_a_port_keeps_its_own_dump(port: Path, capsys: Captured, place: str) -> None:
    """Every command that runs it again leaves the folder that it names as it was."""
    own = port / "own"
    before = {p.name: p.read_bytes() for p in own.iterdir()}
    given = str(own) if place == "own" else place
    line = f"{sys.executable} {port / 'port.py'} {given} candidate 2 4"
    reference = str(port / "reference")
    few = ["--only", "out.[12]", "--command", line]  # each run starts Python
    assert main(["gate", "bisect", reference, *few]) == 1
    assert "first bad out.2" in capsys.readouterr().out
    few[-1] = line.removesuffix(" 4")
    assert main(["gate", "bisect", reference, "--replace", *few]) == 1
    assert "from where out.2 is replaced" in capsys.readouterr().out
    assert main(["gate", "isolate", reference, str(own), "--command", line]) == 1
    one = capsys.readouterr().out
    assert "2 wrong by itself" in one and "first out.2" in one
    work = str(port / "work")
    assert main(["gate", "isolate", reference, str(own), "--prepare", work]) == 0
    told = {"GATE_INJECT_DIR": f"{work}/in", "GATE_DUMP_DIR": f"{work}/out"}
    words = line.replace("{out}", f"{work}/out").split()
    subprocess.run(words, env=os.environ | told, check=True, timeout=60)
    capsys.readouterr()
    assert main(["gate", "isolate", reference, str(own), "--from", work]) == 1
    assert capsys.readouterr().out == one
    assert {p.name: p.read_bytes() for p in own.iterdir()} == before


def test_a_port_that_dumps_no_candidate(port: Path, capsys: Captured) -> None:
    line = f"{sys.executable} {port / 'port.py'} {port / 'own'} reference"
    assert main(["gate", "bisect", str(port / "reference"), "--command", line]) == 2
    error = capsys.readouterr().err
    assert "the command dumped no candidate but reference" in error
    assert 'Dump(side="candidate")' in error


def test_replaced_blocks_obey_no_environment(
    dumps: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_DUMP_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GATE_DUMP_ONLY", "none")
    blocks = ["--blocks", "tests.checks.gates.test_bisect:wrong"]
    assert main(["gate", "bisect", str(dumps / "reference"), "--replace", *blocks]) == 1
    assert "2.attn is replaced" in capsys.readouterr().out.splitlines()[-1]
    assert not (tmp_path / "elsewhere").exists()
