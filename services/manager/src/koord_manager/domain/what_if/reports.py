"""Read the retained usage reports of nodes for a re-run."""

from collections.abc import Iterable
from typing import NamedTuple

from koordcore.events.envelope import StoredEvent
from koordcore.events.observation import NodeUsageReported, usage_report
from koordcore.events.registry import UnreadableEvent

Moment = tuple[int, str]
"""(server's time in nanoseconds, 0 if unknown; writer's time as text) of an event. Comparable across streams."""


def moment_of(stored: StoredEvent) -> Moment:
    """Return the moment when the server stored an event, in a form that can be compared across streams."""
    return stored.stored_at_ns, stored.occurred_at


class Report(NamedTuple):
    """One retained usage report.

    Attributes:
        seq: Position in the stream of observations.
        moment: Moment when it was stored.
        reported_at: Time of the report, RFC 3339.
        node: Token of the node.
        event: The report.
    """

    seq: int
    moment: Moment
    reported_at: str
    node: str
    event: NodeUsageReported


def read_reports(stored: Iterable[StoredEvent]) -> list[Report]:
    """Decode usage reports in order. Skip other events.

    Like the manager, also skip reports that cannot be decoded, or whose time has no time zone.
    """
    found: list[Report] = []
    for entry in stored:
        try:
            event = usage_report(entry)
        except UnreadableEvent:
            continue
        if event is not None:
            found.append(Report(entry.seq, moment_of(entry), entry.occurred_at, entry.ref.id, event))
    return found
