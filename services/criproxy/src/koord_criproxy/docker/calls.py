"""The requests of the Docker API that hook servers may change: create, start, stop and update of a container.

Only containers of Kubernetes are sent to hook servers. All other requests are forwarded unchanged. At the start,
dockerd is asked for its cgroup driver and its containers of Kubernetes.

Source: runtime spec, 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import httpx
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec

from koord_criproxy.cycle import Answer, Call, Runtime, StopContainer, StopPodSandbox, carry_out
from koord_criproxy.docker import api
from koord_criproxy.docker.api import TYPE_LABEL
from koord_criproxy.hooks.asking import Dispatcher
from koord_criproxy.hooks.messages import Message, pod_after, response_resources
from koord_criproxy.records import ContainerRecord, PodRecord, Store
from koord_criproxy.runtime import RuntimeAway

Json = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerRequest:
    handler: api.Handler  # What the request does
    container_id: str = ""  # Id in the path; "" for a create request
    name: str = ""  # Name of the new container; "" for any other request
    body: bytes = b""  # Bytes of the body


class DockerInterceptor:
    """Carries out intercepted requests."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self.cgroup_driver = ""  # Cgroup driver of dockerd, `systemd` or `cgroupfs`; "" until dockerd has told it
        self._store = store
        self._dispatcher = dispatcher

    async def call(self, request: DockerRequest, forward: Runtime) -> Answer:
        """Carry out one request (`cycle.carry_out`)."""
        try:
            call = self._known(request)
        except codec.DecodeError:  # dockerd refuses it
            call = None
        return await carry_out(call, request.body, forward, hooks=self._dispatcher)

    def _known(self, request: DockerRequest) -> Call | None:
        """The call with its record; None if it is about no container of Kubernetes, or an unknown one.

        Raises:
            DecodeError: A field of the configuration has the wrong type.
        """
        store, id_ = self._store, request.container_id
        container = store.containers.get(id_)
        match request.handler:
            case api.Handler.CREATE:
                return self._created(request)
            case api.Handler.START:
                return None if container is None else _StartContainer(store, container.pod, container)
            case api.Handler.STOP if container is not None:
                return StopContainer(store, container.pod, container, id_=id_)
            case api.Handler.STOP:
                pod = store.pods.get(id_)
                return None if pod is None else StopPodSandbox(store, pod, id_=id_)
            case api.Handler.UPDATE:
                config = _object(request.body)
                return None if container is None or config is None else _UpdateContainer(store, id_, container, config)
            case _:
                return _RemoveContainer(store, PodRecord(), id_=id_)

    def _created(self, request: DockerRequest) -> Call | None:
        config, name = _object(request.body), api.parse_name(request.name)
        if config is None or name is None:
            return None
        labels = _texts(config.get("Labels"))
        if api.is_sandbox(labels):
            return _CreateSandbox(self._store, name, config, self.cgroup_driver)
        pod = self._store.pods.get(labels.get(api.SANDBOX_ID_LABEL, ""))
        if pod is None:
            return None
        container = api.container_of_config(name, pod, config, self.cgroup_driver)
        return _CreateContainer(self._store, pod, container, config, self.cgroup_driver)


class _CreateSandbox(Call):
    name = "RunPodSandbox"

    def __init__(self, store: Store, name: api.KubernetesName, config: Mapping[str, Json], driver: str) -> None:
        self._config, self._driver = config, driver
        self._host: Mapping[str, Json] = config.get("HostConfig") or {}
        parent = _cgroup_parent(self._host, driver)
        super().__init__(store, api.pod_of_labels(name, _texts(config.get("Labels")), parent))

    def merge(self, body: bytes, response: Message) -> bytes:
        host, pod = self._host, pod_after(self.pod, response)
        self.pod = pod
        if response.cgroup_parent:
            host = {**host, "CgroupParent": api.cgroup_to_docker(self._driver, response.cgroup_parent)}
        labels = api.join_labels(pod.labels, pod.annotations)
        return codec.encode({**self._config, "HostConfig": host, "Labels": labels})

    def done(self, body: bytes) -> None:
        self.store.pods[_created_id(body)] = self.pod


class _CreateContainer(Call):
    name = "CreateContainer"

    def __init__(
        self, store: Store, pod: PodRecord, container: ContainerRecord, config: Mapping[str, Json], driver: str
    ) -> None:
        super().__init__(store, pod)
        self.container: ContainerRecord = container
        self._config, self._driver = config, driver

    def merge(self, body: bytes, response: Message) -> bytes:
        container, config = self.container, self._config
        host: Mapping[str, Json] = config.get("HostConfig") or {}
        resources = response_resources(response)
        if resources is not None:
            container = replace(container, resources=resources)
            host = api.with_resources(host, resources, api.HOST_CONFIG_FIELDS)
        if response.pod_cgroup_parent:
            container = replace(container, pod=replace(container.pod, cgroup_parent=response.pod_cgroup_parent))
            host = {**host, "CgroupParent": api.cgroup_to_docker(self._driver, response.pod_cgroup_parent)}
        annotations = dict(response.container_annotations)
        labels = {**_texts(config.get("Labels")), **api.join_labels({}, annotations)}
        changed = {**config, "HostConfig": host, "Labels": labels}
        if response.container_envs:
            changed["Env"] = api.with_hook_env_lines(config.get("Env") or (), dict(response.container_envs))
        self.container = replace(
            container,
            annotations={**container.annotations, **annotations},
            envs=dict(response.container_envs) or container.envs,
        )
        return codec.encode(changed)

    def done(self, body: bytes) -> None:
        id_ = _created_id(body)
        self.store.containers[id_] = replace(self.container, id=id_)


class _UpdateContainer(Call):
    name = "UpdateContainerResources"

    def __init__(self, store: Store, id_: str, known: ContainerRecord, config: Mapping[str, Json]) -> None:
        super().__init__(store, known.pod, id_=id_)
        self._config = config
        self.container: ContainerRecord = replace(known, resources=api.merge_update(known.resources, config))

    def merge(self, body: bytes, response: Message) -> bytes:
        resources = response_resources(response)
        if resources is None:
            return body
        self.container = replace(self.container, resources=resources)
        return codec.encode(api.with_resources(self._config, resources, api.UPDATE_FIELDS))

    def done(self, body: bytes) -> None:
        if self.id in self.store.containers:
            self.store.containers[self.id] = self.container


class _StartContainer(Call):
    """Its hooks are asked, but their answers change nothing."""

    name = "StartContainer"


class _RemoveContainer(Call):
    """Forgets the record of a removed container or sandbox. It has no hooks."""

    name = "RemoveContainer"

    def done(self, body: bytes) -> None:
        self.store.containers.pop(self.id, None)
        if self.id in self.store.pods:
            self.store.drop_sandbox(self.id)


def recover_sandbox(found: Mapping[str, Json], driver: str) -> PodRecord | None:
    """`found`: answer of dockerd about the container. None if it is no sandbox of Kubernetes."""
    name, config, host = _inspected(found)
    labels = _texts(config.get("Labels"))
    if name is None or not api.is_sandbox(labels):
        return None
    return api.pod_of_labels(name, labels, _cgroup_parent(host, driver))


def recover_container(found: Mapping[str, Json], store: Store, driver: str) -> ContainerRecord | None:
    """None if the store does not contain the sandbox of its pod."""
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
    """None if the body has another form, which dockerd then refuses."""
    try:
        found = codec.decode(body, dict[str, Any])
    except codec.DecodeError:
        return None
    host = found.get("HostConfig")
    return found if host is None or isinstance(host, dict) else None


def _texts(found: Json) -> dict[str, str]:
    pairs = cast("dict[str, Json]", found) if isinstance(found, dict) else {}
    return {key: value for key, value in pairs.items() if isinstance(value, str)}


def _created_id(body: bytes) -> str:
    created = _object(body) or {}
    return str(created.get("Id", ""))


REQUEST_SECONDS: Final = 10.0
_log: Final = logger("criproxy.docker")


async def recover(socket: Path, store: Store) -> str:
    """Fill the store with the pods and containers that dockerd has, running or not, and return its cgroup driver.

    The paths have no API version, so every dockerd answers in its own version.

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
    """Ids of all containers, running or not.

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
