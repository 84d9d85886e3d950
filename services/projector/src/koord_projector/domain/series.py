"""Totals of the cluster over time: one row per second of stream time with at least one event.

A row has the totals after the last event of its second, by the time of the event. So it does not depend on batches.
Usage is not included; it comes from the archived reports.
"""

from datetime import UTC, datetime

import msgspec

from koord_projector.domain.nodes import NodeFigures
from koord_projector.domain.pods import Phase

_SECOND_TEXT = len("2026-01-01T00:00:00")
_MOMENT_TEXT = len("2026-01-01T00:00:00.000000Z")


class Totals(msgspec.Struct, kw_only=True):
    """Sums over the nodes that exist: cpu in milli-cores, memory in bytes. The fields are those of `NodeFigures`."""

    nodes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    cpu_requested: int = 0
    memory_requested: int = 0
    gpus_requested: int = 0
    batch_cpu: int = 0
    batch_memory: int = 0
    batch_cpu_requested: int = 0
    batch_memory_requested: int = 0

    def add(self, figures: NodeFigures, sign: int) -> None:
        """Add (sign +1) or remove (sign -1) the figures of a node; no-op if the node does not exist."""
        if not figures.exists:
            return
        self.nodes += sign
        self.cpu_milli += sign * figures.cpu_milli
        self.memory_bytes += sign * figures.memory_bytes
        self.gpus += sign * figures.gpus
        self.cpu_requested += sign * figures.cpu_requested
        self.memory_requested += sign * figures.memory_requested
        self.gpus_requested += sign * figures.gpus_requested
        self.batch_cpu += sign * figures.batch_cpu
        self.batch_memory += sign * figures.batch_memory
        self.batch_cpu_requested += sign * figures.batch_cpu_requested
        self.batch_memory_requested += sign * figures.batch_memory_requested

    def replace(self, earlier: NodeFigures, later: NodeFigures) -> None:
        """Remove the figures of a node before an event, and add those after it."""
        if not (earlier.exists and later.exists):
            self.add(earlier, -1)
            self.add(later, 1)
            return
        self.cpu_milli += later.cpu_milli - earlier.cpu_milli
        self.memory_bytes += later.memory_bytes - earlier.memory_bytes
        self.gpus += later.gpus - earlier.gpus
        self.cpu_requested += later.cpu_requested - earlier.cpu_requested
        self.memory_requested += later.memory_requested - earlier.memory_requested
        self.gpus_requested += later.gpus_requested - earlier.gpus_requested
        self.batch_cpu += later.batch_cpu - earlier.batch_cpu
        self.batch_memory += later.batch_memory - earlier.batch_memory
        self.batch_cpu_requested += later.batch_cpu_requested - earlier.batch_cpu_requested
        self.batch_memory_requested += later.batch_memory_requested - earlier.batch_memory_requested


class SeriesRow(msgspec.Struct, frozen=True):
    """One row of the table `cluster_series`: totals of the cluster after the last fact of one second.

    Attributes:
        second: Unix seconds.
        seq: Position of the last fact of the second.
        totals: Sums over the nodes.
        pods: Phase -> number of pods.
    """

    second: int
    seq: int
    totals: Totals
    pods: dict[Phase, int]


class Series:
    """Collects the rows of the table `cluster_series` while facts are applied. Only one task may use it.

    Args:
        second: Second of the newest row of the table, so that a restart continues within its second.
        seq: Position of the newest row of the table.
    """

    def __init__(self, second: int = 0, seq: int = 0) -> None:
        self._second = second
        self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S") if seq else ""
        self._seq = seq
        self._rows: dict[int, SeriesRow] = {}

    def before_event(self, occurred_at: str, totals: Totals, pods: dict[Phase, int]) -> None:
        """If a fact begins a new second, add the row of the second before. Call it before the fact is counted.

        A fact with an invalid time belongs to the second of the previous fact.

        Args:
            occurred_at: RFC 3339 time of the fact.
            totals: Totals before the fact.
            pods: Phase -> number of pods before the fact.
        """
        if occurred_at[:_SECOND_TEXT] == self._text or len(occurred_at) != _MOMENT_TEXT:
            return
        try:
            second = int(datetime.fromisoformat(occurred_at[:_SECOND_TEXT] + "+00:00").timestamp())
        except ValueError:
            return
        self.flush(totals, pods)
        self._second, self._text = second, occurred_at[:_SECOND_TEXT]

    def after_event(self, seq: int) -> None:
        """Record the position of a fact that was counted, as that of the current second's row."""
        self._seq = seq

    def flush(self, totals: Totals, pods: dict[Phase, int]) -> None:
        """Add the row of the current second to the series, although more facts of this second may follow."""
        if self._text and self._seq:
            self._rows[self._second] = SeriesRow(self._second, self._seq, msgspec.structs.replace(totals), dict(pods))

    def take_rows(self, totals: Totals, pods: dict[Phase, int]) -> list[SeriesRow]:
        """Return the rows since the last call, with one for the current second.

        A later row of a second replaces an earlier one.
        """
        self.flush(totals, pods)
        rows, self._rows = list(self._rows.values()), {}
        return rows
