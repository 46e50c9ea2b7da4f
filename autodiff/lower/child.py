"""A child process that runs StableHLO modules, since an unsupported op or type ends the process."""

import atexit
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_HEADER = struct.Struct("<Q")


class ChildError(Exception):
    """The child process died, took too long, or could not run the module; the text says which."""


class ChildTimeout(ChildError):
    """The child process took too long: another run may not."""


class Child:
    """A Python process that answers (text, args) with results; started on demand."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: Any = None
        self.lock = threading.Lock()

    def run(self, text: str, args: Sequence[Array], timeout: float) -> list[Array]:
        """Results of a module's `@main`; ChildError says why there are none."""
        with self.lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                _send(process.stdin, (text, list(args)))
                ready, _, _ = select.select([process.stdout], [], [], timeout)
                if not ready:
                    self.stop()
                    raise ChildTimeout(f"no result after {timeout:g} s")
                outcome = _receive(process.stdout)
            except (BrokenPipeError, EOFError):
                raise ChildError(self._last_words(process)) from None
        if isinstance(outcome, str):
            raise ChildError(outcome)
        return list(outcome)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            self.errors = tempfile.TemporaryFile()
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from autodiff.lower.child import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        return self.process

    def _last_words(self, process: "subprocess.Popen[bytes]") -> str:
        code = process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        said = next((x for x in lines if "LLVM ERROR" in x or "error:" in x), "no message")
        self.stop()
        return f"the child process ended with {code}: {said[:200]}"

    def stop(self) -> None:
        """End the process; the next run starts another."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.errors):
                _close(pipe)
            self.process = None


def _close(pipe: Any) -> None:
    try:
        pipe.close()
    except BrokenPipeError:  # what was not yet written to a dead process
        pass


def _send(pipe: Any, message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_HEADER.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    header = pipe.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    data = pipe.read(_HEADER.unpack(header)[0])
    return pickle.loads(data)


def serve() -> None:
    """The child's loop: answer requests until the pipe closes."""
    from autodiff.errors import AutodiffError
    from autodiff.lower.mlir import run_interpreter

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the bindings print must not mix with answers
    while True:
        try:
            text, args = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            outcome: Any = run_interpreter(text, args)
        except (AutodiffError, ValueError, TypeError) as error:
            outcome = f"{type(error).__name__}: {error}"
        _send(answers, outcome)


CHILD = Child()
atexit.register(CHILD.stop)
