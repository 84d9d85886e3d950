"""Lines and tables for a terminal or a pipe, with the standard library alone.

Importing rich takes longer than most commands run, so only progress bars and live views use it (`rich_console`). Texts
of objects and of the log may contain orders to a terminal, so control characters are shown as escapes
(`koordcore.values.visible`). Styles are used on a terminal only, colours not if NO_COLOR is set.
"""

import os
import re
import shutil
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TextIO

from koordcore.values.visible import visible

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33"}
_WEIGHTS: Final = {"bold": "1", "dim": "2"}
_WORD: Final = re.compile(r"\s*\S+\s*")
_BETWEEN: Final = "  "
"""Between two columns of a table on a terminal."""
_STATUS_COLUMNS: Final = ("status", "phase", "state", "readiness", "verdict")
_SPLIT: Final = re.compile(r"[,:]")
_STATUSES: Final = {
    "red": "NotReady|Unknown|Error|Failed|Evicted|OOMKilled|CrashLoopBackOff|ImagePullBackOff|ErrImagePull|NodeLost|"
    "Aborted|Deleted|Lost|given-up|backing-off|not ready|no answer|unhealthy|missing|broken",
    "yellow": "Pending|SchedulingDisabled|ClosedByDrain|NoReport|Terminating|Placed|SchedulingGated|ContainerCreating|"
    "PodInitializing|Init|Waiting|PreScheduling|Scheduling|WaitForConfirm|starting|waiting|stopped|warning",
    "green": "Running|Ready|Completed|Succeeded|Complete|Available|Bound|Scheduled|Finished|ready|healthy|ok",
}
"""Colour -> words of a status, the worst first."""


class Line(NamedTuple):
    """One line of output, or a part of it, with its style; an empty style prints plain text."""

    text: str
    style: str = ""  # Words such as `bold red`


class Console:
    """Standard output or standard error."""

    def __init__(self, *, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> None:
        """Create a console.

        Args:
            file: Instead of a standard stream.
            width: Columns; None: those of the terminal.
        """
        self._stderr = stderr
        self._file = file
        self._width = width

    @property
    def file(self) -> TextIO:
        return self._file or (sys.stderr if self._stderr else sys.stdout)

    @property
    def is_terminal(self) -> bool:
        """As in rich: TTY_COMPATIBLE and FORCE_COLOR decide before the stream."""
        if (compatible := os.environ.get("TTY_COMPATIBLE")) in ("0", "1"):
            return compatible == "1"
        if (forced := os.environ.get("FORCE_COLOR")) is not None:
            return forced != ""
        return self.file.isatty()

    @property
    def has_lines(self) -> bool:
        """Whether the encoding of the output has the lines with which trees are drawn."""
        try:
            "└├│─".encode(self.file.encoding or "ascii")
        except (LookupError, UnicodeEncodeError):
            return False
        return True

    @property
    def width(self) -> int:
        return self._width or shutil.get_terminal_size().columns

    def print(self, *parts: str | Line, style: str = "", soft_wrap: bool = False) -> None:
        """Print one line, or the lines of a text. On a terminal, standard output is wrapped between words.

        Args:
            parts: What follows each other on the line.
            style: Of the parts that have none.
            soft_wrap: Leave wrapping to the terminal.
        """
        pieces = [part if isinstance(part, Line) else Line(part) for part in parts]
        shown = [Line(visible(piece.text), piece.style or style) for piece in pieces]
        width = self.width if self.is_terminal and not soft_wrap and not self._stderr else 0
        self.file.write("".join(f"{self._styled(line)}\n" for line in _wrapped(shown, width)))
        self.file.flush()

    def print_below(self, parts: Sequence[Line], first: str, rest: str) -> None:
        """Print one entry of a tree.

        Args:
            first: What stands before its first line.
            rest: What stands before its further lines, on a terminal.
        """
        shown = [Line(visible(part.text), part.style) for part in parts]
        width = max(self.width - max(len(first), len(rest)), 1) if self.is_terminal else 0
        for number, line in enumerate(_wrapped(shown, width)):
            self.file.write(f"{rest if number else first}{self._styled(line)}\n")
        self.file.flush()

    def print_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool = True) -> None:
        """Print a table for a terminal: it is as wide as the terminal at most, and long cells are wrapped.

        Cells of statuses are coloured (`style_of`).
        """
        lines = [[visible(cell) for cell in row] for row in ([column.upper() for column in columns], *rows)]
        widest = [max(map(cells, column)) for column in zip(*lines, strict=True)]
        widths = fitting(widest, self.width - len(_BETWEEN) * (len(columns) - 1))
        for number, row in enumerate(lines):
            folded = [
                ["".join(part.text for part in line) for line in _wrapped([Line(cell)], width)]
                for cell, width in zip(row, widths, strict=True)
            ]
            if not number and not headers:
                continue
            high = max(map(len, folded))
            styles = [style_of(column, cell) if number else "bold" for column, cell in zip(columns, row, strict=True)]
            for each in range(high):
                # The headers end at the bottom, what is below them begins at the top.
                texts = [_nth(cell, each if number else each - high + len(cell)) for cell in folded]
                self.file.write(self._styled(_columns(texts, widths, styles)) + "\n")
        self.file.flush()

    def _styled(self, parts: Iterable[Line]) -> str:
        if not self.is_terminal or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
            return "".join(part.text for part in parts)
        known = _WEIGHTS if os.environ.get("NO_COLOR") else {**_COLOURS, **_WEIGHTS}
        shown: list[str] = []
        for text, style in parts:
            codes = ";".join(known[word] for word in style.split() if word in known)
            shown.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text)
        return "".join(shown)


def _columns(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> list[Line]:
    """One line of a table. Nothing follows its last cell that is not empty; what stands between colours has none."""
    last = max((number for number, text in enumerate(texts) if text.strip()), default=-1)
    parts: list[Line] = []
    for number, (text, width, style) in enumerate(zip(texts[: last + 1], widths, styles, strict=False)):
        space = "" if number == last else " " * (width - cells(text)) + _BETWEEN
        is_colour = style in _STATUSES
        shown = text.rstrip() if number == last else text
        for piece in (Line(shown, style), Line(space, "" if is_colour else style)):
            if parts and parts[-1].style == piece.style:
                parts[-1] = Line(parts[-1].text + piece.text, piece.style)
            elif piece.text:
                parts.append(piece)
    return parts


def style_of(column: str, cell: str) -> str:
    """The colour of a cell: green if all is well, yellow if something waits, red if something failed."""
    if column.lower() not in _STATUS_COLUMNS:
        return ""
    words = set(_SPLIT.split(cell))
    return next((style for style, known in _STATUSES.items() if not words.isdisjoint(known.split("|"))), "")


def cells(text: str) -> int:
    """The number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(each) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(each) in "WF") for each in text)


def fitting(widest: Sequence[int], width: int) -> list[int]:
    """The widths of columns that together take at most `width`: the widest columns become narrower."""
    widths = list(widest)
    limit = max(widths)
    while sum(widths) > width and limit > 1:
        limit -= 1
        widths = [min(each, limit) for each in widest]
    spare = width - sum(widths)
    for column, wanted in enumerate(widest):
        if spare > 0 and widths[column] < wanted:
            widths[column] += 1
            spare -= 1
    return widths


def _nth(lines: Sequence[str], number: int) -> str:
    return lines[number] if 0 <= number < len(lines) else ""


def _wrapped(parts: Sequence[Line], width: int) -> Iterator[list[Line]]:
    """The lines of a text, each at most `width` columns wide; 0: as wide as they are."""
    text = "".join(part.text for part in parts)
    ends = list(accumulate(len(part.text) for part in parts))
    start = 0
    for line in text.split("\n"):
        for begin, end in _breaks(line, width) if width else ((0, len(line)),):
            first, last = start + begin, start + end
            yield [
                Line(part.text[max(first - (until - len(part.text)), 0) : last - (until - len(part.text))], part.style)
                for part, until in zip(parts, ends, strict=True)
                if until > first and until - len(part.text) < last
            ]
        start += len(line) + 1


def _breaks(line: str, width: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each line of a long one. A word that is longer than a line is cut."""
    columns: Sequence[int] = range(len(line) + 1) if line.isascii() else [0, *accumulate(map(cells, line))]
    begin = used = 0
    for word in _WORD.finditer(line):
        visible = word.start() + len(word[0].rstrip())
        if used and used + columns[visible] - columns[word.start()] > width:
            yield begin, begin + len(line[begin : word.start()].rstrip())
            begin, used = word.start(), 0
        while used == 0 and columns[visible] - columns[begin] > width:
            fits = bisect_right(columns, columns[begin] + width, begin + 1, word.end() + 1) - 1
            cut = max(begin + 1, fits)
            yield begin, cut
            begin = cut
        used = columns[word.end()] - columns[begin]
    yield begin, begin + len(line[begin:].rstrip()) if begin else len(line)
