"""Outbox of the proxy: facts about hook servers, which wait on disk until they are in the log.

    hook calls, hook folder --tell--> memory --run--> disk --send--> log, or agent of the node

Nothing waits for it. Above the limit the oldest facts are dropped. How many were dropped is a fact, too, and follows as
soon as the queue has room. A proxy without a key of the log sends facts to the agent, which checks and appends them.

Source: runtime spec, 10.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events.criproxy import HookServerFailed, HookServersChanged, ProxyFactsDropped
from koordcore.events.envelope import AggregateRef, NewEvent, Origin, StoredEvent, name_token
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import AppendOutcome, KnownId, Misconfigured, Unavailable, Unsendable
from koordcore.runtime_api.proxy_facts import APPEND, KIND, LAST_OF, SERVICE, AppendAnswer, LastAnswer
from koordcore.service.outbox import FactFile, FactQueue, NotStored, QueuedFact, SealedFact, sealed
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_criproxy.hooks.servers import HookFailure, HookServer, hook_server_failed, hook_servers_changed
from koord_criproxy.sockets import open_channel

LOOK_SECONDS: Final = 10.0
REPEAT_SECONDS: Final = 600.0
"""Time in which equal failures are one fact. A kubelet repeats a call that failed every few seconds, without end."""
_MOST_FAILURES: Final = 4096
"""Maximum number of failures that are remembered: more than the containers of a node have hooks."""
_DROPPED: Final = """
create table if not exists dropped (facts integer);
insert into dropped select 0 where not exists (select 1 from dropped);
"""


class ProxyFactFile(FactFile):
    """The file in which the proxy keeps facts, and the number of dropped facts that the log does not know of yet.

    `folder` None: in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder, name="criproxy.sqlite", tables=_DROPPED)
        # Number of facts that were dropped and about which no fact was queued yet.
        self.dropped: int = self._db.execute("select facts from dropped").fetchone()[0]

    def put(self, facts: Sequence[SealedFact], gone: Sequence[QueuedFact], dropped: int) -> list[QueuedFact]:
        """Add facts and delete the dropped ones (`gone`) in one transaction. `dropped`: how many the log does not know
        of yet.

        Return the added facts, as they wait in the queue.

        Raises:
            NotStored: The disk refused.
        """
        with self.transaction():
            added = self.insert(facts)
            self._db.executemany("delete from fact where id = ?", [(fact.id,) for fact in gone])
            self._db.execute("update dropped set facts = ?", (dropped,))
        self.dropped = dropped
        return added


class ProxyOutbox(FactQueue):
    """The facts of one proxy. `tell_failure` and `tell_servers` add facts, `keep` stores them, and `run` sends them.

    `log` waits until the log can be reached for the first time. `limit`: most facts that wait.
    """

    def __init__(
        self,
        file: ProxyFactFile,
        log: Callable[[], Awaitable[OwnFacts]],
        *,
        node: str,
        limit: int,
        clock: Clock,
        logger: Logger,
    ) -> None:
        super().__init__(file, log, logger, instead=self._left_out)
        self.dropped = 0  # Number of facts that this process dropped
        self._own_file = file
        self._own_logger = logger
        self._node = node
        self._ref = AggregateRef(KIND, name_token(node))
        self._limit = limit
        self._clock = clock
        self._start_id = str(uuid.uuid4())
        self._fresh: list[SealedFact] = []
        self._lost = 0
        self._told = asyncio.Event()
        self._failures = Newest[HookServerFailed, float](_MOST_FAILURES)

    def tell_failure(self, failure: HookFailure) -> None:
        """No-op if an equal fact was queued in the last ten minutes."""
        event, now = hook_server_failed(failure), self._clock.monotonic()
        told = self._failures.pop(event, None)
        if told is not None and now - told < REPEAT_SECONDS:
            self._failures[event] = told
            return
        self._failures[event] = now
        self._tell(event, event.uid)

    def tell_servers(self, servers: Sequence[HookServer]) -> None:
        self._tell(hook_servers_changed(servers), self._node)

    async def keep(self) -> None:
        """Store new facts on disk, until cancelled."""
        while True:
            with suppress(TimeoutError):
                waits = self._own_file.dropped or self._fresh  # for room, or for a disk that takes facts again
                async with asyncio.timeout(LOOK_SECONDS if waits else None):
                    await self._told.wait()
            self._told.clear()
            self.store()

    def store(self) -> None:
        """Store new facts on disk. If there are too many, drop the oldest.

        If the disk refuses, log the reason; the facts stay in memory for the next call.
        """
        room = self._limit - len(self) - len(self._fresh)
        untold = self._own_file.dropped + self._lost
        fresh = self._fresh
        if untold and room > 0:
            fresh, untold = [*fresh, sealed(self._ref, ProxyFactsDropped(facts=untold), self._origin(self._node))], 0
        if not fresh:
            return
        gone = self.oldest(-room) if room < 0 else []
        try:
            kept = self._own_file.put(fresh, gone, untold + len(gone))
        except NotStored as error:
            self.complain(error)
            return
        self._fresh, self._lost = [], 0
        self.drop(gone)
        self.add(kept)
        if gone:
            self.dropped += len(gone)
            self._own_logger.warning("facts_dropped", waiting=len(self), dropped=self.dropped)

    def _left_out(self, _: QueuedFact, __: str) -> ProxyFactsDropped:
        self.dropped += 1
        return ProxyFactsDropped(facts=1)

    def _tell(self, event: HookServerFailed | HookServersChanged, about: str) -> None:
        self._fresh.append(sealed(self._ref, event, self._origin(about)))
        if len(self._fresh) > self._limit:  # many at once, or the disk refuses
            del self._fresh[0]
            self._lost += 1
            self.dropped += 1
        self._told.set()

    def _origin(self, about: str) -> Origin:
        return Origin(
            causation_id=self._start_id,
            correlation_id=about,
            actor=f"criproxy/{self._node}",
            occurred_at=rfc3339(self._clock.now()),
        )


READ_SECONDS: Final = 10.0
_REFUSALS: Final = {
    grpc.StatusCode.ALREADY_EXISTS: KnownId,
    grpc.StatusCode.INVALID_ARGUMENT: Unsendable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unsendable,  # gRPC's own answer to a message that is too large
    grpc.StatusCode.FAILED_PRECONDITION: Misconfigured,
}
T = TypeVar("T")


class AgentFacts:
    """Implements `OwnFacts` through the agent of the node. Its socket may be missing for a while."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = open_channel(str(socket))

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append one fact. While the agent does not answer, the outcome is `Unavailable`.

        Raises:
            Unsendable: The agent refuses the fact, or there are several.
            Misconfigured: The log refuses facts of the agent.
        """
        if len(events) != 1:
            raise Unsendable(f"the agent takes one fact at a time, got {len(events)}")
        try:
            return (await self._call(APPEND, codec.encode(events[0]), AppendAnswer, deadline)).outcome
        except NoAnswer as error:
            return Unavailable(str(error))

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """The newest fact of the node's proxy; None if it has none.

        Raises:
            NoAnswer: The agent, or the log, does not answer.
            Misconfigured: The log refuses the agent.
        """
        event = (await self._call(LAST_OF, b"", LastAnswer, READ_SECONDS)).event
        return event if event is not None and event.ref == ref else None

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: str, request: bytes, answer: type[T], seconds: float) -> T:
        unary: Any = self._channel.unary_unary
        try:
            return codec.decode(await unary(f"/{SERVICE}/{method}")(request, timeout=seconds), answer)
        except grpc.aio.AioRpcError as error:
            refusal = _REFUSALS.get(error.code(), NoAnswer)
            raise refusal(f"{self._socket}: {error.code().name}: {error.details()}") from error
        except codec.DecodeError as error:
            raise Misconfigured(f"{self._socket}: the answer to {method} is malformed: {error}") from error
