"""Adds headers to the facts of nodes and puts them into the outbox.

A fact that the outbox refuses is put again with the next ones.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.envelope import Event, Origin
from koordcore.events.nodestate import BeCpuSuppressed, PodsStarted, PodsStopped
from koordcore.ports.clock import Clock
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer, parse_traceparent
from koordcore.values.timestamps import rfc3339

from koord_agent.shell.bus.desired_state import DesiredStates
from koord_agent.shell.bus.outbox import Fact, Outbox

REFUSED_FACTS: Final = 1_000
"""Largest number of refused facts that are kept, apart from facts about pods. The oldest are dropped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FactPublisher:
    """Publishes the facts of the nodes of one process through the outbox. Only one task uses it.

    Attributes:
        outbox: Queue of facts on disk.
        states: Desired states, which know why a pod was placed.
        start_id: Id of this run of the process. It is the cause of facts without another cause.
        refused: Called with the name of the node and the fact if the outbox refuses a fact about starts or ends of
            pods.
    """

    outbox: Outbox
    states: DesiredStates
    tracer: Tracer
    clock: Clock
    logger: Logger
    start_id: str
    refused: Callable[[str, Event], None]
    _waiting: list[Fact] = field(default_factory=list[Fact])

    def facts(self, node: str, events: Iterable[Event]) -> list[Fact]:
        """Add headers (id, cause, trace, time) to the events of a node, and return them as facts."""
        return [
            Fact(node, event, self._origin_of_pods(node, event.pods))
            if isinstance(event, PodsStarted)
            else Fact(node, event, self.origin(node))
            for event in events
        ]

    def publish(self, facts: Sequence[Fact]) -> None:
        """Put facts into the outbox, oldest first. Facts that it refuses are put again with the next call.

        Facts about starts and ends of pods are passed to `refused` instead, and of the others the newest 1,000 are
        kept.
        """
        if not facts and not self._waiting:
            return
        offered, self._waiting[:] = [*self._waiting, *facts], []
        for fact in self.outbox.put(offered):
            if isinstance(fact.event, PodsStarted | PodsStopped):
                self.refused(fact.node, fact.event)
            else:
                self._waiting.append(fact)
        del self._waiting[:-REFUSED_FACTS]
        for fact in facts:
            if isinstance(fact.event, BeCpuSuppressed):
                self.logger.debug("be_suppressed", node=fact.node, sentence=fact.event.reason)

    def origin(self, node: str, *, causation: str = "") -> Origin:
        """Return the headers of a fact or report of a node.

        Args:
            node: Name of the node.
            causation: Id of the event that caused it; "" for the start of this process.
        """
        return Origin(
            causation_id=causation or self.start_id,
            correlation_id=node,
            actor=f"agent/{node}",
            occurred_at=rfc3339(self.clock.now()),
        )

    def _origin_of_pods(self, node: str, uids: Sequence[str]) -> Origin:
        """Return headers that continue the traces of the pods' placements.

        The fact belongs to the trace of the first pod.
        """
        causes = [(uid, self.states.cause_of(node, uid)) for uid in uids]
        contexts = [
            self.tracer.emit(
                "start pod",
                parse_traceparent(cause.traceparent, cause.tracestate) if cause else None,
                attributes={"pod_uid": uid, "node": node},
            )
            for uid, cause in causes
        ]
        uid, first = causes[0]
        return Origin(
            causation_id=first.event_id if first else self.start_id,
            correlation_id=(first.correlation_id if first else "") or uid,
            actor=f"agent/{node}",
            occurred_at=rfc3339(self.clock.now()),
            traceparent=contexts[0].traceparent,
            tracestate=contexts[0].state,
        )
