"""Messages of nodes that this process did not take, counted by node, for logs, metrics and `koord doctor`.

A node that sends what nobody can use must stop nobody else. So its messages are passed over, and told: the first one of
a node at once, further ones once a minute. Nothing else depends on these counts.

Source: reality spec, 6.2 and 6.8.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.events.envelope import WRITTEN_BY_NODES, StoredEvent

log = logging.getLogger("koordcore.bus")

MOST_NODES: Final = 10_000  # Nodes that are counted one by one. Further ones count together.
OTHERS: Final = "others"  # Name under which further nodes are counted
LONGEST_REASON: Final = 300
TOLD_SECONDS: Final = 60.0


class Refused(StrEnum):
    """Why messages of a node were not taken, so that "3 <value>" reads as a sentence."""

    UNREADABLE_FACT = "unreadable messages"
    FACT_OVER_QUOTA = "facts over its quota"
    UNREADABLE_REPORT = "unreadable reports"
    REPORT_OVER_QUOTA = "reports over its quota"
    REPORT_AHEAD = "reports dated ahead"
    FOREIGN_POD = "statements about pods of other nodes"


@dataclass(slots=True)
class NodeRefusals:
    """What was not taken from one node since the process started."""

    counts: Counter[Refused] = field(default_factory=Counter[Refused])
    last: Refused = Refused.UNREADABLE_FACT  # Kind of the last refusal
    position: int = 0  # Position of the last refused message in its stream; 0 if it was not stored
    reason: str = ""  # Why the last message was refused, one sentence
    told_at: float = float("-inf")  # Monotonic real seconds of the last line in the log of the process
    is_new: bool = True  # Whether something was refused that was not published yet


class Refusals:
    """The messages of nodes that one process did not take. `observer`: name of the process or fold in logs."""

    def __init__(self, observer: str, metrics: BusMetrics = NO_METRICS) -> None:
        self.of_node: dict[str, NodeRefusals] = {}
        self._observer = observer
        self._metrics = metrics

    def note(self, node: str, what: Refused, position: int, reason: str) -> None:
        """Count and tell one message.

        Args:
            node: Name of the node as a subject token.
            position: Position of the message in its stream; 0 if it was not stored.
        """
        if node not in self.of_node and len(self.of_node) >= MOST_NODES:
            node = OTHERS
        entry = self.of_node.setdefault(node, NodeRefusals())
        entry.counts[what] += 1
        entry.last, entry.position, entry.reason, entry.is_new = what, position, reason[:LONGEST_REASON], True
        self._metrics.node_refused(node, what)
        now = time.monotonic()
        if now - entry.told_at >= TOLD_SECONDS:
            entry.told_at = now
            log.warning(
                "node_message_refused by=%s node=%s what=%r count=%d seq=%d reason=%s",
                self._observer,
                node,
                what.value,
                entry.counts[what],
                position,
                entry.reason,
            )

    def tell(self, stored: StoredEvent, reason: str) -> None:
        """Tell that a message is in no state of the fold: a node wrote it and it cannot be read or applied, or it is no
        fact.
        """
        if stored.ref.kind in WRITTEN_BY_NODES:
            self.note(stored.ref.id, Refused.UNREADABLE_FACT, stored.seq, reason)
        else:
            log.error("no_fact by=%s seq=%d aggregate=%s reason=%s", self._observer, stored.seq, stored.ref, reason)

    def news(self) -> list[tuple[str, NodeRefusals]]:
        """Return the nodes with a refusal that was not published yet. Whoever publishes it clears `is_new`."""
        return [(node, entry) for node, entry in self.of_node.items() if entry.is_new]
