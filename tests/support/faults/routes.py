"""The routes between nats-servers, each through a relay of the test that can be closed: partitions of a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Final

from koordcore.embedded.ports import LOOPBACK, free_ports

_BYTES: Final = 65_536


class Route:
    """A relay for the connections that one server opens to another one.

    Args:
        port: Port on which it listens.
        target: Port of the other server.

    Attributes:
        is_open: While it is False, connections are refused. `close` also breaks those that exist.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.is_open = True
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)

    def close(self) -> None:
        """Break all connections, and refuse others."""
        self.is_open = False
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        """Let connections pass again."""
        self.is_open = True

    async def stop(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, up_writer}
        self._writers |= ends
        try:
            await asyncio.gather(self._relay(reader, up_writer), self._relay(up_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    @staticmethod
    async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_BYTES):
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


class Routes:
    """The routes of a cluster of servers, one relay for each pair and direction.

    Args:
        targets: Port of each server for the others.
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self._targets = targets
        pairs = [(a, b) for a in range(len(targets)) for b in range(len(targets)) if a != b]
        ports = free_ports(len(pairs))
        self._by_pair = {pair: Route(port, targets[pair[1]]) for pair, port in zip(pairs, ports, strict=True)}
        self.nowhere = free_ports(1)[0]
        """Port on which nothing listens. Servers advertise it, so that no server finds a way around the relays."""

    def of(self, server: int) -> list[str]:
        """The addresses of the other servers, as one server knows them."""
        return [f"{LOOPBACK}:{route.port}" for (source, _), route in sorted(self._by_pair.items()) if source == server]

    def cut_off(self, servers: Collection[int]) -> None:
        """Separate some servers from the others. Those on one side still reach each other."""
        for (a, b), route in self._by_pair.items():
            if (a in servers) != (b in servers):
                route.close()

    def isolate(self, server: int) -> None:
        """Separate one server from all others."""
        self.cut_off({server})

    def split_all(self) -> None:
        """Separate every server from every other one."""
        for route in self._by_pair.values():
            route.close()

    def heal(self) -> None:
        """Let all servers reach each other again."""
        for route in self._by_pair.values():
            route.open()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The relays listen inside the block."""
        await asyncio.gather(*(route.start() for route in self._by_pair.values()))
        try:
            yield
        finally:
            await asyncio.gather(*(route.stop() for route in self._by_pair.values()))
