"""The connections of an HTTP server: it accepts them, and closes silent ones when there are too many.

A connection waits while no request of it is in hand: before its first complete request, and between two requests. When
a server or an address has too many connections, the new one takes the place of one that waits. So silent connections
never keep a request out, whoever holds them. Next module to read: `http_protocol`.
"""

import asyncio
import errno
import ipaddress
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.http")

# asyncio reserves so many bytes for each connection with TLS before its handshake. 256 KiB would be 256 MiB for 1,024
# silent connections, which is the limit of an agent. A record of TLS has at most 16 KiB. uvloop reserves them lazily.
sslproto.SSLProtocol.max_size = 32 * 1024

BACKLOG: Final = 4096  # Connections that the kernel keeps until they are accepted
_AT_A_TIME: Final = 64  # Connections that are accepted before other tasks run
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS: Final = 1.0
_SHUTDOWN_SECONDS: Final = 5.0  # Time that a client has to end TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that hold before the sender of a request is known. Seconds are real ones."""

    connections: int = 1024  # Connections of a server
    connections_of_address: int = 768  # Connections of one address, and of one IPv6 network of 64 bits
    head_bytes: int = 64 * 1024  # Bytes of a request line with its headers, of trailers, and of framing without content
    headers: int = 100  # Headers and trailers of one request
    url_bytes: int = 8 * 1024
    pipelined: int = 16  # Requests of one connection that wait for an earlier one
    head_seconds: float = 10.0  # Time until the first request is complete up to its body, TLS included
    keep_alive_seconds: float = 30.0  # Time from an answer until the next request is complete up to its body
    write_seconds: float = 60.0  # Time in which a client must read what it was sent


class Connection:
    """One accepted connection. `address`: where it comes from, as `Connections` counts it."""

    __slots__ = ("_is_dropped", "_opening", "_transport", "address")

    def __init__(self, address: str) -> None:
        self.address = address
        self._is_dropped = False
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def opens(self, task: "asyncio.Task[None]") -> None:
        """Note the task that makes the transport; over TLS, it waits for the handshake."""
        self._opening = task

    def opened(self, transport: asyncio.Transport) -> None:
        """Note that the connection is there. No-op if it was dropped meanwhile: it is closed."""
        self._transport = transport
        if self._is_dropped:
            transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether its transport is there; over TLS, after the handshake."""
        return self._transport is not None

    @property
    def has_unsent(self) -> bool:
        """Whether a part of an answer has not been sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def drop(self) -> None:
        """Close the connection at once."""
        self._is_dropped = True
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()


class Connections:
    """Counts the connections of a server by address, and decides which one must go.

    Args:
        refused: Called with a reason (`connections`, `size` or `time`) for each connection that is closed.
    """

    def __init__(self, limits: Limits, refused: Callable[[str], None]) -> None:
        self.limits = limits
        self.refused = refused
        self._of_address: Counter[str] = Counter()
        self._all: set[Connection] = set()
        # Address -> its connections without a request in hand. The one that has waited longest is the first.
        self._waiting: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, and drop another one if there are too many. Return False, and count nothing, if none
        of them waits.
        """
        address = connection.address
        if self._of_address[address] >= self.limits.connections_of_address:
            has_room = self._drop_oldest(address)
        elif len(self._all) >= self.limits.connections:
            has_room = self.drop_one()
        else:
            has_room = True
        if not has_room:
            self.refused("connections")
            return False
        self._all.add(connection)
        self._of_address[address] += 1
        self.waits(connection)
        return True

    def waits(self, connection: Connection) -> None:
        """Note that no request of a connection is in hand."""
        if connection in self._all:
            self._waiting.setdefault(connection.address, {})[connection] = None

    def works(self, connection: Connection) -> None:
        """Note that a request of a connection is in hand."""
        waiting = self._waiting.get(connection.address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.address]

    def gone(self, connection: Connection) -> None:
        """Forget a connection. No-op if it is unknown."""
        if connection not in self._all:
            return
        self.works(connection)
        self._all.discard(connection)
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def drop_one(self) -> bool:
        """Drop a waiting connection of the address that has most of them. Return False if there is none."""
        if not self._waiting:
            return False
        return self._drop_oldest(max(self._waiting, key=lambda address: len(self._waiting[address])))

    def drop_idle(self) -> None:
        """Drop all connections without a request in hand, but those whose answer has not been sent."""
        waiting = [each for of_address in self._waiting.values() for each in of_address]
        for connection in waiting:
            if not connection.has_unsent:
                self.gone(connection)
                connection.drop()

    def _drop_oldest(self, address: str) -> bool:
        oldest = next(iter(self._waiting.get(address, ())), None)
        if oldest is None:
            return False
        self.gone(oldest)
        oldest.drop()
        self.refused("connections")
        return True


async def accept_forever(
    listener: socket.socket,
    connections: Connections,
    make: Callable[[Connection], asyncio.Protocol],
    tls: ssl.SSLContext | None,
) -> None:
    """Accept connections until cancelled. If the process has no more file descriptors, waiting connections are dropped.

    Args:
        listener: Listening socket, not blocking.
        make: Returns the protocol of an accepted connection.
        tls: None: without TLS.
    """
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[None]] = set()  # the event loop itself keeps no task alive
    clock, accepted = SystemClock(), 0
    while True:
        try:
            accepting, peer = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in _EXHAUSTED and connections.drop_one():
                await asyncio.sleep(0)  # the event loop closes its socket
                continue
            _log.warning("http_accept_failed", error=str(error), connections=len(connections))
            await clock.sleep(_RETRY_SECONDS)
            continue
        connection = Connection(address_of(peer))
        if not connections.admit(connection):
            accepting.close()
            continue
        task = asyncio.create_task(_open(accepting, connection, connections, make, tls))
        connection.opens(task)
        opening.add(task)
        task.add_done_callback(opening.discard)
        accepted += 1
        if accepted % _AT_A_TIME == 0:
            await asyncio.sleep(0)


async def _open(
    accepted: socket.socket,
    connection: Connection,
    connections: Connections,
    make: Callable[[Connection], asyncio.Protocol],
    tls: ssl.SSLContext | None,
) -> None:
    loop = asyncio.get_running_loop()
    with_tls: dict[str, Any] = {}
    if tls is not None:
        seconds = connections.limits.head_seconds
        with_tls = {"ssl": tls, "ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": _SHUTDOWN_SECONDS}
    try:
        await loop.connect_accepted_socket(lambda: make(connection), accepted, **with_tls)
    except OSError as error:  # also of TLS
        if isinstance(error, ConnectionAbortedError):  # the end of the time for the handshake
            connections.refused("time")
        _log.debug("http_connection_failed", error=str(error))
    finally:
        if not connection.is_open:
            connections.gone(connection)
            accepted.close()


def address_of(peer: tuple[Any, ...]) -> str:
    """Return under which name connections of a peer are counted: its IPv4 address, or its IPv6 network of 64 bits,
    because one host can have every address of it.
    """
    host = str(peer[0]) if peer else ""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
