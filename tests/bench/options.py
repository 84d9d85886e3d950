"""What `python -m tests.bench` can be told besides the names of measurements."""

from collections.abc import Iterable
from dataclasses import dataclass


class InvalidOption(ValueError):
    """An option that names something which does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of measurements that have rows.

    only      rows to measure; none: all
    scale     factor of the counts of nodes and pods, for quick runs
    runs      runs of which the median is taken
    nodes     count of nodes of the rows that state how they grow with it; None: their own
    engine_only  measure rows of hardware workloads without a log only
    profile   print where the measured process spent its time; its figures are then too low
    """

    only: tuple[str, ...] = ()
    scale: float = 1.0
    runs: int = 3
    nodes: int | None = None
    profile: bool = False
    engine_only: bool = False

    def chosen(self, rows: Iterable[str]) -> list[str]:
        """The rows that are asked for, in their own order.

        raises    InvalidOption naming a row that does not exist
        """
        known = list(rows)
        unknown = [name for name in self.only if name not in known]
        if unknown:
            raise InvalidOption(f"--only: must be some of {', '.join(known)}, got {', '.join(unknown)}")
        return [name for name in known if not self.only or name in self.only]
