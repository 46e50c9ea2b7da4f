"""Every format is read alike, in bounded memory, and whatever is damaged is named."""

import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.gates.comparison.measure import measure
from checks.gates.errors import GateError
from checks.gates.formats.manifest import DTYPES, Statistics, Tensor, dtype_name, dtype_of
from checks.gates.formats.readers import natural, open_side
from checks.gates.formats.stored import safetensors_file
from tests.checks.gates.sides import normal, write_side

X = normal(5, 7)


def safetensors_text(tensors: dict[str, tuple[str, Any]]) -> bytes:
    header, data = {}, b""
    for name, (dtype, x) in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def as_pairs(folder: Path, x: Any) -> Path:
    folder.mkdir()
    x.tofile(folder / "t.f32")
    sidecar = {"name": "t", "shape": list(x.shape), "dtype": "f32", "layout": "row-major"}
    (folder / "t.json").write_text(json.dumps(sidecar | {"min": None}))
    return folder


def as_npy(folder: Path, x: Any) -> Path:
    folder.mkdir()
    np.save(folder / "t.npy", x)
    return folder


def as_npz(folder: Path, x: Any) -> Path:
    np.savez(folder.with_suffix(".npz"), t=x)
    return folder.with_suffix(".npz")


def as_npz_small(folder: Path, x: Any) -> Path:
    np.savez_compressed(folder.with_suffix(".npz"), t=x)
    return folder.with_suffix(".npz")


def as_safetensors(folder: Path, x: Any) -> Path:
    folder.with_suffix(".safetensors").write_bytes(safetensors_text({"t": ("F32", x)}))
    return folder.with_suffix(".safetensors")


def as_manifest(folder: Path, x: Any) -> Path:
    return write_side(folder, {"t": x})


def as_manifest_of_npy(folder: Path, x: Any) -> Path:
    folder.mkdir()
    np.save(folder / "t.npy", x)
    crc = zlib.crc32(np.ascontiguousarray(x).tobytes())
    line = Tensor("t", "float32", x.shape, "t.npy", crc32=crc).to_line()
    (folder / "manifest.jsonl").write_text(line + "\n")
    return folder


def as_manifest_of_safetensors(folder: Path, x: Any) -> Path:
    folder.mkdir()
    (folder / "all.safetensors").write_bytes(safetensors_text({"t": ("F32", x)}))
    line = Tensor("t", "float32", x.shape, "all.safetensors").to_line()
    (folder / "manifest.jsonl").write_text(line + "\n")
    return folder


WRITERS = [
    *(as_pairs, as_npy, as_npz, as_npz_small, as_safetensors, as_manifest),
    *(as_manifest_of_npy, as_manifest_of_safetensors),
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("x", [X, normal(300_007), normal(1)[0:1].reshape(()), normal(0, 3)])
def test_a_format_is_read(tmp_path: Path, write: Any, x: Any) -> None:
    side = open_side(write(tmp_path / "side", x))
    assert list(side.tensors) == ["t"]
    stored = side.tensors["t"]
    assert (stored.tensor.shape, stored.tensor.dtype) == (x.shape, "float32")
    np.testing.assert_array_equal(stored.load(), x)
    chunks = list(stored.chunks(1000))
    assert all(c.size == 1000 for c in chunks[:-1])
    np.testing.assert_array_equal(np.concatenate([np.empty(0, "f4"), *chunks]), x.ravel())


@pytest.mark.parametrize("write", [as_npy, as_npz, as_manifest_of_npy])
@pytest.mark.parametrize("big", [False, True])
def test_fortran_order_and_big_endian(tmp_path: Path, write: Any, big: bool) -> None:
    if big and write is as_manifest_of_npy:
        pytest.skip("a manifest's crc32 is of little-endian bytes")
    x = np.asfortranarray(normal(3, 4, 5).astype(">f4" if big else "<f4"))
    np.testing.assert_array_equal(open_side(write(tmp_path / "s", x)).tensors["t"].load(), x)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_in_a_manifest(tmp_path: Path, name: str) -> None:
    x = np.abs(3 * normal(4, 5)).astype(dtype_of(name))
    side = open_side(write_side(tmp_path / "s", {"t": x}))
    stored = side.tensors["t"]
    assert stored.tensor.dtype == name
    assert stored.load().tobytes() == x.tobytes()
    assert measure(stored, stored).max_abs == 0


def test_calls_of_one_name_in_one_safetensors_file(tmp_path: Path) -> None:
    calls = [normal(3, seed=0), normal(3, seed=1)]
    file = tmp_path / "all.safetensors"
    for keys in (("t", "t#1"), ("t#1", "t")):
        by_key = {k: ("F32", calls["#" in k]) for k in keys}
        file.write_bytes(safetensors_text(by_key))
        lines = [Tensor("t", "float32", (3,), file.name, seq=n, call=n).to_line() for n in (0, 1)]
        (tmp_path / "manifest.jsonl").write_text("\n".join(lines) + "\n")
        for found, x in zip(open_side(tmp_path).tensors.values(), calls, strict=True):
            np.testing.assert_array_equal(found.load(), x)


def test_bfloat16_in_npy_and_safetensors(tmp_path: Path) -> None:
    x = X.astype(ml_dtypes.bfloat16)
    for side in (as_npy(tmp_path / "n", x), as_npz(tmp_path / "z", x)):
        assert open_side(side).tensors["t"].load().tobytes() == x.tobytes()
    file = tmp_path / "b.safetensors"
    file.write_bytes(safetensors_text({"t": ("BF16", x), "n": ("I64", np.arange(3))}))
    side = open_side(file)
    assert [s.tensor.dtype for s in side.tensors.values()] == ["bfloat16", "int64"]
    assert side.tensors["t"].load().tobytes() == x.tobytes()


def test_the_real_package_reads_the_same(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    file = tmp_path / "a.safetensors"
    package.save_file({"b": X, "a": X.astype(np.int32)}, file)
    found = {s.tensor.name: s.load() for s in safetensors_file(file)}
    np.testing.assert_array_equal(found["b"], X)
    assert found["a"].dtype == np.int32


def test_order(tmp_path: Path) -> None:
    names = ["block.12", "block.2", "a"]
    side = open_side(write_side(tmp_path / "m", {n: X for n in names}))
    assert (list(side.tensors), side.ordered) == (names, True)
    (tmp_path / "n").mkdir()
    for n in names:
        np.save(tmp_path / "n" / f"{n}.npy", X)
    side = open_side(tmp_path / "n")
    assert (list(side.tensors), side.ordered) == (["a", "block.2", "block.12"], False)
    assert natural("x2") < natural("x12")


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    peaks = []
    for n in (1 << 20, 1 << 23):
        folders = [as_npy(tmp_path / f"{n}.{k}", np.full(n, k, np.float32)) for k in (0, 1)]
        sides = [open_side(folder) for folder in folders]
        tracemalloc.start()
        assert measure(sides[0].tensors["t"], sides[1].tensors["t"]).differing == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 64 << 20


def edit(file: Path, change: Any) -> None:
    file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("keep", [-1, 20], ids=["one byte", "nearly all"])
def test_truncated_data_is_named(tmp_path: Path, write: Any, keep: int) -> None:
    place = write(tmp_path / "s", X)
    files = [place] if place.is_file() else list(place.iterdir())
    (file,) = [f for f in files if f.suffix not in (".json", ".jsonl")]
    edit(file, lambda data: data[:keep])
    with pytest.raises(GateError) as caught:
        open_side(place).tensors["t"].load()
    assert len(str(caught.value).splitlines()) == 3
    assert caught.value.code == 3


@pytest.mark.parametrize("write", [as_pairs, as_npy, as_manifest])
def test_bytes_left_over_are_named(tmp_path: Path, write: Any) -> None:
    place = write(tmp_path / "s", X)
    (file,) = [f for f in place.iterdir() if f.suffix not in (".json", ".jsonl")]
    edit(file, lambda data: data + b"1234")
    with pytest.raises(GateError, match=r"needs .* bytes.*, the file has"):
        open_side(place)


def test_wrong_bytes_are_named_by_crc(tmp_path: Path) -> None:
    place = write_side(tmp_path / "s", {"t": X})
    edit(place / "t.bin", lambda data: b"\0" + data[1:])
    with pytest.raises(GateError, match="the values of 't' have crc32"):
        open_side(place).tensors["t"].load()


LINE = {"name": "t", "dtype": "f32", "shape": [5, 7], "file": "t.bin"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        (json.dumps(LINE | {"dtype": "f33"}), "unknown dtype 'f33'"),
        (json.dumps(LINE | {"dtype": ">f4"}), "unknown dtype '>f4'"),
        (json.dumps(LINE | {"shap": 1}), "unknown field 'shap'"),
        (json.dumps({k: v for k, v in LINE.items() if k != "shape"}), "shape is absent"),
        (json.dumps(LINE | {"shape": [5, -7]}), "an axis of shape is no integer >= 0: -7"),
        (json.dumps(LINE | {"shape": 35}), "shape is no list: 35"),
        (json.dumps(LINE | {"shape": [5, 8]}), "needs 160 bytes"),
        (json.dumps(LINE | {"name": "a/b"}), "holds '/'"),
        (json.dumps(LINE | {"name": "..\\b"}), "holds '\\\\'"),
        (json.dumps(LINE | {"name": ".b"}), "begins with a dot"),
        (json.dumps(LINE | {"name": ""}), "'' is no tensor name"),
        (json.dumps(LINE | {"file": "../t.bin"}), "no path inside the folder"),
        (json.dumps(LINE | {"file": "/etc/hosts"}), "no path inside the folder"),
        (json.dumps(LINE | {"file": "u.bin"}), "'t' cannot be read: No such file"),
        (json.dumps(LINE | {"role": "gates"}), "unknown role 'gates'"),
        (json.dumps(LINE | {"dims": "b"}), "name 1 axes of 2"),
        (json.dumps(LINE | {"crc32": "xyz"}), "crc32 is no number"),
        (json.dumps(LINE | {"statistics": {"mean": "a"}}), "mean is no number"),
        (
            json.dumps(LINE) + "\n" + json.dumps(LINE),
            "two tensors are called 't', or the program ran",
        ),
        ('{"name": "t", "name": "u"}', "'name' stands twice"),
    ],
)
def test_a_wrong_manifest_is_named(tmp_path: Path, text: str, words: str) -> None:
    place = write_side(tmp_path / "s", {"t": X})
    (place / "manifest.jsonl").write_text(text + "\n")
    with pytest.raises(GateError) as caught:
        open_side(place)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3
    assert str(place) in str(caught.value)


def test_a_cut_manifest_is_named(tmp_path: Path) -> None:
    place = write_side(tmp_path / "s", {"t": X, "u": X})
    edit(place / "manifest.jsonl", lambda data: data[:-20])
    with pytest.raises(GateError, match="the last line is cut"):
        open_side(place)


def test_other_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="no such folder or file"):
        open_side(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GateError, match="no dump: neither"):
        open_side(tmp_path / "empty")
    as_pairs(tmp_path / "a", X)
    (tmp_path / "a" / "t.json").unlink()
    with pytest.raises(GateError, match=r"has values and no t\.json"):
        open_side(tmp_path / "a")
    as_pairs(tmp_path / "b", X)
    (tmp_path / "b" / "t.f32").unlink()
    with pytest.raises(GateError, match="no values"):
        open_side(tmp_path / "b")
    as_npy(tmp_path / "c", np.array([object()]))
    with pytest.raises(GateError, match="no numeric dtype"):
        open_side(tmp_path / "c")
    (tmp_path / "d.txt").write_text("")
    with pytest.raises(GateError, match=r"\.txt is no dump"):
        open_side(tmp_path / "d.txt")
    place = write_side(tmp_path / "e", {"t": X}, side=3)
    with pytest.raises(GateError, match="side is no text: 3"):
        open_side(place)
    as_npy(tmp_path / "f", X)
    line = Tensor("t", "float32", (7, 5), "t.npy").to_line()
    (tmp_path / "f" / "manifest.jsonl").write_text(line + "\n")
    with pytest.raises(GateError, match=r"the manifest says float32 \[7, 5\] of 't'"):
        open_side(tmp_path / "f")


@pytest.mark.parametrize(
    ("given", "name"),
    [("f32", "float32"), ("F32", "float32"), ("<f4", "float32"), ("torch.bfloat16", "bfloat16")],
)
def test_dtype_names(given: str, name: str) -> None:
    assert dtype_name(given) == name


def test_a_line_is_read_as_it_was_written() -> None:
    figures = Statistics(-1.0, 2.0, 0.5, 1.0, 1.9, 2.0, zero=3)
    tensor = Tensor(
        *("enc.out", "bfloat16", (2, 3), "enc.out.bin"),
        **dict(seq=4, call=2, role="informational", dims="t f", crc32=7, inputs=("a", "b#1")),
        **dict(source="model.py:12", statistics=figures),
    )  # fmt: skip
    assert Tensor.from_line(tensor.to_line()) == tensor
    assert tensor.key == "enc.out#2"


def test_tensors_of_one_raw_file_follow_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "side"
    folder.mkdir()
    a, b = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.int32)
    (folder / "all.bin").write_bytes(a.tobytes() + b.tobytes())
    lines = [
        Tensor("a", "float32", (3,), "all.bin", seq=0),
        Tensor("b", "int32", (4,), "all.bin", seq=1, offset=12),
    ]
    (folder / "manifest.jsonl").write_text("".join(t.to_line() + "\n" for t in lines))
    side = open_side(folder)
    assert [side.tensors[k].load().tolist() for k in "ab"] == [a.tolist(), b.tolist()]
    with (folder / "all.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(GateError, match="'a' needs 12 bytes"):
        open_side(folder)
