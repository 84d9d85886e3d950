# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# FastStream's broker is extended below its public surface: it has no way to take a connection that exists.
"""FastStream's broker on the connection of the process.

Only workers and endpoints import it, because the import costs 43 MiB.
"""

from types import TracebackType

from faststream.nats import NatsBroker, NatsMessage
from nats.aio.client import Client

from koordcore.bus.client.connection import BusConnection


class SharedBroker(NatsBroker):
    """A FastStream broker that uses an existing NATS connection. It neither opens nor closes the connection.

    Args:
        graceful_seconds: How long `stop` waits for messages that are being handled.
    """

    def __init__(self, connection: BusConnection, graceful_seconds: float) -> None:
        super().__init__(apply_types=False, logger=None, graceful_timeout=graceful_seconds)
        self._shared = connection

    async def _connect(self) -> Client:
        self.config.broker_config.js_options = {"prefix": self._shared.api_prefix}
        self.config.connect(self._shared.client)
        return self._shared.client

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Refuse new messages, and wait until the running handlers have ended. The arguments are ignored."""
        # Else the broker would drain the connection that others use.
        self._connection = None
        await super().stop(exc_type, exc_val, exc_tb)


async def whole_message(message: NatsMessage) -> NatsMessage:
    """Return the message unchanged. FastStream then does not decode it, because handlers decode bodies themselves."""
    return message
