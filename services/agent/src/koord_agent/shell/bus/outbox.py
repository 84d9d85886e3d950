"""Queue of facts on disk, which are sent to the log in order.

    cycle --put--> disk --send--> log, up to 200 aggregates in one atomic batch, one by one after a conflict

Enforcement never waits for it. While the bus is unavailable, facts wait. Above the limit new facts are refused, and the
cycle puts them again. The expected position is the last event of each aggregate, which is read once.

Source: event-bus spec, 3.3 (bounded on-disk queue, oldest kept), 4.3.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from koordcore.bus.client.connection import Denied, NoAnswer
from koordcore.events.agents.nodestate import DeviceInventoryChanged, NodeTopologyReported, PodsStarted, PodsStopped
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, name_token, seal
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, Full, Misconfigured, Unavailable, Unsendable
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.reporting.topology_report import DEVICES_OF, report_digest
from koord_agent.shell.bus.bus_link import BusLink, OwnFacts
from koord_agent.shell.store.local_store import LocalStore, NotStored, QueuedFact

MAX_BATCH = 200
READS_AT_ONCE = 32
APPEND_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""Delay after an outcome that only changes with time."""
KIND = "nodestate"


class Fact(NamedTuple):
    """An event of a node with its headers, before it is in the log."""

    node: str
    event: Event
    origin: Origin


@dataclass(slots=True)
class _Aggregate:
    """Waiting facts of one node, oldest first. last_seq is None until it was read."""

    waiting: deque[QueuedFact]
    last_seq: int | None = None


class Outbox:
    """The queue of facts on disk. The main loop adds facts with `put`; the task `run` sends them to the log."""

    def __init__(self, store: LocalStore, link: BusLink, *, limit: int, logger: Logger) -> None:
        self.dropped = 0
        self.sent = 0
        self._store = store
        self._link = link
        self._limit = limit
        self._logger = logger
        self._aggregates: dict[str, _Aggregate] = {}
        self._depth = 0
        self._trouble = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue(store.facts())

    def __len__(self) -> int:
        """Return the number of facts that wait or are being sent."""
        return self._depth

    def put(self, facts: Sequence[Fact]) -> list[Fact]:
        """Store facts on disk. Return those that were not stored, because the queue is full or the disk refused."""
        room = max(0, self._limit - self._depth)
        taken, refused = facts[:room], list(facts[room:])
        if refused:
            self.dropped += len(refused)
            self._logger.warning("outbox_full", waiting=self._depth, refused=len(refused))
        if not taken:
            return refused
        sealed = [(_ref(fact.node), *_seal(fact)) for fact in taken]
        topologies = {
            (DEVICES_OF if isinstance(fact.event, DeviceInventoryChanged) else "") + fact.node: report_digest(
                fact.event
            )
            for fact in taken
            if isinstance(fact.event, NodeTopologyReported | DeviceInventoryChanged)
        }
        started, stopped = _pods(taken, PodsStarted), _pods(taken, PodsStopped)
        try:
            kept = self._store.add(sealed, started=started, stopped=stopped, topologies=topologies)
        except NotStored as error:
            self._complain(error)
            return list(facts)
        self._trouble = ""
        self._queue(kept)
        self._wake.set()
        return refused

    async def run(self) -> None:
        """Send the queued facts to the log, in order, until cancelled."""
        ports = await self._link.connected()
        while True:
            self._wake.clear()
            heads = self._heads()
            if not heads:
                self._idle.set()
                await self._wake.wait()
                continue
            try:
                pause = await self._send(ports.facts, heads)
            except (NoAnswer, Denied, Misconfigured) as error:
                self._logger.error("facts_not_sent", facts=len(heads), reason=str(error))
                pause = True
            if pause:
                await asyncio.sleep(PAUSE_SECONDS)

    async def flush(self, real_seconds: float) -> None:
        """Wait until all facts are sent, but at most for this number of seconds of real time."""
        try:
            async with asyncio.timeout(real_seconds):
                await self._idle.wait()
        except TimeoutError:
            self._logger.warning("outbox_left", facts=self._depth)

    def _queue(self, facts: Iterable[QueuedFact]) -> None:
        for fact in facts:
            aggregate = self._aggregates.get(fact.node)
            if aggregate is None:
                aggregate = self._aggregates[fact.node] = _Aggregate(deque())
            aggregate.waiting.append(fact)
            self._depth += 1
            self._idle.clear()

    def _heads(self) -> list[QueuedFact]:
        """Return the oldest fact of each node, up to a batch, nodes with the oldest facts first."""
        heads = [aggregate.waiting[0] for aggregate in self._aggregates.values() if aggregate.waiting]
        heads.sort(key=lambda fact: fact.id)
        return heads[:MAX_BATCH]

    async def _send(self, log: OwnFacts, heads: list[QueuedFact]) -> bool:
        """Append these facts, and return whether to pause before the next append."""
        await self._read_positions(log, heads)
        try:
            outcome = await log.append([self._event(fact) for fact in heads], deadline=APPEND_SECONDS)
        except Unsendable:
            return await self._send_each(log, heads)
        if isinstance(outcome, Conflict) and len(heads) > 1:
            return await self._send_each(log, heads)
        if isinstance(outcome, Conflict):
            return await self._after_conflict(log, heads[0])
        return self._settle(heads, outcome)

    async def _send_each(self, log: OwnFacts, heads: list[QueuedFact]) -> bool:
        return any([await self._send_one(log, fact) for fact in heads])

    async def _send_one(self, log: OwnFacts, fact: QueuedFact) -> bool:
        try:
            outcome = await log.append([self._event(fact)], deadline=APPEND_SECONDS)
        except Unsendable as error:
            self._logger.error("fact_not_sent", node=fact.node, reason=str(error))
            return True
        if isinstance(outcome, Conflict):
            return await self._after_conflict(log, fact)
        return self._settle([fact], outcome)

    async def _after_conflict(self, log: OwnFacts, fact: QueuedFact) -> bool:
        """Read the position again after a conflict, and return whether to pause.

        Another process of this node has written, or the position was stale. The fact stays valid.
        """
        last = await log.last_of(fact.ref)
        aggregate = self._aggregates[fact.node]
        if last is not None and last.event_id == fact.headers["Nats-Msg-Id"]:
            return self._settle([fact], Appended(last.seq, (last.seq,), duplicate=True))
        seq = last.seq if last is not None else 0
        moved, aggregate.last_seq = seq != aggregate.last_seq, seq
        return not moved

    def _settle(self, facts: list[QueuedFact], outcome: AppendOutcome) -> bool:
        match outcome:
            case Appended(seqs=seqs):
                for fact, seq in zip(facts, seqs, strict=True):
                    aggregate = self._aggregates[fact.node]
                    aggregate.waiting.popleft()
                    aggregate.last_seq = seq
                try:
                    self._store.remove(facts)
                except NotStored as error:
                    self._complain(error)
                self._depth -= len(facts)
                self.sent += len(facts)
                return False
            case Full(reason=reason) | Unavailable(reason=reason):
                self._logger.warning("facts_wait", facts=self._depth, reason=reason)
                return True
            case Conflict():
                return True

    def _complain(self, error: NotStored) -> None:
        """Log an error of the disk once until it changes."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._logger.error("facts_not_stored", reason=self._trouble)

    def _event(self, fact: QueuedFact) -> NewEvent:
        return NewEvent(fact.ref, fact.headers, fact.body, self._aggregates[fact.node].last_seq or 0)

    async def _read_positions(self, log: OwnFacts, facts: Iterable[QueuedFact]) -> None:
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def read(fact: QueuedFact) -> None:
            async with gate:
                last = await log.last_of(fact.ref)
            self._aggregates[fact.node].last_seq = last.seq if last is not None else 0

        await asyncio.gather(*(read(fact) for fact in facts if self._aggregates[fact.node].last_seq is None))


def _ref(node: str) -> AggregateRef:
    return AggregateRef(KIND, name_token(node))


def _seal(fact: Fact) -> tuple[dict[str, str], bytes]:
    # The same cause may lead to several facts of a node over time: the random index keeps their ids apart, and the disk
    # keeps the id through retries and restarts.
    draft = Draft(_ref(fact.node), fact.event, 0)
    new = seal(draft, fact.origin, secrets.randbits(62), CATALOGUE.of(type(fact.event)).schema)
    return new.headers, new.body


def _pods(facts: Sequence[Fact], kind: type[PodsStarted] | type[PodsStopped]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fact in facts:
        if isinstance(fact.event, kind):
            found.setdefault(fact.node, []).extend(fact.event.pods)
    return found
