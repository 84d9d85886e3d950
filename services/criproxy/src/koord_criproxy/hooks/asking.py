"""Asks the hook server that belongs to an intercepted call over gRPC, and applies its failure policy.

Source: runtime spec, 5.3, 5.5, 5.7.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from koordcore.runtime_api.hooks import SERVICE, messages_of_call

from koord_criproxy.hooks.messages import Message
from koord_criproxy.hooks.servers import HookCall, HookFailure, HookServer, SkipLabel, Stage, find_hook, policy_of
from koord_criproxy.records import PodRecord
from koord_criproxy.sockets import open_channel


class HookFailed(Exception):
    """A hook server could not be called, or answered with an error. The message gives the reason."""


class HookRejected(Exception):
    """A required hook failed, so that the runtime was not called. The message is for the kubelet."""


class Hooks(Protocol):
    """`HookClient` implements it."""

    async def ask(self, endpoint: str, rpc: str, request: Message) -> Message:
        """Call a hook server on its socket `endpoint`. `rpc`: name of the call, such as `PreCreateContainerHook`.

        Raises:
            HookFailed: The server is down, answered with an error, or took too long.
        """
        ...


HookObserver = Callable[[str, str, str, float], None]
"""Takes the name of a hook call, the server's policy, the error ("" for success), and the seconds that it took."""


FailureObserver = Callable[[HookFailure], object]
"""Takes a failure of a hook server."""


class Dispatcher:
    """Finds the hook server for a stage of an intercepted call, and asks it.

    Args:
        servers: Returns the registered hook servers in ascending order of their files.
        skip: Label of pods that are never sent to hook servers.
        observe: Called after every call of a hook server, for the metrics.
        failed: Called after every failed call of a hook server, for the log of facts.
    """

    def __init__(
        self,
        servers: Callable[[], Sequence[HookServer]],
        hooks: Hooks,
        *,
        skip: SkipLabel,
        observe: HookObserver,
        failed: FailureObserver,
    ) -> None:
        self._servers = servers
        self._hooks = hooks
        self._skip = skip
        self._observe = observe
        self._failed = failed

    async def ask(self, stage: Stage, call: str, pod: PodRecord, request: Callable[[str], Message]) -> Message | None:
        """The answer of the hook at this stage of a call; None if no server is asked, or if it failed.

        `call` has its name of CRI, such as `CreateContainer`. `request` makes the message for a hook call from its
        name.

        Raises:
            HookRejected: A required hook failed before the call.
        """
        found = None if self._skip.matches(pod.labels) else find_hook(self._servers(), call, stage)
        if found is None:
            return None
        try:
            return await self._ask(found, pod, request(found.rpc))
        except HookFailed as error:
            if stage is Stage.PRE and found.server.is_required:
                raise HookRejected(f"hook server err: {error}") from error
            return None

    async def _ask(self, call: HookCall, pod: PodRecord, request: Message) -> Message:
        server, rpc = call
        policy = policy_of(server)
        began = time.monotonic()
        try:
            response = await self._hooks.ask(server.endpoint, rpc, request)
        except HookFailed as error:
            self._observe(rpc, policy, str(error), time.monotonic() - began)
            of_container = "container_meta" in request.DESCRIPTOR.fields_by_name
            container = request.container_meta.name if of_container else ""
            self._failed(HookFailure(server, rpc, pod, container, str(error)))
            raise
        self._observe(rpc, policy, "", time.monotonic() - began)
        return response


HOOK_SECONDS: Final = 2.0
"""Longest time for one hook."""
KEPT_CHANNELS: Final = 10
REMAINING_SECONDS: Final[ContextVar[float | None]] = ContextVar("remaining_seconds", default=None)
"""Time until the deadline of the intercepted call; None without deadline."""


class HookClient:
    """Implements `Hooks` over gRPC. If a server is down, a call fails at once."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(self, endpoint: str, rpc: str, request: Message) -> Message:
        """It may take 2 s, but at most half of the time that the intercepted call still has."""
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
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()), *self._closing)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """The least recently used channel is closed if there are too many.

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
