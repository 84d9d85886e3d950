"""The published results of the GPU benchmark, beside which a sweep is shown.

Source: gpu-fragmentation spec, 5.3.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from koordctl.demo.trace import InvalidTrace, rows_of
from koordctl.simulate.gpu_sweep import Summary

FILE: Final = "published.csv"

Published: TypeAlias = Mapping[tuple[str, str, int], float]
"""(workload, policy, arrived percent) -> allocation, in percent of the capacity."""


class Compared(NamedTuple):
    """The allocation that a sweep reached, and the published allocation for the same policy and workload.

    Attributes:
        summary: The result of the sweep.
        published: The published allocation in percent of the capacity; None: not published.
    """

    summary: Summary
    published: float | None

    @property
    def difference(self) -> float | None:
        """The absolute difference in percentage points; None without a published result."""
        return None if self.published is None else abs(self.summary.alloc_mean - self.published)


def read_published(folder: Path) -> Published:
    """Return the published results in the folder of the traces.

    Raises:
        InvalidTrace: The file cannot be read or is not valid.
    """
    path = folder / FILE
    found: dict[tuple[str, str, int], float] = {}
    for row in rows_of(path):
        text = row.text("alloc_pct")
        try:
            found[row.text("workload"), row.text("policy"), row.number("arrived_pct")] = float(text)
        except ValueError as error:
            raise InvalidTrace(f"{row.place}: alloc_pct must be a number, got {text!r}") from error
    return found


def compared(found: Iterable[Summary], published: Published, last: int) -> list[Compared]:
    """Return the results of a sweep at the percentages of arrivals for which results were published, and at the end.

    Args:
        found: Results of a sweep.
        published: The published results.
        last: Percentage of arrivals at the end of the runs.
    """
    percentages = {(workload, arrived) for workload, _, arrived in published}
    return [
        Compared(each, published.get((each.workload, each.policy, each.arrived_pct)))
        for each in found
        if (each.workload, each.arrived_pct) in percentages or each.arrived_pct == last
    ]
