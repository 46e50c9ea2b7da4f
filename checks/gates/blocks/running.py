"""Programs of any language that dump: started, with the folders and names they are told."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from checks.gates.capture.folder import DUMP_DIR, DUMP_ONLY, INJECT_DIR
from checks.gates.errors import INVALID, GateError

MARK = ".gradsweep"  # in the folder that runs write to: what they left there may be removed
_LAST = 6  # lines of a failed command that are shown


def run_command(
    command: str,
    out: Path,
    *,
    inject: Path | None = None,
    only: Sequence[str] = (),
    timeout: float | None = None,
) -> Path:
    """Run a program that dumps to a folder; return the folder.

    Arguments:
        command: `{in}` and `{out}` stand for the folders; no shell reads it.
        out: emptied first; GATE_DUMP_DIR.
        inject: GATE_INJECT_DIR; unset where None.
        only: GATE_DUMP_ONLY, names separated by commas; unset where there are none.
        timeout: in seconds.

    Raises:
        GateError: it cannot be started, fails, takes too long, dumps nothing, or the folder holds
            what no run left there.
    """
    emptied(out)
    words = [
        w.replace("{out}", str(out)).replace("{in}", str(inject or ""))
        for w in shlex.split(command)
    ]
    plain = {k: v for k, v in os.environ.items() if k not in (INJECT_DIR, DUMP_DIR, DUMP_ONLY)}
    environment = plain | {DUMP_DIR: str(out)}
    environment |= {INJECT_DIR: str(inject)} if inject is not None else {}
    environment |= {DUMP_ONLY: ",".join(only)} if only else {}
    status(words, environment, timeout, good=(0,))
    if all(p.is_dir() for p in out.iterdir()):  # other sides' dumps, as `gates.Dump` puts them
        others = ", ".join(sorted(p.name for p in out.iterdir()))
        what = f"the command dumped {f'no candidate but {others}' if others else 'nothing'}"
        fix = f"write to the folder that {DUMP_DIR} names, or to {{out}}"
        fix += ': Dump(side="candidate")' if others else ""
        raise GateError(f"{what}: {command}", str(out), fix, code=INVALID)
    return out


def emptied(out: Path) -> Path:
    """Return a folder for a run's dump, made, or emptied of the last run's.

    Raises:
        GateError: it holds files, and no run of the gate worked beside it.
    """
    mark = out.parent / MARK
    if out.exists() and any(out.iterdir()) and not mark.exists():
        what = f"the folder holds {len(list(out.iterdir()))} files that no run left there"
        raise GateError(what, str(out), "name another folder to work in")
    try:
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        mark.touch()
    except OSError as error:
        what = f"cannot write: {error.strerror or error}"
        raise GateError(what, str(out), "choose a folder that can be written") from None
    return out


def status(
    words: Sequence[str],
    environment: dict[str, str] | None = None,
    timeout: float | None = None,
    good: Sequence[int] = (0, 1),
) -> int:
    """Run a command; return its exit code.

    Raises:
        GateError: it cannot be started, takes too long, or ends with another code than `good`.
    """
    if not words:
        raise GateError("the command is empty", "--command", 'write "./port --dump {out}"')
    shown = shlex.join(words)
    try:
        done = subprocess.run(
            words, env=environment, timeout=timeout, capture_output=True, text=True, check=False
        )
    except OSError as error:
        what = f"the command cannot be started: {error.strerror or error}"
        raise GateError(what, shown, "name a program that can be run") from None
    except subprocess.TimeoutExpired:
        fix = "give it longer: --timeout SECONDS"
        raise GateError(f"the command took more than {timeout:g} s", shown, fix) from None
    if done.returncode not in good:
        lines = (done.stderr or done.stdout).strip().splitlines()[-_LAST:]
        what = f"the command ended with code {done.returncode}" + "".join(
            f"\n  | {x}" for x in lines
        )
        raise GateError(what, shown, "correct it; it must end with code 0")
    return done.returncode
