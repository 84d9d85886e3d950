"""Outbox of the agent: facts about its nodes, which wait on disk until they are in the log.

    cycle --put--> disk --send--> log

Enforcement never waits for it. Above the limit new facts are refused, and the cycle puts them again.
`koordcore.service.outbox` sends the facts.

Source: event-bus spec, 3.3 (bounded on-disk queue, oldest kept).
"""

from collections.abc import Sequence
from typing import NamedTuple

from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events.envelope import HEADER_TYPE, AggregateRef, Event, Origin, name_token
from koordcore.events.nodestate import (
    AgentFactLeftOut,
    DeviceInventoryChanged,
    NodeTopologyReported,
    PodsStarted,
    PodsStopped,
)
from koordcore.service.outbox import FactQueue, NotStored, QueuedFact, sealed
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.reporting.topology_report import DEVICES_OF, report_digest
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.store.local_store import LocalStore

KIND = "nodestate"


class Fact(NamedTuple):
    """An event of a node with its headers, before it is in the log."""

    node: str
    event: Event
    origin: Origin


class Outbox(FactQueue):
    """The queue of facts on disk. The main loop adds facts with `put`; the task `run` sends them to the log.

    Args:
        store: Keeps the facts on disk.
        link: The connection to the bus.
        limit: Largest number of facts that wait.
        logger: Logger of the service.

    Attributes:
        dropped: Number of facts that the full queue refused since the start.
    """

    def __init__(self, store: LocalStore, link: BusLink, *, limit: int, logger: Logger) -> None:
        async def log() -> OwnFacts:
            return (await link.connected()).facts

        super().__init__(store, log, logger, instead=_left_out)
        self.dropped = 0
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
