"""The calls of CRI that hook servers may change, and what they change.

Source: runtime spec, 5.3.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from google.protobuf.message import DecodeError
from koordcore.runtime_api.cri import cri_messages

from koord_criproxy.cycle import Answer, Call, Runtime, StopContainer, StopPodSandbox, carry_out
from koord_criproxy.hooks import messages
from koord_criproxy.hooks.asking import Dispatcher
from koord_criproxy.records import (
    ContainerRecord,
    PodRecord,
    Resources,
    Store,
    readable_envs,
    with_hook_envs,
    with_hook_response,
    with_update,
)

FindSandbox = Callable[[str], Awaitable[PodRecord | None]]
"""Asks the runtime for a sandbox by its id. Returns None if it has none in which containers can be created."""


class Interceptor:
    """Carries out intercepted calls. Calls for different containers run concurrently.

    `find` looks up a sandbox that the store lacks.
    """

    def __init__(self, store: Store, dispatcher: Dispatcher, find: FindSandbox) -> None:
        self._store = store
        self._find = find
        self._dispatcher = dispatcher

    async def call(self, name: str, body: bytes, runtime: Runtime) -> Answer:
        """Carry out one call (`cycle.carry_out`)."""
        request = _read(f"{name}Request", body)  # None: the runtime refuses it
        call = None if request is None else await self._known(name, request)
        return await carry_out(call, body, runtime, hooks=self._dispatcher)

    async def _known(self, name: str, request: messages.Message) -> Call | None:
        """The call with its record; None if it is about an unknown pod or container."""
        store = self._store
        match name:
            case "RunPodSandbox":
                return _RunPodSandbox(store, request)
            case "CreateContainer":
                pod = await self._pod(request.pod_sandbox_id)
                return None if pod is None else _CreateContainer(store, pod, request)
            case "StopPodSandbox":
                id_ = request.pod_sandbox_id
                pod = store.pods.get(id_)
                return None if pod is None else StopPodSandbox(store, pod, id_=id_)
            case "RemovePodSandbox":
                return _RemovePodSandbox(store, PodRecord(), id_=request.pod_sandbox_id)
            case "RemoveContainer":
                return _RemoveContainer(store, PodRecord(), id_=request.container_id)
            case _:
                id_ = request.container_id
                known = store.containers.get(id_)
                if known is None:
                    return None
                if name == "UpdateContainerResources":
                    return _UpdateContainer(store, request, known)
                kind = StopContainer if name == "StopContainer" else _StartContainer
                return kind(store, known.pod, known, id_=id_)

    async def _pod(self, sandbox_id: str) -> PodRecord | None:
        """The runtime may have a sandbox of which the store does not know: the client left before the runtime answered,
        or called the runtime itself. The kubelet uses such a sandbox, so its containers need their hooks.
        """
        known = self._store.pods.get(sandbox_id)
        if known is None:
            known = await self._find(sandbox_id)
            if known is not None:
                self._store.pods[sandbox_id] = known
        return known


class _RunPodSandbox(Call):
    name = "RunPodSandbox"

    def __init__(self, store: Store, request: messages.Message) -> None:
        super().__init__(store, messages.pod_of_config(request.config, request.runtime_handler))
        self._request = request

    def merge(self, body: bytes, response: messages.Message) -> bytes:
        config = self._request.config
        pod = self.pod = messages.pod_after(self.pod, response)
        messages.write_map(config.labels, pod.labels)
        messages.write_map(config.annotations, pod.annotations)
        if config.HasField("linux"):
            config.linux.cgroup_parent = pod.cgroup_parent
        return self._request.SerializeToString()

    def done(self, body: bytes) -> None:
        created = _read("RunPodSandboxResponse", body)
        if created is not None:
            self.store.pods[created.pod_sandbox_id] = self.pod


class _CreateContainer(Call):
    name = "CreateContainer"

    def __init__(self, store: Store, pod: PodRecord, request: messages.Message) -> None:
        config, sandbox = request.config, request.sandbox_config
        if sandbox.linux.cgroup_parent:
            pod = replace(pod, cgroup_parent=sandbox.linux.cgroup_parent)
        super().__init__(store, pod)
        self._request = request
        self._envs = [(each.key, each.value) for each in config.envs]
        self.container: ContainerRecord = ContainerRecord(
            pod=pod,
            sandbox_id=request.pod_sandbox_id,
            name=config.metadata.name,
            attempt=config.metadata.attempt,
            annotations=dict(config.annotations),
            resources=messages.resources_of(config.linux.resources) if config.HasField("linux") else None,
            envs=readable_envs(self._envs),
        )

    def merge(self, body: bytes, response: messages.Message) -> bytes:
        config, sandbox = self._request.config, self._request.sandbox_config
        container = self.container = _after_hook(self.container, response)
        messages.write_map(config.annotations, container.annotations)
        if container.resources is not None and response.HasField("container_resources"):
            messages.write_resources(container.resources, config.linux.resources)
        if response.pod_cgroup_parent and sandbox.HasField("linux"):
            sandbox.linux.cgroup_parent = response.pod_cgroup_parent
        if response.container_envs:
            changed = with_hook_envs(self._envs, response.container_envs)
            del config.envs[:]
            for key, value in changed:
                config.envs.add(key=key, value=value)
        return self._request.SerializeToString()

    def done(self, body: bytes) -> None:
        created = _read("CreateContainerResponse", body)
        if created is not None:
            id_ = created.container_id
            self.store.containers[id_] = replace(self.container, id=id_)


class _UpdateContainer(Call):
    name = "UpdateContainerResources"

    def __init__(self, store: Store, request: messages.Message, known: ContainerRecord) -> None:
        super().__init__(store, known.pod, id_=request.container_id)
        self._request = request
        resources = known.resources
        if request.HasField("linux"):
            resources = with_update(resources, messages.resources_of(request.linux))
        annotations = {**known.annotations, **request.annotations}
        self.container: ContainerRecord = replace(known, resources=resources, annotations=annotations)

    def merge(self, body: bytes, response: messages.Message) -> bytes:
        before = self.container
        resources = with_hook_response(before.resources or Resources(), messages.response_resources(response))
        annotations = {**before.annotations, **response.container_annotations}
        self.container = replace(before, resources=resources, annotations=annotations)
        messages.write_map(self._request.annotations, annotations)
        if self._request.HasField("linux"):
            messages.write_resources(resources, self._request.linux)
        return self._request.SerializeToString()

    def done(self, body: bytes) -> None:
        if self.id in self.store.containers:
            self.store.containers[self.id] = self.container


class _StartContainer(Call):
    """Its hooks change the record, not the request, which has nothing but the id."""

    name = "StartContainer"

    def message(self, rpc: str) -> messages.Message:
        self.container = self.store.containers.get(self.id, self.container)  # it may have been updated meanwhile
        return super().message(rpc)

    def merge(self, body: bytes, response: messages.Message) -> bytes:
        self.merge_after(response)
        return body

    def merge_after(self, response: messages.Message) -> None:
        known = self.store.containers.get(self.id)
        if known is not None:
            self.store.containers[self.id] = _after_hook(known, response)


class _RemoveContainer(Call):
    """Forgets the record, whatever the runtime answers. It has no hooks."""

    name = "RemoveContainer"

    def ended(self, answer: Answer | None) -> None:
        self.store.containers.pop(self.id, None)


class _RemovePodSandbox(Call):
    """Forgets the records, whatever the runtime answers. It has no hooks."""

    name = "RemovePodSandbox"

    def ended(self, answer: Answer | None) -> None:
        self.store.drop_sandbox(self.id)


def _after_hook(container: ContainerRecord, response: messages.Message) -> ContainerRecord:
    resources = container.resources
    if resources is not None:
        resources = with_hook_response(resources, messages.response_resources(response))
    return replace(
        container,
        pod=replace(container.pod, cgroup_parent=response.pod_cgroup_parent or container.pod.cgroup_parent),
        annotations={**container.annotations, **response.container_annotations},
        resources=resources,
        envs=dict(response.container_envs) or container.envs,
    )


def _read(kind: str, body: bytes) -> messages.Message | None:
    """None if the body is malformed."""
    try:
        return cri_messages()[kind].FromString(body)
    except DecodeError:
        return None
