"""Asks hook servers over gRPC, with one channel for each socket.

Source: runtime spec, 5.5, 5.7.
"""

import asyncio
from contextvars import ContextVar
from typing import Any, Final

import grpc
import grpc.aio
from koordcore.runtime_api.hooks import SERVICE, messages_of_call

from koord_criproxy.shell.channels import open_channel
from koord_criproxy.shell.dispatcher import HookFailed
from koord_criproxy.shell.messages import Message

HOOK_SECONDS: Final = 2.0
"""Longest time for one hook."""
KEPT_CHANNELS: Final = 10
REMAINING_SECONDS: Final[ContextVar[float | None]] = ContextVar("remaining_seconds", default=None)
"""Time until the deadline of the intercepted call; None without deadline."""


class HookClient:
    """Calls hook servers over gRPC. If a server is down, a call fails at once."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(self, endpoint: str, rpc: str, request: Message) -> Message:
        """Call a hook server and return its answer.

        The call may take 2 s, but at most half of the time that the intercepted call still has.

        Args:
            endpoint: Path of the server's socket.
            rpc: Name of the call, such as `PreCreateContainerHook`.
            request: Its request.

        Raises:
            HookFailed: The server is down, answered with an error, or took too long.
        """
        unary: Any = self._channel(endpoint).unary_unary
        call = unary(f"/{SERVICE}/{rpc}", response_deserializer=messages_of_call(rpc)[1].FromString)
        remaining = REMAINING_SECONDS.get()
        seconds = HOOK_SECONDS if remaining is None else max(0.0, min(HOOK_SECONDS, remaining / 2))
        try:
            answer: Message | None = await call(request.SerializeToString(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise HookFailed(f"{endpoint} {rpc}: {error.code().name}: {error.details()}") from error
        if answer is None:  # what grpc gives for bytes that are not the message
            raise HookFailed(f"{endpoint} {rpc}: the answer is malformed")
        return answer

    async def close(self) -> None:
        """Close all channels."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()), *self._closing)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to a socket; the least recently used one is closed if there are too many.

        Its calls in progress go on, and nobody waits for them. A wait here would delay the call to another server, and
        meanwhile the returned channel could become the least recently used one itself.
        """
        found = self._channels.pop(endpoint, None) or open_channel(endpoint)
        self._channels[endpoint] = found
        if len(self._channels) > KEPT_CHANNELS:
            oldest = self._channels.pop(next(iter(self._channels)))
            closing = asyncio.get_running_loop().create_task(oldest.close(grace=HOOK_SECONDS))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return found
