"""What a re-run knows of the recorded manager besides the log, and how it counts the repeated decisions.

Source:
    manager spec, 2.2 to 2.4
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from koordcore.events.envelope import StoredEvent
from koordcore.events.observation import NodeUsageReported, usage_report
from koordcore.events.registry import UnreadableEvent

from koord_manager.domain.controller_names import CONTROLLERS, PLUGINS

Moment = tuple[int, str]
"""(server's time in nanoseconds, 0 if unknown; writer's time as text) of an event. Comparable across streams."""


def moment_of(stored: StoredEvent) -> Moment:
    """Return the moment when the server stored an event, in a form that can be compared across streams."""
    return stored.stored_at_ns, stored.occurred_at


class Report(NamedTuple):
    seq: int  # Position in the stream of observations
    moment: Moment  # Moment when it was stored
    reported_at: str  # Time of the report, RFC 3339
    node: str  # Token of the node
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFlags:
    """Flags of the manager that made the recording. The log does not contain them, so the user states them."""

    # Controllers that ran, of `controller_names.CONTROLLERS` (flag --controllers).
    controllers: frozenset[str] = frozenset(CONTROLLERS)
    # Node resource plugins that ran, of `controller_names.PLUGINS` (flag --noderesource-plugins).
    plugins: frozenset[str] = frozenset(PLUGINS)
    sync_shared_gpus: bool = False  # Whether the gate EnableSyncGPUSharedResource was on


@dataclass(slots=True)
class Tally:
    """Numbers of decisions of one kind in the window of a re-run."""

    recorded: int = 0  # Decisions in the recording
    rerun: int = 0  # Decisions that the re-run made
    same: int = 0  # Recorded decisions that the re-run made with an equal result
    not_retained: int = 0  # Recorded decisions that were not repeated, because their reports or samples are gone

    @property
    def explained(self) -> bool:
        """Whether every recorded decision that could be repeated had the recorded result."""
        return self.recorded == self.same + self.not_retained
