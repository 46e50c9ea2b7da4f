"""Processes of a pool: interrupted, left by an error, or orphaned, they end with their own.

Each program here shares its output with all it starts: reading to the end of it says that they
have all ended.
"""

import os
import signal
import subprocess
import sys
import threading

import pytest

from checks.processes import GROUPS, uninterrupted

pytestmark = pytest.mark.skipif(not GROUPS, reason="needs process groups")

# What a shell runs in the background ignores interrupts, and so does all that it starts.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
# Two workers; each starts a process that writes an empty line and would sleep on.
POOL = """
import subprocess, sys
from checks.processes import executors, uninterrupted
SLEEP = [sys.executable, "-c", "import os, time; os.write(1, bytes([10])); time.sleep(600)"]
try:
    with executors(2, 1, int) as pools:
        with uninterrupted():
            futures = [pool.submit(subprocess.call, SLEEP) for pool in pools]
        print("submitted", flush=True)
        {then}
except {error}:
    print("left", flush=True)
"""
# The whole command, told when it waits for its workers.
SWEEP = """
import concurrent.futures, sys
wait = concurrent.futures.wait
def told(*args, **more):
    print("waiting", flush=True)
    return wait(*args, **more)
concurrent.futures.wait = told
from checks.cli import main
sys.exit(main(["sweep", "--op", "SIN", "--workers", "2", "--report", sys.argv[1]]))
"""


def started(program: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTIBLE + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # no more is read than asked for: the rest is for `communicate`
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        start_new_session=True,
    )


def read(process: "subprocess.Popen[bytes]", *words: str) -> None:
    assert process.stdout is not None
    found = [process.stdout.readline().decode().strip() for _ in words]
    if found != list(words):
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError((found, process.communicate()))


def ends(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    """Code, output and errors, once nothing that shares the output is left."""
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, out.decode(), errors.decode()


@pytest.mark.parametrize("words", [("submitted",), ("submitted", "", "")])
def test_an_interrupt_of_the_whole_group_ends_every_process(words: tuple[str, ...]) -> None:
    process = started(POOL.format(then="futures[0].result()", error="KeyboardInterrupt"))
    read(process, *words)  # at the first word the workers are still importing
    os.killpg(process.pid, signal.SIGINT)
    code, out, errors = ends(process)
    assert (code, out.split()[-1], errors) == (0, "left", "")


def test_an_error_does_not_wait_for_what_runs() -> None:
    process = started(POOL.format(then="raise OSError", error="OSError"))
    read(process, "submitted")
    code, out, errors = ends(process)
    assert (code, out.split()[-1], errors) == (0, "left", "")


def test_workers_end_where_their_parent_was_killed() -> None:
    process = started(POOL.format(then="futures[0].result()", error="KeyboardInterrupt"))
    read(process, "submitted", "", "")
    process.kill()
    assert ends(process)[0] == -signal.SIGKILL


def test_an_interrupted_sweep_says_one_line_and_exits_with_130(tmp_path: object) -> None:
    process = started(SWEEP, str(tmp_path))
    read(process, "waiting")
    os.killpg(process.pid, signal.SIGINT)
    code, _, errors = ends(process)
    assert (code, errors) == (130, "gradsweep: stopped\n")


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
    assert done and signal.getsignal(signal.SIGINT) is handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_other_threads_may_start_processes() -> None:
    found: list[bool] = []

    def work() -> None:
        with uninterrupted():
            found.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]
