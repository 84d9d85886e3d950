"""What happens to the block files of a log, at which moment, and how it may end: the table of the fault suite.

Each case may end in `equal` (nothing happened, or it recovered by itself) or in `stopped` (a sentence names what is
lost and what to do). A row says which of both, so that a change is seen. Where a row waits for a rule that is not kept
yet, it names the rule and the outcomes that are known today.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.faults.block_files import ON_ONE_FILE, blocks_of, roll_back, swap
from support.faults.damaged_log import Damage, When
from support.faults.folds import Outcome

EQUAL: Final = frozenset({Outcome.EQUAL})
STOPPED: Final = frozenset({Outcome.STOPPED})
GOOD: Final = EQUAL | STOPPED
BAD: Final = frozenset(Outcome) - GOOD
READING: Final = "6.3 and 6.4: a reader refuses gaps, and compares the id at its position"
"""A rule that is not kept yet. Rows that wait for it may end badly until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault.

    Attributes:
        fault: What happens, in words.
        to: Changes the files. Its arguments are the folder of messages, and an older copy of this folder.
        allowed: Outcomes that are right at each moment, with the index and without it.
        waits_for: The rule that is not kept yet; "" for none.
    """

    fault: str
    to: Callable[[Path, Path], None]
    allowed: frozenset[Outcome] = GOOD
    waits_for: str = ""


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
    def allowed(self) -> frozenset[Outcome]:
        """Outcomes with which the test passes."""
        return self.row.allowed | BAD if self.row.waits_for else self.row.allowed

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
    *(Row(fault=f"{fault}: first block", to=_on_block(fault, 0), waits_for=READING) for fault in ON_ONE_FILE),
    *(Row(fault=f"{fault}: last block", to=_on_block(fault, -1), waits_for=READING) for fault in ON_ONE_FILE),
    Row(fault="swap the first two blocks", to=_swap, waits_for=READING),
    Row(fault="roll back to an older copy", to=roll_back, waits_for=READING),
)


def cases() -> Iterator[Case]:
    """Every row at every moment, with and without the index."""
    for row in ROWS:
        for when in When:
            for index in (True, False):
                yield Case(row, when, index)


def cases_of_three() -> Iterator[Case]:
    """The cases for three servers: with the index after a clean stop and under load, without it after other ends."""
    return (case for case in cases() if case.index == (case.when in (When.STOPPED, When.LOAD)))


def is_short(case: Case) -> bool:
    """Whether `make test` has the case."""
    return case.when is When.KILLED and not case.index
