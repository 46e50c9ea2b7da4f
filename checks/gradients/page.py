"""Room for a report: how wide its lines are, and how many they are."""

import dataclasses
import math
import textwrap

LINES = 25
WIDTH = 100
LABEL = 12
Row = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Page:
    """Room for a report: how wide it is; a narrow one has more lines."""

    width: int = WIDTH

    @property
    def room(self) -> int:
        """Columns for what stands beside the labels."""
        return self.width - LABEL

    @property
    def lines(self) -> int:
        """Lines at most."""
        return self.more(LINES)

    def more(self, lines: int) -> int:
        """As many lines as hold what `lines` of the usual width do."""
        return max(lines, math.ceil(lines * (WIDTH - LABEL) / self.room))

    def cut(self, line: str) -> str:
        """A line that stays one."""
        return line if len(line) <= self.room else line[: self.room - 4] + " ..."

    def wrapped(self, label: str, value: str, style: str, most: int = 3) -> list[Row]:
        """Rows of a text broken between words, cut after `most` of the usual width."""
        most = self.more(most)
        lines = textwrap.wrap(value, self.room, break_on_hyphens=False) or [""]
        if len(lines) > most:
            lines = [*lines[: most - 1], lines[most - 1][: self.room - 4].rstrip(", ") + " ..."]
        return [(label if n == 0 else " ", line, style) for n, line in enumerate(lines)]
