"""Adds headers to the facts of nodes and puts them into the outbox, where they wait on disk until they are in the log.

    cycle --put--> disk --send--> log

Enforcement never waits for it. Above the limit new facts are refused, and put again with the next ones.
`koordcore.service.outbox` sends the facts.

Source: event-bus spec, 3.3 (bounded on-disk queue, oldest kept).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events.envelope import HEADER_TYPE, AggregateRef, Event, Origin, name_token
from koordcore.events.nodestate import (
    AgentFactLeftOut,
    BeCpuSuppressed,
    DeviceInventoryChanged,
    NodeTopologyReported,
    PodsStarted,
    PodsStopped,
)
from koordcore.ports.clock import Clock
from koordcore.service.outbox import FactQueue, NotStored, QueuedFact, sealed
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer, parse_traceparent
from koordcore.values.timestamps import rfc3339

from koord_agent.domain.reporting.topology_report import DEVICES_OF, report_digest
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.bus.desired_state import DesiredStates
from koord_agent.shell.store.local_store import LocalStore

KIND = "nodestate"
REFUSED_FACTS: Final = 1_000
"""Largest number of refused facts that are kept, apart from facts about pods. The oldest are dropped."""


class Fact(NamedTuple):
    node: str
    event: Event
    origin: Origin


class Outbox(FactQueue):
    """The queue of facts on disk. The main loop adds facts with `put`; the task `run` sends them to the log.

    Args:
        limit: Largest number of facts that wait.
    """

    def __init__(self, store: LocalStore, link: BusLink, *, limit: int, logger: Logger) -> None:
        async def log() -> OwnFacts:
            return (await link.connected()).facts

        super().__init__(store, log, logger, instead=_left_out)
        self.dropped = 0  # Number of facts that the full queue refused since the start
        self._store = store
        self._limit = limit

    def put(self, facts: Sequence[Fact]) -> list[Fact]:
        """Store facts on disk. Return the facts that were not stored, because the queue is full or the write failed."""
        room = max(0, self._limit - len(self))
        taken, refused = facts[:room], list(facts[room:])
        if refused:
            self.dropped += len(refused)
            self._logger.warning("outbox_full", waiting=len(self), refused=len(refused))
        if not taken:
            return refused
        facts_of_log = [sealed(AggregateRef(KIND, name_token(fact.node)), fact.event, fact.origin) for fact in taken]
        topologies = {
            (DEVICES_OF if isinstance(fact.event, DeviceInventoryChanged) else "") + fact.node: report_digest(
                fact.event
            )
            for fact in taken
            if isinstance(fact.event, NodeTopologyReported | DeviceInventoryChanged)
        }
        started, stopped = _pods(taken, PodsStarted), _pods(taken, PodsStopped)
        try:
            kept = self._store.add(facts_of_log, started=started, stopped=stopped, topologies=topologies)
        except NotStored as error:
            self.complain(error)
            return list(facts)
        self.add(kept)
        return refused


def _left_out(fact: QueuedFact, reason: str) -> AgentFactLeftOut:
    return AgentFactLeftOut(type=fact.headers[HEADER_TYPE], size_bytes=len(fact.body), reason=reason)


def _pods(facts: Sequence[Fact], kind: type[PodsStarted] | type[PodsStopped]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fact in facts:
        if isinstance(fact.event, kind):
            found.setdefault(fact.node, []).extend(fact.event.pods)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class FactPublisher:
    """Publishes the facts of the nodes of one process through the outbox. Only one task uses it."""

    outbox: Outbox
    states: DesiredStates  # Desired states, which know why a pod was placed
    tracer: Tracer
    clock: Clock
    logger: Logger
    start_id: str  # Id of this run of the process. It is the cause of facts without another cause.
    # Called with the name of the node and the fact if the outbox refuses a fact about starts or ends of pods.
    refused: Callable[[str, Event], None]
    _waiting: list[Fact] = field(default_factory=list[Fact])

    def facts(self, node: str, events: Iterable[Event]) -> list[Fact]:
        """Add headers: id, cause, trace, time."""
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
        """Headers of a fact or report. `causation` is the id of the event that caused it.

        "" for the start of this process.
        """
        return Origin(
            causation_id=causation or self.start_id,
            correlation_id=node,
            actor=f"agent/{node}",
            occurred_at=rfc3339(self.clock.now()),
        )

    def _origin_of_pods(self, node: str, uids: Sequence[str]) -> Origin:
        """Continue the traces of the pods' placements. The fact belongs to the trace of the first pod."""
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
