"""Access to the log through the agent of the node, for a proxy without a key of the log.

The agent checks each fact, appends it, and answers with the outcome.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from koordcore.bus.client.connection import NoAnswer
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.ports.eventlog import AppendOutcome, KnownId, Misconfigured, Unavailable, Unsendable
from koordcore.runtime_api.proxy_facts import APPEND, LAST_OF, SERVICE, AppendAnswer, LastAnswer
from koordcore.values import codec

from koord_criproxy.shell.channels import open_channel

READ_SECONDS: Final = 10.0
_REFUSALS: Final = {
    grpc.StatusCode.ALREADY_EXISTS: KnownId,
    grpc.StatusCode.INVALID_ARGUMENT: Unsendable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unsendable,  # gRPC's own answer to a message that is too large
    grpc.StatusCode.FAILED_PRECONDITION: Misconfigured,
}
T = TypeVar("T")


class AgentFacts:
    """The log, as the agent of the node gives access to it. Implements `OwnFacts`.

    Args:
        socket: Socket of the agent. It may be missing for a while.
    """

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
        """Return the newest fact of the node's proxy; None if it has none.

        Raises:
            NoAnswer: The agent, or the log, does not answer.
            Misconfigured: The log refuses the agent.
        """
        event = (await self._call(LAST_OF, b"", LastAnswer, READ_SECONDS)).event
        return event if event is not None and event.ref == ref else None

    async def close(self) -> None:
        """Close the connection to the agent."""
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
