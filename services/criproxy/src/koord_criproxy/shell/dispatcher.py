"""Asks the hook server that belongs to an intercepted call, and applies its failure policy.

Source: runtime spec, 5.3, 5.5.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from koord_criproxy.domain.calls import Stage
from koord_criproxy.domain.facts import HookFailure, policy_of
from koord_criproxy.domain.records import PodRecord
from koord_criproxy.domain.registration import HookCall, HookServer, SkipLabel, find_hook
from koord_criproxy.shell.messages import Message


class HookFailed(Exception):
    """Raised if a hook server could not be called, or answered with an error. The message gives the reason."""


class HookRejected(Exception):
    """Raised if a required hook failed, so that the runtime was not called. The message is for the kubelet."""


class Hooks(Protocol):
    """Calls hook servers. `HookClient` implements it."""

    async def ask(self, endpoint: str, rpc: str, request: Message) -> Message:
        """Call a hook server and return its answer.

        Args:
            endpoint: Path of the server's socket.
            rpc: Name of the call, such as `PreCreateContainerHook`.
            request: Its request.

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
        hooks: Calls hook servers.
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

    async def pre(self, call: str, pod: PodRecord, request: Callable[[str], Message]) -> Message | None:
        """Return the answer of the hook before a call; None if no server is asked, or if an optional one failed.

        Args:
            call: Name of the intercepted call, such as `CreateContainer`.
            pod: Pod of the call.
            request: Makes the message for a hook call from its name.

        Raises:
            HookRejected: A required hook failed.
        """
        found = None if self._skip.matches(pod.labels) else find_hook(self._servers(), call, Stage.PRE)
        if found is None:
            return None
        try:
            return await self._ask(found, pod, request(found.rpc))
        except HookFailed as error:
            if found.server.is_required:
                raise HookRejected(f"hook server err: {error}") from error
            return None

    async def post(self, call: str, pod: PodRecord, request: Callable[[str], Message]) -> Message | None:
        """Return the answer of the hook after a call; None if no server is asked, or if it failed.

        Args:
            call: Name of the intercepted call, such as `StopContainer`.
            pod: Pod of the call.
            request: Makes the message for a hook call from its name.
        """
        found = None if self._skip.matches(pod.labels) else find_hook(self._servers(), call, Stage.POST)
        if found is None:
            return None
        try:
            return await self._ask(found, pod, request(found.rpc))
        except HookFailed:
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
