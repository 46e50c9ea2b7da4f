"""A dump's folder: what is removed before another run, appended to its manifest, refused."""

import contextlib
import errno
import os
from pathlib import Path

from checks.gates.errors import GateError
from checks.gates.formats.manifest import MANIFEST, RUN, parsed
from checks.gates.formats.transcript import TRANSCRIPT


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
