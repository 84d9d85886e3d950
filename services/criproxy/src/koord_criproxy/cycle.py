"""The main loop of one intercepted call, in both modes. All other calls pass unread (`cri.server`, `docker.proxy`).

The modes know what a call is about, and what the answers change: each kind of call is a class (`cri.calls`,
`docker.calls`).

Source: runtime spec, 5.3.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from koord_criproxy.hooks.asking import Dispatcher
from koord_criproxy.hooks.messages import Message, container_request, pod_request
from koord_criproxy.hooks.servers import Stage
from koord_criproxy.records import ContainerRecord, PodRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of the container runtime, or of dockerd, to a call."""

    body: bytes  # empty if the call failed
    is_ok: bool  # it carried out the call, or had nothing to change


Runtime = Callable[[bytes], Awaitable[Answer]]
"""Calls the runtime with the bytes of a request."""


class Call:
    """One intercepted call about a pod or a container that the proxy knows.

    Args:
        container: Its record; None if the call is about the pod itself.
        id_: Id of the container or sandbox; "" for one that is to be created.
    """

    name: ClassVar[str]
    """In the terms of CRI, in both modes: hooks are registered by it."""

    def __init__(
        self, store: Store, pod: PodRecord, container: ContainerRecord | None = None, *, id_: str = ""
    ) -> None:
        self.store = store
        self.pod = pod
        self.container = container
        self.id = id_

    def message(self, rpc: str) -> Message:
        """What the hook server gets."""
        return pod_request(rpc, self.pod) if self.container is None else container_request(rpc, self.container)

    def merge(self, body: bytes, response: Message) -> bytes:
        """Change the record by the answer of the hook before the call, and return the request for the runtime."""
        del response
        return body

    def ended(self, answer: Answer | None) -> None:
        """Remember or forget the pod or container. None: the runtime has given no answer."""
        if answer is not None and answer.is_ok:
            self.done(answer.body)

    def done(self, body: bytes) -> None:
        """Remember or forget it after a call that has succeeded, with this answer of the runtime."""

    def merge_after(self, response: Message) -> None:
        """Change the record by the answer of the hook after the call."""


async def carry_out(call: Call | None, body: bytes, runtime: Runtime, *, hooks: Dispatcher) -> Answer:
    """Carry out a call, and return the answer of the runtime.

    Raises:
        HookRejected: A required hook failed. The runtime was not called.
    """
    # 1. a call about an unknown pod or container is the runtime's alone
    if call is None:
        return await runtime(body)
    # 2. ask the hook server that is registered for the stage before the call
    response = await hooks.ask(Stage.PRE, call.name, call.pod, call.message)
    # 3. merge its answer into the record and the request
    if response is not None:
        body = call.merge(body, response)
    # 4. call the runtime
    try:
        answer = await runtime(body)
    except BaseException:
        call.ended(None)
        raise
    # 5. remember what it has made or changed, forget what has ended
    call.ended(answer)
    # 6. ask the hook server that is registered for the stage after the call
    response = await hooks.ask(Stage.POST, call.name, call.pod, call.message)
    if response is not None:
        call.merge_after(response)
    return answer


class StopContainer(Call):
    name = "StopContainer"

    def done(self, body: bytes) -> None:
        self.store.containers.pop(self.id, None)


class StopPodSandbox(Call):
    name = "StopPodSandbox"

    def done(self, body: bytes) -> None:
        self.store.pods.pop(self.id, None)
