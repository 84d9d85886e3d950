"""The connection of the agent to the bus. It may be established late; enforcement never waits for it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from koordcore.bus.write.own_facts import OwnFacts
from koordcore.ports.desired import DesiredStore, PushFeed
from koordcore.ports.eventlog import ObservationLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Log, reports, desired state, and pushed facts."""

    facts: OwnFacts
    reports: ObservationLog
    desired: DesiredStore
    pushes: PushFeed


class BusLink:
    """The connection to the bus. It exists before the bus answers, and stays usable after interruptions."""

    def __init__(self, ports: Ports | None = None) -> None:
        self._ports = ports
        self._there = asyncio.Event()
        self._is_connected: Callable[[], bool] = _always
        self._refused = "not connected yet"
        if ports is not None:
            self._there.set()

    @property
    def ports(self) -> Ports | None:
        """None before the bus has answered once."""
        return self._ports

    def connect(self, ports: Ports, *, is_connected: Callable[[], bool] | None = None) -> None:
        """Ports of an earlier connection are of no more use. `is_connected` None: always."""
        self._ports = ports
        self._is_connected = is_connected or _always
        self._refused = ""
        self._there.set()

    def refuse(self, reason: str) -> None:
        """Record the reason why no new connection to the bus can be made, for `trouble`."""
        self._refused = reason

    def trouble(self) -> str | None:
        """Why facts do not reach the log now, for example no connection; None if the link works."""
        if self._ports is None:
            return self._refused
        if self._is_connected():
            return None
        lost = "the connection is lost; the last desired state stays in force"
        return f"{lost}: {self._refused}" if self._refused else lost

    async def connected(self) -> Ports:
        """Wait until the bus has answered once, and return the connections, after interruptions the newest ones."""
        await self._there.wait()
        assert self._ports is not None, "the event is set together with the ports"
        return self._ports


def _always() -> bool:
    return True
