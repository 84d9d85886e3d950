"""What happens to the block files of a log, at which moment, and how it may end: the table of the fault suite.

Each case may end in `equal` (nothing happened, or it recovered by itself) or in `stopped` (a sentence names what is
lost and what to do). With one server, every row loses facts, so that some fold has to stop. With three servers, the
others still have them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.faults.block_files import ON_ONE_FILE, blocks_of, roll_back, swap
from support.faults.damaged_log import Damage, When
from support.faults.folds import Outcome

ON_ONE_SERVER: Final = frozenset({Outcome.STOPPED})
ON_THREE_SERVERS: Final = frozenset({Outcome.EQUAL, Outcome.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault.

    Attributes:
        fault: What happens, in words.
        to: Changes the files. Its arguments are the folder of messages, and an older copy of this folder.
    """

    fault: str
    to: Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        index: Whether `index.db` stays.
    """

    row: Row
    when: When
    index: bool

    @property
    def damage(self) -> Damage:
        """What the case does to the files."""
        return Damage(self.row.fault, self.row.to, keeps_index=self.index)

    def __str__(self) -> str:
        return f"{self.row.fault}, {self.when}, {'with' if self.index else 'without'} index"


def _on_block(fault: str, number: int) -> Callable[[Path, Path], None]:
    return lambda folder, _: ON_ONE_FILE[fault](blocks_of(folder)[number])


def _swap(folder: Path, _: Path) -> None:
    swap(*blocks_of(folder)[:2])


ROWS: Final = (
    *(Row(fault=f"{fault}: first block", to=_on_block(fault, 0)) for fault in ON_ONE_FILE),
    *(Row(fault=f"{fault}: last block", to=_on_block(fault, -1)) for fault in ON_ONE_FILE),
    Row(fault="swap the first two blocks", to=_swap),
    Row(fault="roll back to an older copy", to=roll_back),
)


def cases() -> Iterator[Case]:
    """Every row at every moment, with and without the index."""
    for row in ROWS:
        for when in When:
            for index in (True, False):
                yield Case(row, when, index)


OF_THREE: Final = (
    "flip one bit: first block",
    "empty: first block",
    "cut to 70 %: last block",
    "roll back to an older copy",
)
"""Rows for three servers, where a case takes many times as long."""


def cases_of_three() -> Iterator[tuple[Case, bool]]:
    """Cases for three servers, and whether only the damaged one is stopped: a repair, and a power cut of all."""
    for row in (row for row in ROWS if row.fault in OF_THREE):
        yield Case(row, When.STOPPED, index=True), True
        yield Case(row, When.KILLED, index=False), False


def is_short(case: Case) -> bool:
    """Whether `make test` has the case."""
    return case.when is When.KILLED and not case.index and case.row.fault.endswith("last block")
