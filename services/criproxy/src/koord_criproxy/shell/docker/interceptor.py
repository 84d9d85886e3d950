"""The requests of the Docker API that hook servers may change: create, start, stop and update of a container.

Only containers of Kubernetes are sent to hook servers. All other requests are forwarded unchanged.

Source: runtime spec, 6.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from koordcore.values import codec

from koord_criproxy.domain import docker
from koord_criproxy.domain.records import ContainerRecord, PodRecord, Store
from koord_criproxy.shell.dispatcher import Dispatcher
from koord_criproxy.shell.messages import Message, container_request, pod_request, response_resources

Json = Any
NOT_MODIFIED: Final = 304
"""Status of a start or a stop that found nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerRequest:
    """A request that the proxy intercepts.

    Attributes:
        handler: What the request does.
        container_id: Id in the path; "" for a create request.
        name: Name of the new container; "" for any other request.
        body: Bytes of the body.
    """

    handler: docker.Handler
    container_id: str = ""
    name: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerAnswer:
    """Status and body of dockerd's answer to a request.

    Attributes:
        status: HTTP status.
        body: Bytes of the body.
    """

    status: int
    body: bytes = b""

    @property
    def is_ok(self) -> bool:
        """Whether dockerd carried out the request, or had nothing to change (304)."""
        return self.status < 300 or self.status == NOT_MODIFIED


Forward = Callable[[bytes], Awaitable[DockerAnswer]]
"""Sends the request with this body to dockerd."""


class DockerInterceptor:
    """Carries out intercepted requests: asks the hook server before, sends to dockerd, asks the hook server after.

    Args:
        store: Records of pods and containers.
        dispatcher: Asks the hook servers.

    Attributes:
        cgroup_driver: Cgroup driver of dockerd, `systemd` or `cgroupfs`; "" until dockerd has told it.
    """

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self.cgroup_driver = ""
        self._store = store
        self._pre = dispatcher.pre
        self._post = dispatcher.post

    async def call(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        """Carry out one request, remember or forget its pod or container, and return the answer of dockerd.

        A request about an unknown container reaches dockerd unchanged. Hook servers are asked about a start or stop,
        too, but their answers change nothing.

        Raises:
            HookRejected: A required hook failed. Nothing was sent to dockerd.
        """
        match request.handler:
            case docker.Handler.CREATE:
                return await self._create(request, forward)
            case docker.Handler.START:
                return await self._start(request, forward)
            case docker.Handler.STOP:
                return await self._stop(request, forward)
            case docker.Handler.UPDATE:
                return await self._update(request, forward)
            case _:
                return await self._remove(request, forward)

    async def _create(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        config, name = _object(request.body), docker.parse_name(request.name)
        if config is None or name is None:
            return await forward(request.body)
        labels = _texts(config.get("Labels"))
        if docker.is_sandbox(labels):
            return await self._create_sandbox(request.body, config, name, forward)
        pod = self._store.pods.get(labels.get(docker.SANDBOX_ID_LABEL, ""))
        if pod is None:
            return await forward(request.body)
        try:
            container = docker.container_of_config(name, pod, config, self.cgroup_driver)
        except codec.DecodeError:  # dockerd refuses it
            return await forward(request.body)
        body = request.body
        response = await self._pre("CreateContainer", pod, lambda rpc: container_request(rpc, container))
        if response is not None:
            container, changed = self._with_response(container, config, labels, response)
            body = codec.encode(changed)
        answer = await forward(body)
        if answer.is_ok:
            id_ = _created_id(answer)
            self._store.containers[id_] = replace(container, id=id_)
        return answer

    def _with_response(
        self, container: ContainerRecord, config: Mapping[str, Json], labels: Mapping[str, str], response: Message
    ) -> tuple[ContainerRecord, dict[str, Json]]:
        """Return the container and its Docker configuration after the answer of a hook server."""
        host: Mapping[str, Json] = config.get("HostConfig") or {}
        resources = response_resources(response)
        if resources is not None:
            container = replace(container, resources=resources)
            host = docker.with_resources(host, resources, docker.HOST_CONFIG_FIELDS)
        if response.pod_cgroup_parent:
            container = replace(container, pod=replace(container.pod, cgroup_parent=response.pod_cgroup_parent))
            host = {**host, "CgroupParent": docker.cgroup_to_docker(self.cgroup_driver, response.pod_cgroup_parent)}
        annotations = dict(response.container_annotations)
        changed = {**config, "HostConfig": host, "Labels": {**labels, **docker.join_labels({}, annotations)}}
        if response.container_envs:
            changed["Env"] = docker.with_hook_env_lines(config.get("Env") or (), dict(response.container_envs))
        container = replace(
            container,
            annotations={**container.annotations, **annotations},
            envs=dict(response.container_envs) or container.envs,
        )
        return container, changed

    async def _create_sandbox(
        self, body: bytes, config: Mapping[str, Json], name: docker.KubernetesName, forward: Forward
    ) -> DockerAnswer:
        host: Mapping[str, Json] = config.get("HostConfig") or {}
        pod = docker.pod_of_labels(name, _texts(config.get("Labels")), _cgroup_parent(host, self.cgroup_driver))
        response = await self._pre("RunPodSandbox", pod, lambda rpc: pod_request(rpc, pod))
        remembered = pod
        if response is not None:
            remembered = replace(
                pod,
                labels={**pod.labels, **response.labels},
                annotations={**pod.annotations, **response.annotations},
                cgroup_parent=response.cgroup_parent or pod.cgroup_parent,
            )
            if response.cgroup_parent:
                host = {**host, "CgroupParent": docker.cgroup_to_docker(self.cgroup_driver, response.cgroup_parent)}
            labels = docker.join_labels(remembered.labels, remembered.annotations)
            body = codec.encode({**config, "HostConfig": host, "Labels": labels})
        answer = await forward(body)
        if answer.is_ok:
            self._store.pods[_created_id(answer)] = remembered
        return answer

    async def _start(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        known = self._store.containers.get(request.container_id)
        if known is None:
            return await forward(request.body)
        await self._pre("StartContainer", known.pod, lambda rpc: container_request(rpc, known))
        answer = await forward(request.body)
        await self._post("StartContainer", known.pod, lambda rpc: container_request(rpc, known))
        return answer

    async def _stop(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        id_ = request.container_id
        container, pod = self._store.containers.get(id_), self._store.pods.get(id_)
        answer = await forward(request.body)
        if container is not None:
            if answer.is_ok:
                self._store.containers.pop(id_, None)
            await self._post("StopContainer", container.pod, lambda rpc: container_request(rpc, container))
        elif pod is not None:
            if answer.is_ok:
                self._store.pods.pop(id_, None)
            await self._post("StopPodSandbox", pod, lambda rpc: pod_request(rpc, pod))
        return answer

    async def _update(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        known = self._store.containers.get(request.container_id)
        config = _object(request.body)
        if known is None or config is None:
            return await forward(request.body)
        try:
            container = replace(known, resources=docker.merge_update(known.resources, config))
        except codec.DecodeError:  # dockerd refuses it
            return await forward(request.body)
        body = request.body
        asked = container
        response = await self._pre("UpdateContainerResources", known.pod, lambda rpc: container_request(rpc, asked))
        resources = None if response is None else response_resources(response)
        if resources is not None:
            container = replace(container, resources=resources)
            body = codec.encode(docker.with_resources(config, resources, docker.UPDATE_FIELDS))
        answer = await forward(body)
        if answer.is_ok and request.container_id in self._store.containers:
            self._store.containers[request.container_id] = container
        return answer

    async def _remove(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        answer = await forward(request.body)
        if answer.is_ok:
            self._store.containers.pop(request.container_id, None)
            if request.container_id in self._store.pods:
                self._store.drop_sandbox(request.container_id)
        return answer


def recover_sandbox(found: Mapping[str, Json], driver: str) -> PodRecord | None:
    """Return the pod of a sandbox that dockerd inspects; None if Kubernetes did not make it.

    Args:
        found: Answer of dockerd about the container.
        driver: Cgroup driver of dockerd.
    """
    name, config, host = _inspected(found)
    labels = _texts(config.get("Labels"))
    if name is None or not docker.is_sandbox(labels):
        return None
    return docker.pod_of_labels(name, labels, _cgroup_parent(host, driver))


def recover_container(found: Mapping[str, Json], store: Store, driver: str) -> ContainerRecord | None:
    """Return a container that dockerd inspects; None if the store does not contain the sandbox of its pod.

    Args:
        found: Answer of dockerd about the container.
        store: Records of pods.
        driver: Cgroup driver of dockerd.
    """
    name, config, host = _inspected(found)
    pod = store.pods.get(_texts(config.get("Labels")).get(docker.SANDBOX_ID_LABEL, ""))
    if name is None or pod is None:
        return None
    try:
        container = docker.container_of_config(name, pod, {**config, "HostConfig": host}, driver)
    except codec.DecodeError:
        return None
    return replace(container, id=str(found.get("Id", "")))


def _inspected(
    found: Mapping[str, Json],
) -> tuple[docker.KubernetesName | None, Mapping[str, Json], Mapping[str, Json]]:
    return docker.parse_name(str(found.get("Name", ""))), found.get("Config") or {}, found.get("HostConfig") or {}


def _cgroup_parent(host: Mapping[str, Json], driver: str) -> str:
    found = host.get("CgroupParent")
    return docker.cgroup_to_cri(driver, found) if isinstance(found, str) else ""


def _object(body: bytes) -> dict[str, Json] | None:
    """Return the JSON object of a body; None if it has another form, which dockerd then refuses."""
    try:
        found = codec.decode(body, dict[str, Any])
    except codec.DecodeError:
        return None
    host = found.get("HostConfig")
    return found if host is None or isinstance(host, dict) else None


def _texts(found: Json) -> dict[str, str]:
    pairs = cast("dict[str, Json]", found) if isinstance(found, dict) else {}
    return {key: value for key, value in pairs.items() if isinstance(value, str)}


def _created_id(answer: DockerAnswer) -> str:
    created = _object(answer.body) or {}
    return str(created.get("Id", ""))
