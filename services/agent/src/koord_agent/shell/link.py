"""The bus as the agent sees it: not there at first, later there for good. Enforcement never waits for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.ports.desired import DesiredStore, PushFeed
from koordcore.ports.eventlog import AppendOutcome
from koordcore.ports.observations import ObservationLog


class OwnFacts(Protocol):
    """The part of `EventLog` that an agent may use."""

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """See `EventLog.append`."""
        ...

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """See `EventLog.last_of`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the agent uses of a bus."""

    facts: OwnFacts
    reports: ObservationLog
    desired: DesiredStore
    pushes: PushFeed


class Link:
    """The ports once the first connection stands; the adapters themselves outlive later interruptions."""

    def __init__(self, ports: Ports | None = None) -> None:
        self._ports = ports
        self._there = asyncio.Event()
        if ports is not None:
            self._there.set()

    @property
    def ports(self) -> Ports | None:
        """None: never connected so far."""
        return self._ports

    def connect(self, ports: Ports) -> None:
        """The connection stands."""
        self._ports = ports
        self._there.set()

    async def connected(self) -> Ports:
        """Wait for the first connection."""
        await self._there.wait()
        assert self._ports is not None, "the event is set together with the ports"
        return self._ports
