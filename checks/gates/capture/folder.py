"""A dump's folder: which it is, what is removed before another run, appended, refused."""

import contextlib
import errno
import itertools
import os
from pathlib import Path

from checks.gates.errors import GateError
from checks.gates.formats.manifest import CANDIDATE, MANIFEST, RUN, parsed
from checks.gates.formats.transcript import TRANSCRIPT

INJECT_DIR, DUMP_DIR, DUMP_ONLY = "GATE_INJECT_DIR", "GATE_DUMP_DIR", "GATE_DUMP_ONLY"
_taken: dict[Path, Path] = {}  # by a folder of GATE_DUMP_DIR: the one that this process named


def destination(given: Path, side: str) -> Path:
    """Return where a dump goes: the folder given, or what GATE_DUMP_DIR makes of it.

    The candidate goes to GATE_DUMP_DIR itself, another side to a folder of its name in there.

    Raises:
        GateError: another dump of the candidate went there: which of them is meant is unknown.
    """
    if not (root := os.environ.get(DUMP_DIR)):
        return given
    first = Path(root) if side == CANDIDATE else Path(root) / side
    for number in itertools.count():
        place = first.with_name(f"{first.name}.{number}") if number else first
        taken = _taken.setdefault(place.resolve(), given.resolve())
        if taken == given.resolve():
            return place
        if side == CANDIDATE:
            what = f"a second candidate for {DUMP_DIR}={root}, which holds that of {taken}"
            fix = "dump one candidate in a run, or the other one with Dump(environment=False)"
            raise GateError(what, str(given), fix)
    raise AssertionError("numbers do not end")


def prepare(folder: Path, overwrite: bool, environment: bool) -> None:
    """Make a folder with an empty manifest; dumps of other sides under GATE_DUMP_DIR stay.

    Arguments: the folder; whether a dump in it is removed; whether the environment is obeyed.

    Raises:
        GateError: it holds something else, or a dump that is to stay.
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    inside = environment and os.environ.get(DUMP_DIR)
    every = sorted(folder.iterdir())
    present = [p.name for p in every if not (inside and (p / MANIFEST).exists())]
    is_dump = MANIFEST in present
    if present and not (is_dump and overwrite):
        what = f"the folder holds {len(present)} files already, {present[0]} among them"
        fix = "choose another folder" + (", or pass overwrite=True" if is_dump else "")
        raise GateError(what, str(folder), fix)
    if is_dump:
        if environment:
            _check_whole(folder)
        remove(folder)
    with open(folder / MANIFEST, "x", encoding="utf-8"):
        pass


def _check_whole(folder: Path) -> None:
    """Refuse to replace a dump by a part of it, or by one of injected values."""
    told = [n for n in (DUMP_ONLY, INJECT_DIR) if os.environ.get(n)]
    if told and not os.environ.get(DUMP_DIR):
        change = "a part of it" if told[0] == DUMP_ONLY else "one of injected values"
        what = f"{told[0]} is set: the dump that the folder holds would be replaced by {change}"
        raise GateError(what, str(folder), f"set {DUMP_DIR}=DIR too, or unset {told[0]}")


def remove(folder: Path) -> None:
    """Remove the dump in a folder: what its manifest names, and what was left half-written."""
    listed = []
    for line in (folder / MANIFEST).read_text(encoding="utf-8", errors="replace").split("\n"):
        with contextlib.suppress(GateError):  # a line of another program, or half a line
            name = parsed(line, MANIFEST).get("file")
            if isinstance(name, str) and Path(name).name == name:
                listed.append(folder / name)
    written = (folder / name for name in (TRANSCRIPT, RUN, MANIFEST))
    for path in [*listed, *folder.glob(".*.part"), *written]:
        path.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Append a line, or nothing."""
    with open(path, "r+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        raw = text.encode()
        try:
            if file.write(raw) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(end)
            raise


def unwritable(path: Path, error: OSError) -> GateError:
    """Return why a folder cannot be written."""
    what = f"cannot write: {error.strerror or error}"
    return GateError(what, str(path), "choose a folder that can be written, with space left")
