"""The TCP connection below the NATS client: nats-py's own, without the cases in which nats-py never recovers."""

from nats.aio.transport import TcpTransport
from nats.protocol.parser import PONG

_PING = b"PING"
_GONE = (AttributeError, RuntimeError)
"""Errors that asyncio with TLS (AttributeError) and uvloop (RuntimeError) raise for a write to a closed connection.

nats-py expects an OSError. Any other error ends its attempts to connect or to reconnect, for ever.
"""


class BusTransport(TcpTransport):
    """A TCP connection to a NATS server, with or without TLS. A write to a closed one raises `ConnectionResetError`."""

    def __bool__(self) -> bool:
        """Return True also before the connection exists, because nats-py would replace this object by its own."""
        return True

    async def readline(self) -> bytes:
        """Return the next line of the server that is no PING. Lines are only read while the connection is opened.

        The server sends a PING of its own if the client takes longer than 2 s. nats-py takes it for the answer to its
        PING, and then the connection never counts as established.
        """
        while (line := await super().readline()).startswith(_PING):
            self.write(PONG)
        return line

    def write(self, payload: bytes) -> None:
        """Write bytes. Raises `ConnectionResetError` if the connection is closed."""
        try:
            super().write(payload)
        except _GONE as error:
            raise ConnectionResetError(str(error)) from error

    def writelines(self, payload: list[bytes]) -> None:
        """Write several byte strings. Raises `ConnectionResetError` if the connection is closed."""
        try:
            super().writelines(payload)
        except _GONE as error:
            raise ConnectionResetError(str(error)) from error
