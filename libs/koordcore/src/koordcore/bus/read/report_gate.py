"""Read the usage reports of nodes as every service does that uses them: what a node may not report is passed over.

    too many of one node -> cannot be read -> dated after the server stored it -> the report

A report changes only what the services think of its own node. Numbers of a pod that count beyond its node, such as
recommendations, are taken from the node on which the pod is (`koordcore.state.pods_of_nodes`).

Source: reality spec, 6.2 and 6.8; decision 0049.
"""

import math
from datetime import datetime
from typing import Final

from koordcore.bus.refusals import Refusals, Refused
from koordcore.events.envelope import StoredEvent
from koordcore.events.node_messages import require_storable_report
from koordcore.events.observation import NodeUsageReported, usage_report
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.clock import Clock
from koordcore.values.invalid import InvalidInput

LEEWAY_SECONDS: Final = 60.0  # How far a node's clock may be ahead of the server's, in the run's time
REPORTS_AT_ONCE: Final = 180  # As many as the stream keeps of one node
REPORTS_PER_MINUTE: Final = 60
MOST_NODES: Final = 100_000  # Nodes whose reports are counted


class ReportGate:
    """Reads the reports of one stream, in its order.

    Args:
        clock: The run's clock, which says what time it was when the server stored a report.
        refusals: Is told what was passed over.
    """

    def __init__(self, clock: Clock, refusals: Refusals) -> None:
        self.refusals = refusals
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # Node -> reports that it may still send, and when that was

    def read(self, stored: StoredEvent, *, is_counted: bool = True) -> NodeUsageReported | None:
        """Return the report in a message of the stream of observations; None if it is passed over, or another event.
        `is_counted`: whether it counts against the node's quota. Not, if it was read out of turn.
        """
        node = stored.ref.id
        at = self._clock.at_host(stored.stored_at_ns / 1e9) if stored.stored_at_ns else math.inf
        if is_counted and not self._has_room(node, at):
            reason = f"more than {REPORTS_PER_MINUTE} reports per minute"
            self.refusals.note(node, Refused.REPORT_OVER_QUOTA, stored.seq, reason)
            return None
        try:
            report = usage_report(stored)
            if report is not None:
                require_storable_report(stored, report)
        except UnreadableEvent as error:
            self.refusals.note(node, Refused.UNREADABLE_REPORT, stored.seq, error.reason)
            return None
        except InvalidInput as error:
            self.refusals.note(node, Refused.UNREADABLE_REPORT, stored.seq, error.sentence())
            return None
        if report is None:
            return None
        dated = datetime.fromisoformat(report.updated_at).timestamp()
        if dated > at + LEEWAY_SECONDS:
            reason = f"it is dated {report.updated_at}, {dated - at:,.0f} s after the server stored it"
            self.refusals.note(node, Refused.REPORT_AHEAD, stored.seq, reason)
            return None
        return report

    def _has_room(self, node: str, at: float) -> bool:
        if not math.isfinite(at):
            return True
        left, since = self._left.get(node, (float(REPORTS_AT_ONCE), at))
        left = min(REPORTS_AT_ONCE, left + max(0.0, at - since) * REPORTS_PER_MINUTE / 60)
        if len(self._left) >= MOST_NODES and node not in self._left:
            self._left.clear()
        has_room = left >= 1
        self._left[node] = left - has_room, max(at, since)
        return has_room
