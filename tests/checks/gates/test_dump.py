"""A dump's folder: what is written, in which order, and what is refused."""

import errno
import importlib
import json
import os
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff.optional import available
from checks import gates
from checks.gates.capture import arrays as capture_arrays
from checks.gates.errors import GateError
from checks.gates.formats.manifest import RunInfo, Tensor
from checks.gates.formats.readers import open_side

torch: Any = importlib.import_module("torch") if available("torch") else None
RNG = np.random.default_rng(2)


def dumped(folder: Path) -> list[Tensor]:
    text = (folder / "manifest.jsonl").read_text(encoding="utf-8")
    return [Tensor.from_line(line) for line in text.splitlines()]


def refused(action: Any, *texts: str) -> GateError:
    """The error of an action: three lines that hold these texts."""
    with pytest.raises(GateError) as caught:
        action()
    lines = str(caught.value).split("\n")
    assert len(lines) == 3
    for text in texts:
        assert text in str(caught.value)
    return caught.value


def arrays() -> dict[str, Any]:
    x = RNG.normal(size=(5, 6, 7)).astype(np.float32)
    return {
        "c": x,
        "fortran": np.asfortranarray(x),
        "strided": x[::2, ::-1, 1::3],
        "broadcast": np.broadcast_to(x[0], (4, 6, 7)),
        "transposed": x.transpose(2, 0, 1),
        "big": x.astype(">f8"),
        "half": x.astype(np.float16),
        "brain": x.astype(ml_dtypes.bfloat16).transpose(1, 0, 2),
        "quarter": x.astype(ml_dtypes.float8_e4m3fn),
        "ids": RNG.integers(-9, 9, size=(3, 4)),
        "mask": x > 0,
        "wave": (x + 1j * x[::-1]).astype(np.complex64),
        "wide": x.astype(np.complex128),
        "scalar": np.float64(1.25),
        "number": 3,
        "empty": np.empty((0, 4)),
        "jax": jnp.asarray(x, jnp.bfloat16),
    } | (_tensors(x) if torch else {})


def _tensors(x: Any) -> dict[str, Any]:
    return {
        "torch": torch.from_numpy(x).permute(2, 1, 0),
        "torch.brain": torch.from_numpy(x).to(torch.bfloat16).permute(2, 1, 0),
        "torch.quarter": torch.from_numpy(x).to(torch.float8_e5m2),
        "torch.grad": torch.ones(3, requires_grad=True),
        "torch.conj": torch.from_numpy(x + 1j * x).conj(),
    }


def expected(value: Any) -> np.ndarray:
    if torch and isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj()
        if value.dtype == torch.bfloat16:
            return value.float().numpy().astype(ml_dtypes.bfloat16)
        if value.dtype == torch.float8_e5m2:
            return value.float().numpy().astype(ml_dtypes.float8_e5m2)
        return value.numpy()
    return np.asarray(value)


@pytest.mark.parametrize("file_format", ["npy", "safetensors"])
def test_every_kind_of_array_comes_back(
    tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_arrays, "CHUNK", 64)  # many chunks
    given = arrays()
    with gates.Dump(tmp_path / "d", side="reference", file_format=file_format) as d:
        for name, value in given.items():
            assert d.put(name, value) is value
    side = open_side(tmp_path / "d")
    assert list(side.tensors) == list(given) and side.ordered
    for name, value in given.items():
        want, found = expected(value), side.tensors[name].load()
        assert found.shape == want.shape, name
        assert found.tobytes() == want.astype(found.dtype).tobytes(order="C"), name
        assert side.tensors[name].tensor.dtype == want.dtype.newbyteorder("=").name


def test_files_are_read_by_the_packages_that_own_the_formats(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    x = RNG.normal(size=(3, 4))
    with gates.Dump(tmp_path / "n", side="reference") as d:
        d.put("x", x.T)
    assert np.array_equal(np.load(tmp_path / "n" / "x.npy"), x.T)
    with gates.Dump(tmp_path / "s", side="reference", file_format="safetensors") as d:
        d.put("x", x.T)
        d.put("x", x)
    assert np.array_equal(load_file(tmp_path / "s" / "x.safetensors")["x"], x.T)
    assert np.array_equal(load_file(tmp_path / "s" / "x#1.safetensors")["x#1"], x)


def test_the_manifest_line(tmp_path: Path) -> None:
    x = np.array([[1.0, -3.0, 0.0], [np.nan, np.inf, 2.0]])
    with gates.Dump(tmp_path / "d", side="candidate", roles={"enc.*": "informational"}) as d:
        d.input("tokens", [1, 2])
        d.put("enc.in", x, role="debug")
        d.put("enc.out", x, dims="time word", inputs=("enc.in", "tokens"))
        d.put("enc.out", x[0])
    first, second, third = dumped(tmp_path / "d")
    assert [t.seq for t in (first, second, third)] == [0, 1, 2]
    assert [t.key for t in (first, second, third)] == ["enc.in", "enc.out", "enc.out#1"]
    assert [t.role for t in (first, second)] == ["debug", "informational"]
    assert (second.dims, second.inputs) == ("time word", ("enc.in", "tokens"))
    assert second.crc32 == zlib.crc32(x.tobytes())
    assert "test_dump.py:" in second.source and "test_the_manifest_line" in second.source
    s = second.statistics
    assert s is not None
    assert (s.min, s.max, s.mean, s.absmax) == (-3.0, 2.0, 0.0, 3.0)
    assert (s.nan, s.posinf, s.neginf, s.zero) == (1, 1, 0, 1)


def test_statistics_of_many_chunks_are_those_of_the_whole(tmp_path: Path) -> None:
    x = RNG.normal(size=(700, 1000)).astype(np.float32)
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.put("x", x[:, ::-1])
    s = dumped(tmp_path / "d")[0].statistics
    assert s is not None and s.rms is not None and s.p99_abs is not None
    wide = x.astype(np.float64)
    assert s.rms == pytest.approx(np.sqrt(np.mean(wide**2)), rel=1e-12)
    assert s.mean == pytest.approx(wide.mean(), abs=1e-12)
    assert s.p99_abs == pytest.approx(np.quantile(np.abs(wide), 0.99), rel=1e-2)


def test_run_json(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    tokens = np.array([[1, 2, 3]])
    with gates.Dump(folder, side="reference", family="toy", seed=3, command="run me") as d:
        assert d.input("tokens", tokens) is tokens
        assert RunInfo.from_text((folder / "run.json").read_text()).finished == ""
    run = RunInfo.from_text((folder / "run.json").read_text())
    assert (run.side, run.family, run.seed, run.command) == ("reference", "toy", 3, "run me")
    assert run.versions["numpy"] == np.__version__
    assert run.finished
    if torch:
        assert run.threads == torch.get_num_threads()
    assert run.input_hashes["tokens"].startswith("sha256:")


def test_input_hashes_see_values_and_shapes_and_not_the_width_of_integers(tmp_path: Path) -> None:
    tokens, x = np.arange(6), RNG.normal(size=(2, 3))
    others = {
        "narrow": tokens.astype(np.int32),
        "other": torch.arange(6) if torch else jnp.arange(6),
        "shape": tokens.reshape(2, 3),
        "value": tokens[::-1],
        "f64": x,
        "fortran": np.asfortranarray(x),
        "f32": x.astype(np.float32),
    }
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.input("tokens", tokens)
        for name, value in others.items():
            d.input(name, value)
        d.input("tokens", tokens.astype(np.uint8))  # the same again is no other
        refused(lambda: d.input("tokens", tokens + 1), "'tokens' names two inputs", "tokens.1")
    run = open_side(tmp_path / "d").run
    assert run is not None
    found = run.input_hashes
    assert found["narrow"] == found["other"] == found["tokens"]
    assert found["f64"] == found["fortran"] != found["f32"]
    assert len({found[n] for n in ("tokens", "shape", "value")}) == 3


def test_a_value_is_written_as_it_was_when_put(tmp_path: Path) -> None:
    x = RNG.normal(size=4)
    before = x.copy()
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.put("x", x)
        x += 1.0
    assert np.array_equal(open_side(tmp_path / "d").tensors["x"].load(), before)


def test_calls_are_numbered_by_name(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        for step in range(3):
            d.put("dec.logits", np.full((1, step + 1), step))
            d.put("cache", np.zeros(step))
        d.put("dec.logits", np.zeros(1), call=7)
        d.put("dec.logits", np.zeros(2))
        refused(lambda: d.put("cache", np.zeros(1), call=1), "call 1 of 'cache'", "call=")
    keys = [t.key for t in dumped(tmp_path / "d") if t.name == "dec.logits"]
    assert keys == ["dec.logits", *(f"dec.logits#{i}" for i in (1, 2, 7, 8))]


def test_names_that_differ_in_case_have_files_of_their_own(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.put("A", np.zeros(1))
        d.put("2-a", np.zeros(1))
        d.put("a", np.ones(1))
    files = [t.file.casefold() for t in dumped(tmp_path / "d")]
    assert len(set(files)) == 3
    assert open_side(tmp_path / "d").tensors["a"].load() == 1.0


def test_threads_may_put_at_once(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: d.put(f"x{i % 3}", np.full(5, i)), range(40)))
    found = dumped(tmp_path / "d")
    assert [t.seq for t in found] == list(range(40))
    assert sorted(t.call for t in found if t.name == "x1") == list(range(13))


# --- refusals ------------------------------------------------------------------------------


def test_a_folder_with_files_is_refused_and_a_dump_overwritten_only_when_asked(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "d"
    with gates.Dump(folder, side="reference") as d:
        d.put("old", np.zeros(2))
        d.put("brain", np.zeros(2, ml_dtypes.bfloat16))
    (folder / "notes.txt").write_text("keep me")
    again = gates.Dump(folder, side="reference")
    refused(again.__enter__, "holds 5 files already", str(folder), "overwrite=True")
    assert (folder / "old.npy").exists()
    with gates.Dump(folder, side="reference", overwrite=True) as d:
        d.put("new", np.zeros(2))
    names = sorted(p.name for p in folder.iterdir())
    assert names == ["manifest.jsonl", "new.npy", "notes.txt", "run.json"]


def test_a_folder_that_is_no_dump_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.npy").write_bytes(b"x")
    d = gates.Dump(tmp_path, side="reference", overwrite=True)
    error = refused(d.__enter__, "thesis.npy among them", "choose another folder")
    assert "overwrite" not in error.fix
    assert (tmp_path / "thesis.npy").exists()


def test_overwriting_removes_only_files_inside_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "d", tmp_path / "outside.npy"
    folder.mkdir()
    outside.write_bytes(b"x")
    line = json.dumps({"name": "x", "dtype": "f4", "shape": [1], "file": "../outside.npy"})
    (folder / "manifest.jsonl").write_text(f"{line}\n{{half a li")
    with gates.Dump(folder, side="reference", overwrite=True):
        pass
    assert outside.exists() and dumped(folder) == []


@pytest.mark.parametrize("name", ["", " ", "a/b", "a\\b", "../a", ".a", "a\nb", "a#1", None, 3])
def test_names_that_cannot_be_files_are_refused(tmp_path: Path, name: Any) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        refused(lambda: d.put(name, np.zeros(1)), "enc.block.0.out")
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["manifest.jsonl", "run.json"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1, None]), "dtype object holds no numbers"),
        (np.array(["a"]), "holds no numbers"),
        (np.zeros(2, [("x", float)]), "holds no numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "holds no numbers"),
        (np.ma.masked_invalid([1.0, np.nan]), "masked array"),
        ([[1, 2], [3]], "no array: list"),
        (jax.random.key(0), "no array"),
        (np.zeros(2, np.longdouble), "no manifest names the dtype"),
    ],
    ids=["object", "text", "record", "date", "mask", "list", "key", "long"],
)
def test_what_is_no_array_of_numbers_is_refused(tmp_path: Path, value: Any, text: str) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        refused(lambda: d.put("x", value), text, "tensor 'x'")


def test_tensors_without_values_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with gates.Dump(tmp_path / "d", side="reference") as d:
        for value, text in (
            (torch.ones(2, device="meta"), "a meta tensor"),
            (torch.eye(2).to_sparse(), "torch.sparse_coo tensor"),
        ):
            refused(lambda value=value: d.put("x", value), text, "tensor 'x'")
        refused(lambda: torch.func.vmap(lambda x: d.put("x", x))(torch.ones(2)), "outside of vmap")
    assert dumped(tmp_path / "d") == []


def test_traced_values_are_refused_with_the_tap_to_use(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        refused(lambda: ad.trace(lambda x: d.put("x", x), np.zeros(2)), 'x = ad.tap("x", x)')
        refused(lambda: jax.jit(lambda x: d.put("x", x))(1.0), 'gates.jax_tap("x", x)')
    assert dumped(tmp_path / "d") == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    d = gates.Dump(tmp_path / "file" / "d", side="reference")
    refused(d.__enter__, "cannot write", str(tmp_path), "can be written")


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        user = os.geteuid()
        d = gates.Dump(name, side="reference")
        if user == 0:  # root writes anywhere
            os.seteuid(65534)
        try:
            refused(d.__enter__, "cannot write: Permission denied", name, "can be written")
        finally:
            os.seteuid(user)
            os.chmod(name, 0o700)
        assert os.listdir(name) == []


@pytest.mark.parametrize("failing", ["write", "append"])
def test_a_failed_write_leaves_neither_a_line_nor_half_a_file(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checks.gates.capture import dump

    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "d"
    with gates.Dump(folder, side="reference") as d:
        d.put("x", np.zeros(3))
        with monkeypatch.context() as patch:
            if failing == "write":
                patch.setattr(os, "replace", full)
            else:
                patch.setattr(dump, "append", full)
            refused(lambda: d.put("y", np.zeros(3)), "No space left", "y.npy", "space left")
        assert not list(folder.glob(".*"))
        d.put("y", np.ones(3))
    assert [t.key for t in dumped(folder)] == ["x", "y"]
    assert not list(folder.glob(".*"))
    assert np.array_equal(open_side(folder).tensors["y"].load(), np.ones(3))


def test_a_line_speaks_of_values_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checks.gates.capture import dump

    def checked(path: Path, text: str) -> None:
        assert (path.parent / json.loads(text)["file"]).stat().st_size > 100
        assert not list(path.parent.glob(".*.part"))
        order.append(text)

    order: list[str] = []
    monkeypatch.setattr(dump, "append", checked)
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.put("x", np.zeros(3))
    assert len(order) == 1


def test_an_exception_inside_leaves_the_dump_unfinished(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), gates.Dump(tmp_path / "d", side="reference") as d:
        d.put("x", np.zeros(3))
        _ = 1 // 0
    run = open_side(tmp_path / "d").run
    assert run is not None and run.finished == ""
    refused(lambda: d.put("y", np.zeros(1)), "the dump is not open", "with gates.Dump")
    refused(d.__enter__, "a Dump is entered once")


def test_wrong_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    refused(lambda: gates.Dump(folder, side="left"), "unknown side 'left'", "candidate, reference")
    refused(lambda: gates.Dump(folder, side="referense"), "did you mean 'reference'")
    refused(lambda: gates.Dump(folder, side="candidate", file_format="pickle"), "'pickle'", "npy")
    refused(lambda: gates.Dump(folder, side="candidate", roles={"x": "gates"}), "unknown role")
    with gates.Dump(folder, side="candidate") as d:
        for name, sign in (
            ("a b", "' '"),
            ("a,b", "','"),
            ("a\u2003b", "'\\u2003'"),
            ("a/b", "'/'"),
        ):
            refused(lambda n=name: d.put(n, 1), f"holds {sign}", "use dotted words")
            refused(lambda n=name: d.input(n, 1), f"holds {sign}")
        refused(lambda: d.put("x", 1, role="main"), "unknown role 'main'", "tensor 'x'")
        refused(lambda: d.put("x", np.zeros((2, 2)), dims="t"), "dims 't' name 1 axes of 2")
        d.put("enc.block.0", np.zeros(1))
        refused(
            lambda: d.put("y", 1, inputs="enc.blok.0"), "producer 'enc.blok.0'", "'enc.block.0'"
        )
    assert [t.name for t in dumped(folder)] == ["enc.block.0"]


def test_a_role_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    def run() -> None:
        roles = {"attn.prob": "informational"}
        with gates.Dump(tmp_path / "d", side="candidate", roles=roles) as d:
            d.put("attn.probs", np.zeros(1))

    refused(run, "'attn.prob' matched no tensor", "did you mean 'attn.probs'?")


def test_the_package_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, checks.gates; print('checks.gates.capture.dump' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert {"Dump", "jax_jit", "jax_tap"} <= set(dir(gates))
    with pytest.raises(AttributeError, match="Dumpp"):
        _ = gates.Dumpp


# --- the environment ----------------------------------------------------------------------------


def put_all(folder: Path, *names: str, **options: Any) -> Path:
    with gates.Dump(folder, **({"side": "candidate", "overwrite": True} | options)) as d:
        for name in names:
            d.put(name, np.arange(3.0))
    return d.folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names_in(folder: Path) -> list[str]:
    return list(open_side(folder).tensors)


def test_the_environment_decides_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder given is left as it is, to the byte, even where a part alone is asked for."""
    own, out = put_all(tmp_path / "own", "a", "b"), tmp_path / "work" / "out"
    before = contents(own)
    monkeypatch.setenv("GATE_DUMP_DIR", str(out))
    monkeypatch.setenv("GATE_DUMP_ONLY", "b")
    assert put_all(own, "a", "b") == out
    assert names_in(out) == ["b"] and contents(own) == before
    monkeypatch.setenv("GATE_DUMP_ONLY", "a")
    assert put_all(own, "a", "b") == out  # the same dump anew, as overwrite=True says
    assert names_in(out) == ["a"] and contents(own) == before
    text = "the folder holds"
    refused(lambda: put_all(own, "a", overwrite=False), text, str(out), "overwrite=True")
    assert put_all(tmp_path / "plain", "a", "b", environment=False) == tmp_path / "plain"
    assert names_in(tmp_path / "plain") == ["a", "b"]


@pytest.mark.parametrize("order", [("reference", "candidate"), ("candidate", "reference")])
def test_the_other_side_has_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("GATE_DUMP_DIR", str(out))
    places = {side: put_all(tmp_path / side, side[0], side=side) for side in order}
    assert places == {"candidate": out, "reference": out / "reference"}
    assert put_all(tmp_path / "second", "s", side="reference") == out / "reference.1"
    assert names_in(out) == ["c"]
    assert names_in(out / "reference") == ["r"] and names_in(out / "reference.1") == ["s"]
    assert put_all(tmp_path / "candidate", "d") == out  # a dump anew leaves the other sides'
    assert names_in(out) == ["d"] and names_in(out / "reference") == ["r"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_second_candidate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_DUMP_DIR", str(tmp_path / "out"))
    put_all(tmp_path / "one", "a")
    text = f"a second candidate for GATE_DUMP_DIR={tmp_path / 'out'}"
    fix = "Dump(environment=False)"
    refused(lambda: put_all(tmp_path / "two", "b"), text, str(tmp_path / "one"), fix)
    assert names_in(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("name", ["GATE_DUMP_ONLY", "GATE_INJECT_DIR"])
def test_no_dump_is_replaced_by_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own = put_all(tmp_path / "own", "a", "b")
    before = contents(own)
    monkeypatch.setenv(name, "a")
    text = f"{name} is set: the dump that the folder holds would be replaced by"
    refused(lambda: put_all(own, "a", "b"), text, str(own), f"unset {name}")
    assert contents(own) == before
    assert put_all(tmp_path / "new", "a") == tmp_path / "new"  # a new folder loses nothing
    assert names_in(put_all(own, "c", environment=False)) == ["c"]


def test_a_name_in_brackets_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_DUMP_ONLY", "h[0]")
    assert names_in(put_all(tmp_path / "d", "h[0]", "h0")) == ["h[0]", "h0"]
