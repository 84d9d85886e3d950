"""One intercepted call: context, pre hook, runtime, store, post hook.

Source: runtime spec, 5.3.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError
from koordcore.runtime_api.cri import cri_messages

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeAnswer:
    """The answer of the container runtime to a CRI call.

    Attributes:
        body: Bytes of the answer; empty if the call failed.
        is_ok: Whether the call succeeded.
    """

    body: bytes
    is_ok: bool


Runtime = Callable[[bytes], Awaitable[RuntimeAnswer]]
"""Calls the runtime with the bytes of a request."""

FindSandbox = Callable[[str], Awaitable[PodRecord | None]]
"""Asks the runtime for a sandbox by its id. Returns None if it has none in which containers can be created."""


class Interceptor:
    """Carries out intercepted calls: calls the hook server before, the runtime, and the hook server after.

    Calls for different containers run concurrently.

    Args:
        store: Records of pods and containers.
        dispatcher: Asks the hook servers.
        find: Looks up a sandbox that the store lacks.
    """

    def __init__(self, store: Store, dispatcher: Dispatcher, find: FindSandbox) -> None:
        self._store = store
        self._find = find
        self._pre = dispatcher.pre
        self._post = dispatcher.post

    async def call(self, name: str, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        """Carry out one call, remember or forget its pod or container, and return the answer of the runtime.

        A call about an unknown pod or container reaches the runtime unchanged, and no hook server is asked. A container
        in a sandbox that only the runtime knows is created as in any other sandbox.

        Args:
            name: Name of the call, such as `RunPodSandbox`.
            body: Bytes of its request.
            runtime: Calls the runtime.

        Raises:
            HookRejected: A required hook failed. The runtime was not called.
        """
        request = _read(f"{name}Request", body)
        if request is None:  # the runtime refuses it
            return await runtime(body)
        match name:
            case "RunPodSandbox":
                return await self._run_pod_sandbox(request, body, runtime)
            case "CreateContainer":
                return await self._create_container(request, body, runtime)
            case "UpdateContainerResources":
                return await self._update_container(request, body, runtime)
            case "StartContainer":
                return await self._start_container(request.container_id, body, runtime)
            case "StopContainer":
                return await self._stop_container(request.container_id, body, runtime)
            case "StopPodSandbox":
                return await self._stop_pod_sandbox(request.pod_sandbox_id, body, runtime)
            case "RemoveContainer":
                try:
                    return await runtime(body)
                finally:
                    self._store.containers.pop(request.container_id, None)
            case _:
                try:
                    return await runtime(body)
                finally:
                    self._store.drop_sandbox(request.pod_sandbox_id)

    async def _run_pod_sandbox(self, request: messages.Message, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        config = request.config
        pod = messages.pod_of_config(config, request.runtime_handler)
        response = await self._pre("RunPodSandbox", pod, lambda rpc: messages.pod_request(rpc, pod))
        if response is not None:
            pod = replace(
                pod,
                labels={**pod.labels, **response.labels},
                annotations={**pod.annotations, **response.annotations},
                cgroup_parent=response.cgroup_parent or pod.cgroup_parent,
            )
            messages.write_map(config.labels, pod.labels)
            messages.write_map(config.annotations, pod.annotations)
            if config.HasField("linux"):
                config.linux.cgroup_parent = pod.cgroup_parent
            body = request.SerializeToString()
        answer = await runtime(body)
        created = _read("RunPodSandboxResponse", answer.body) if answer.is_ok else None
        if created is not None:
            self._store.pods[created.pod_sandbox_id] = pod
        return answer

    async def _create_container(self, request: messages.Message, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        pod = await self._pod(request.pod_sandbox_id)
        if pod is None:
            return await runtime(body)
        config, sandbox = request.config, request.sandbox_config
        if sandbox.linux.cgroup_parent:
            pod = replace(pod, cgroup_parent=sandbox.linux.cgroup_parent)
        envs = [(each.key, each.value) for each in config.envs]
        is_linux = config.HasField("linux")
        container = ContainerRecord(
            pod=pod,
            sandbox_id=request.pod_sandbox_id,
            name=config.metadata.name,
            attempt=config.metadata.attempt,
            annotations=dict(config.annotations),
            resources=messages.resources_of(config.linux.resources) if is_linux else None,
            envs=readable_envs(envs),
        )
        response = await self._pre("CreateContainer", pod, lambda rpc: messages.container_request(rpc, container))
        if response is not None:
            container = self._after_create_hook(container, response)
            messages.write_map(config.annotations, container.annotations)
            if is_linux and response.HasField("container_resources") and container.resources is not None:
                messages.write_resources(container.resources, config.linux.resources)
            if response.pod_cgroup_parent and sandbox.HasField("linux"):
                sandbox.linux.cgroup_parent = response.pod_cgroup_parent
            if response.container_envs:
                changed = with_hook_envs(envs, response.container_envs)
                del config.envs[:]
                for key, value in changed:
                    config.envs.add(key=key, value=value)
            body = request.SerializeToString()
        answer = await runtime(body)
        created = _read("CreateContainerResponse", answer.body) if answer.is_ok else None
        if created is not None:
            id_ = created.container_id
            self._store.containers[id_] = replace(container, id=id_)
        return answer

    async def _pod(self, sandbox_id: str) -> PodRecord | None:
        """Return the pod of a sandbox; None if it is unknown.

        The runtime may have a sandbox of which the store does not know: the client left before the runtime answered, or
        called the runtime itself. The kubelet uses such a sandbox, so its containers need their hooks.
        """
        known = self._store.pods.get(sandbox_id)
        if known is None:
            known = await self._find(sandbox_id)
            if known is not None:
                self._store.pods[sandbox_id] = known
        return known

    @staticmethod
    def _after_create_hook(container: ContainerRecord, response: messages.Message) -> ContainerRecord:
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

    async def _update_container(self, request: messages.Message, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        known = self._store.containers.get(request.container_id)
        if known is None:
            return await runtime(body)
        is_linux = request.HasField("linux")
        merged = with_update(known.resources, messages.resources_of(request.linux)) if is_linux else known.resources
        container = replace(known, resources=merged, annotations={**known.annotations, **request.annotations})
        response = await self._pre(
            "UpdateContainerResources", known.pod, lambda rpc: messages.container_request(rpc, container)
        )
        if response is not None:
            container = replace(
                container,
                resources=with_hook_response(merged or Resources(), messages.response_resources(response)),
                annotations={**container.annotations, **response.container_annotations},
            )
            messages.write_map(request.annotations, container.annotations)
            if is_linux and container.resources is not None:
                messages.write_resources(container.resources, request.linux)
            body = request.SerializeToString()
        answer = await runtime(body)
        if answer.is_ok and request.container_id in self._store.containers:
            self._store.containers[request.container_id] = container
        return answer

    async def _start_container(self, id_: str, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        known = self._store.containers.get(id_)
        if known is None:
            return await runtime(body)
        response = await self._pre("StartContainer", known.pod, lambda rpc: messages.container_request(rpc, known))
        self._remember(id_, response)
        answer = await runtime(body)
        current = self._store.containers.get(id_, known)
        self._remember(
            id_, await self._post("StartContainer", known.pod, lambda rpc: messages.container_request(rpc, current))
        )
        return answer

    async def _stop_container(self, id_: str, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        known = self._store.containers.get(id_)
        answer = await runtime(body)
        if known is not None:
            if answer.is_ok:
                self._store.containers.pop(id_, None)
            await self._post("StopContainer", known.pod, lambda rpc: messages.container_request(rpc, known))
        return answer

    async def _stop_pod_sandbox(self, id_: str, body: bytes, runtime: Runtime) -> RuntimeAnswer:
        known = self._store.pods.get(id_)
        answer = await runtime(body)
        if known is not None:
            if answer.is_ok:
                self._store.pods.pop(id_, None)
            await self._post("StopPodSandbox", known, lambda rpc: messages.pod_request(rpc, known))
        return answer

    def _remember(self, id_: str, response: messages.Message | None) -> None:
        """Change the record of a container by the answer of a hook at its start; no-op without an answer."""
        known = self._store.containers.get(id_)
        if known is not None and response is not None:
            self._store.containers[id_] = self._after_create_hook(known, response)


def _read(kind: str, body: bytes) -> messages.Message | None:
    """Return the message in a body; None if it is malformed."""
    try:
        return cri_messages()[kind].FromString(body)
    except DecodeError:
        return None
