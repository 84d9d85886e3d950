"""The usage reports of nodes that are still kept, as a run of `what_if` takes them in."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent

Moment = tuple[int, str]
"""When something was stored: the server's time of both streams, and the writer's where a log keeps none."""


def moment_of(stored: StoredEvent) -> Moment:
    """When it was stored."""
    return stored.stored_at_ns, stored.occurred_at


class Report(NamedTuple):
    """One report.

    seq       position in the stream of observations
    moment    when it was stored
    told_at   when it was told; node: token
    """

    seq: int
    moment: Moment
    told_at: str
    node: str
    event: NodeUsageReported


def read_reports(stored: Iterable[StoredEvent]) -> list[Report]:
    """Reports in order; what is another observation, or cannot be used, is left out, as the manager leaves it out."""
    found: list[Report] = []
    for entry in stored:
        try:
            event = CATALOGUE.read(entry)
            if isinstance(event, NodeUsageReported) and datetime.fromisoformat(event.updated_at).tzinfo is not None:
                found.append(Report(entry.seq, moment_of(entry), entry.occurred_at, entry.ref.id, event))
        except (UnreadableEvent, ValueError):
            continue
    return found
