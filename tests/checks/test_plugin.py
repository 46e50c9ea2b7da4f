"""The pytest plugin and the command line, run as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command, cwd, **env):
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | env,
        check=False,
    )


def sweep_by_pytest(tmp_path, *options):
    return run(
        "-m",
        "pytest",
        "-p",
        "checks.plugin" if not _installed() else "no:cacheprovider",
        "--sweep",
        "--sweep-report",
        str(tmp_path / "report"),
        *options,
        cwd=tmp_path,
    )


def _installed():
    import importlib.metadata

    return any(e.name == "gradsweep" for e in importlib.metadata.entry_points(group="pytest11"))


def test_the_sweep_as_pytest_items(tmp_path):
    (tmp_path / "test_other.py").write_text("raise RuntimeError('left alone')")
    done = sweep_by_pytest(
        tmp_path, "--sweep-op", "EXP", "--sweep-surface", "reverse", "--sweep-surface", "forward"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    lines = (tmp_path / "report" / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    fields = {"op", "sample", "surface", "dtype", "status", "error", "tolerance", "ulp", "seconds"}
    assert rows and all(fields <= row.keys() for row in rows)
    assert {row["surface"] for row in rows} == {"reverse", "forward"}
    assert "left alone" not in done.stdout + done.stderr
    assert (tmp_path / "report" / "index.html").exists()
    assert (tmp_path / "report" / "junit.xml").exists()


@pytest.mark.slow
def test_two_workers_merge_their_rows(tmp_path):
    done = sweep_by_pytest(
        tmp_path,
        "-n",
        "2",
        "--dist",
        "worksteal",
        "--sweep-op",
        "EXP",
        "--sweep-op",
        "LOG",
        "--sweep-op",
        "TANH",
        "--sweep-surface",
        "forward",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        json.loads(line)
        for line in (tmp_path / "report" / "results.jsonl").read_text().splitlines()
    ]
    assert {row["op"] for row in rows} == {"EXP", "LOG", "TANH"}


def test_unknown_names_are_usage_errors(tmp_path):
    done = sweep_by_pytest(tmp_path, "--sweep-op", "EXPP")
    assert done.returncode == 4
    assert "unknown op 'EXPP'" in done.stderr + done.stdout
    assert "EXP" in done.stderr + done.stdout
    done = sweep_by_pytest(tmp_path, "-n", "2", "--sweep-op", "EXPP")  # before workers start
    assert done.returncode == 4 and "did you mean 'EXP'" in done.stderr + done.stdout
    assert "INTERNALERROR" not in done.stderr + done.stdout
    done = sweep_by_pytest(tmp_path, "--sweep-shard", "2of3")
    assert done.returncode == 4 and "is not I/N" in done.stderr + done.stdout


def test_the_command_writes_a_report_and_exits_0(tmp_path):
    done = run(
        "-m",
        "checks",
        "sweep",
        "--op",
        "EXP",
        "--surface",
        "forward",
        "--workers",
        "0",
        "--report",
        "report",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1].endswith("index.html")
    again = run("-m", "checks", "report", "report", cwd=tmp_path)
    assert again.returncode == 0 and "index.html" in again.stdout


def test_a_missing_package_exits_3_unless_allowed(tmp_path):
    block = tmp_path / "block"
    block.mkdir()
    (block / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'jax' else real(name, package)\n"
    )
    path = os.pathsep.join([str(block), str(ROOT)])
    command = (
        "-m",
        "checks",
        "sweep",
        "--op",
        "EXP",
        "--surface",
        "emit_f32",
        "--surface",
        "forward",
        "--workers",
        "0",
        "--report",
        "report",
    )
    done = run(*command, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "pip install gradsweep[jax]" in (tmp_path / "report" / "results.jsonl").read_text()
    done = run(*command, "--allow-missing", "jax", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("sweep", "--op", "SOFTMX"), 2, "did you mean 'SOFTMAX'"),
        (("sweep", "--surface", "revers"), 2, "did you mean 'reverse'"),
        (("sweep", "--shard", "x"), 2, "is not I/N"),
        (("sweep", "--sample", "zero"), 2, "--sample needs one op"),
        (
            ("sweep", "--op", "SQRT", "--surface", "reverse", "--sample", "zero"),
            2,
            "reverse says nothing about sample 'zero' of SQRT",
        ),
        (("report", "nowhere"), 2, "no results"),
        ((), 2, "usage"),
    ],
    ids=["op", "surface", "shard", "sample", "unjudged", "report", "none"],
)
def test_mistakes_are_worded_and_have_no_traceback(tmp_path, arguments, code, text):
    done = run("-m", "checks", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_list_and_doctor(tmp_path):
    listed = run("-m", "checks", "sweep", "--list", cwd=tmp_path)
    assert listed.returncode == 0 and "LOG_SOFTMAX" in listed.stdout and "vmap" in listed.stdout
    assert "samples of" not in listed.stdout
    one = run("-m", "checks", "sweep", "--list", "--op", "SQRT", cwd=tmp_path)
    assert "1 op: SQRT\nsamples of SQRT: " in one.stdout and " zero " in one.stdout
    doctor = run("-m", "checks", "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "imports: ok" in doctor.stdout and "OMP_NUM_THREADS" in doctor.stdout
