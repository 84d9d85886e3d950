"""The requests of the Docker API that hook servers may change: create, start, stop and update of a container.

Only containers of Kubernetes are sent to hook servers. All other requests are forwarded unchanged. At the start,
dockerd is asked for its cgroup driver and its containers of Kubernetes.

Source: runtime spec, 6.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import httpx
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec

from koord_criproxy.docker import api
from koord_criproxy.docker.api import TYPE_LABEL
from koord_criproxy.hooks.asking import Dispatcher
from koord_criproxy.hooks.messages import Message, container_request, pod_request, response_resources
from koord_criproxy.records import ContainerRecord, PodRecord, Store
from koord_criproxy.runtime import RuntimeAway

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

    handler: api.Handler
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
            case api.Handler.CREATE:
                return await self._create(request, forward)
            case api.Handler.START:
                return await self._start(request, forward)
            case api.Handler.STOP:
                return await self._stop(request, forward)
            case api.Handler.UPDATE:
                return await self._update(request, forward)
            case _:
                return await self._remove(request, forward)

    async def _create(self, request: DockerRequest, forward: Forward) -> DockerAnswer:
        config, name = _object(request.body), api.parse_name(request.name)
        if config is None or name is None:
            return await forward(request.body)
        labels = _texts(config.get("Labels"))
        if api.is_sandbox(labels):
            return await self._create_sandbox(request.body, config, name, forward)
        pod = self._store.pods.get(labels.get(api.SANDBOX_ID_LABEL, ""))
        if pod is None:
            return await forward(request.body)
        try:
            container = api.container_of_config(name, pod, config, self.cgroup_driver)
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
            host = api.with_resources(host, resources, api.HOST_CONFIG_FIELDS)
        if response.pod_cgroup_parent:
            container = replace(container, pod=replace(container.pod, cgroup_parent=response.pod_cgroup_parent))
            host = {**host, "CgroupParent": api.cgroup_to_docker(self.cgroup_driver, response.pod_cgroup_parent)}
        annotations = dict(response.container_annotations)
        changed = {**config, "HostConfig": host, "Labels": {**labels, **api.join_labels({}, annotations)}}
        if response.container_envs:
            changed["Env"] = api.with_hook_env_lines(config.get("Env") or (), dict(response.container_envs))
        container = replace(
            container,
            annotations={**container.annotations, **annotations},
            envs=dict(response.container_envs) or container.envs,
        )
        return container, changed

    async def _create_sandbox(
        self, body: bytes, config: Mapping[str, Json], name: api.KubernetesName, forward: Forward
    ) -> DockerAnswer:
        host: Mapping[str, Json] = config.get("HostConfig") or {}
        pod = api.pod_of_labels(name, _texts(config.get("Labels")), _cgroup_parent(host, self.cgroup_driver))
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
                host = {**host, "CgroupParent": api.cgroup_to_docker(self.cgroup_driver, response.cgroup_parent)}
            labels = api.join_labels(remembered.labels, remembered.annotations)
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
            container = replace(known, resources=api.merge_update(known.resources, config))
        except codec.DecodeError:  # dockerd refuses it
            return await forward(request.body)
        body = request.body
        asked = container
        response = await self._pre("UpdateContainerResources", known.pod, lambda rpc: container_request(rpc, asked))
        resources = None if response is None else response_resources(response)
        if resources is not None:
            container = replace(container, resources=resources)
            body = codec.encode(api.with_resources(config, resources, api.UPDATE_FIELDS))
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
    if name is None or not api.is_sandbox(labels):
        return None
    return api.pod_of_labels(name, labels, _cgroup_parent(host, driver))


def recover_container(found: Mapping[str, Json], store: Store, driver: str) -> ContainerRecord | None:
    """Return a container that dockerd inspects; None if the store does not contain the sandbox of its pod.

    Args:
        found: Answer of dockerd about the container.
        store: Records of pods.
        driver: Cgroup driver of dockerd.
    """
    name, config, host = _inspected(found)
    pod = store.pods.get(_texts(config.get("Labels")).get(api.SANDBOX_ID_LABEL, ""))
    if name is None or pod is None:
        return None
    try:
        container = api.container_of_config(name, pod, {**config, "HostConfig": host}, driver)
    except codec.DecodeError:
        return None
    return replace(container, id=str(found.get("Id", "")))


def _inspected(
    found: Mapping[str, Json],
) -> tuple[api.KubernetesName | None, Mapping[str, Json], Mapping[str, Json]]:
    return api.parse_name(str(found.get("Name", ""))), found.get("Config") or {}, found.get("HostConfig") or {}


def _cgroup_parent(host: Mapping[str, Json], driver: str) -> str:
    found = host.get("CgroupParent")
    return api.cgroup_to_cri(driver, found) if isinstance(found, str) else ""


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


REQUEST_SECONDS: Final = 10.0
_log: Final = logger("criproxy.docker")


async def recover(socket: Path, store: Store) -> str:
    """Fill the store with the pods and containers that dockerd has, running or not, and return its cgroup driver.

    The paths have no API version, so every dockerd answers in its own version.

    Args:
        socket: Socket of dockerd.
        store: Receives sandboxes and containers of Kubernetes.

    Raises:
        RuntimeAway: dockerd is not reached, or a list failed.
    """
    async with _client(socket) as client:
        info = await _get(client, "/info", dict[str, Any])
        driver = str(info.get("CgroupDriver", ""))
        inspected: dict[str, dict[str, Any]] = {}
        for id_ in await _ids(client, f"&filters={codec.encode({'label': [TYPE_LABEL]}).decode()}"):
            try:
                inspected[id_] = await _get(client, f"/containers/{id_}/json", dict[str, Any])
            except RuntimeAway as error:  # it may have been removed meanwhile
                _log.warning("container_not_read", container=id_, error=str(error))
    for id_, found in inspected.items():
        pod = recover_sandbox(found, driver)
        if pod is not None:
            store.pods[id_] = pod
    for id_, found in inspected.items():
        container = None if id_ in store.pods else recover_container(found, store, driver)
        if container is not None:
            store.containers[id_] = container
    return driver


async def listed_ids(socket: Path) -> frozenset[str]:
    """Return the ids of all containers that dockerd has, running or not.

    Raises:
        RuntimeAway: dockerd is not reached, or the list failed.
    """
    async with _client(socket) as client:
        return frozenset(await _ids(client))


def _client(socket: Path) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(transport=transport, base_url="http://docker", timeout=REQUEST_SECONDS)


async def _ids(client: httpx.AsyncClient, filters: str = "") -> list[str]:
    listed = await _get(client, f"/containers/json?all=true{filters}", list[dict[str, Any]])
    return [str(each["Id"]) for each in listed if "Id" in each]


async def _get(client: httpx.AsyncClient, path: str, kind: type[Any]) -> Any:
    try:
        response = await client.get(path)
        response.raise_for_status()
        return codec.decode(response.content, kind)
    except (httpx.HTTPError, codec.DecodeError) as error:
        raise RuntimeAway(f"{path}: {error or type(error).__name__}") from error
