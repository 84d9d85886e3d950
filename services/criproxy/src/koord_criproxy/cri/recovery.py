"""Read pods and containers from the runtime: at the start those of an earlier process, later what the store lacks.

Source: runtime spec, 5.6.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import grpc
import grpc.aio
from koordcore.runtime_api.cri import RUNTIME_SERVICE, cri_messages
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec

from koord_criproxy.hooks.messages import Message, resources_of, resources_of_json
from koord_criproxy.records import ContainerRecord, PodRecord, Resources, Store
from koord_criproxy.runtime import RuntimeAway

AT_ONCE: Final = 16
"""Largest number of status calls in progress."""
CALL_SECONDS: Final = 10.0
_READY: Final = 0
"""State of a sandbox in which containers can be created."""
_log: Final = logger("criproxy")


async def check_version(channel: grpc.aio.Channel) -> str:
    """Name and version of the runtime.

    Raises:
        RuntimeAway: The runtime does not answer, or does not speak CRI v1.
    """
    found = await _call(channel, "Version", cri_messages()["VersionRequest"](version="v1"))
    return f"{found.runtime_name} {found.runtime_version}"


async def recover(channel: grpc.aio.Channel, store: Store) -> None:
    """Fill the store with the pods and containers that the container runtime has.

    The cgroup parent of a pod, and the resources and environment of a container, come from verbose statuses. If the
    runtime does not tell them, they stay empty. A container of an unknown pod is left out.

    Raises:
        RuntimeAway: A list failed.
    """
    sandboxes, containers = await _lists(channel)
    limit = asyncio.Semaphore(AT_ONCE)

    async def add_pod(item: Message) -> None:
        async with limit:
            store.pods[item.id] = await _pod(channel, item)

    async def add_container(item: Message) -> None:
        async with limit:
            store.containers[item.id] = await _container(channel, item, store.pods[item.pod_sandbox_id])

    await asyncio.gather(*(add_pod(item) for item in sandboxes))
    known = [item for item in containers if item.pod_sandbox_id in store.pods]
    await asyncio.gather(*(add_container(item) for item in known))


async def listed_ids(channel: grpc.aio.Channel) -> frozenset[str]:
    """Ids of all sandboxes and containers, running or not.

    Raises:
        RuntimeAway: A list failed.
    """
    sandboxes, containers = await _lists(channel)
    return frozenset(item.id for item in (*sandboxes, *containers))


async def find_sandbox(channel: grpc.aio.Channel, sandbox_id: str) -> PodRecord | None:
    """A sandbox in which containers can be created; None if the runtime does not tell of one."""
    request = cri_messages()["PodSandboxStatusRequest"](pod_sandbox_id=sandbox_id, verbose=True)
    try:
        answer = await _call(channel, "PodSandboxStatus", request)
    except RuntimeAway as error:  # the runtime answers the client's own call, too
        _log.warning("status_not_read", sandbox=sandbox_id, error=str(error))
        return None
    if not answer.HasField("status") or answer.status.state != _READY:
        return None
    return _record(answer.status, _config_of(answer.info))


async def _lists(channel: grpc.aio.Channel) -> tuple[Sequence[Message], Sequence[Message]]:
    messages = cri_messages()
    sandboxes = await _call(channel, "ListPodSandbox", messages["ListPodSandboxRequest"]())
    containers = await _call(channel, "ListContainers", messages["ListContainersRequest"]())
    return sandboxes.items, containers.containers


async def _pod(channel: grpc.aio.Channel, item: Message) -> PodRecord:
    request = cri_messages()["PodSandboxStatusRequest"](pod_sandbox_id=item.id, verbose=True)
    return _record(item, await _config(channel, "PodSandboxStatus", request))


def _record(item: Message, config: Mapping[str, Any]) -> PodRecord:
    """`item` is its entry in a list, or its status; `config` its original configuration."""
    meta = item.metadata
    pod = PodRecord(
        name=meta.name,
        uid=meta.uid,
        namespace=meta.namespace,
        attempt=meta.attempt,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
        runtime_handler=item.runtime_handler,
    )
    linux = _mapping(config.get("linux"))
    parent = linux.get("cgroup_parent")
    return replace(pod, cgroup_parent=parent) if isinstance(parent, str) else pod


async def _container(channel: grpc.aio.Channel, item: Message, pod: PodRecord) -> ContainerRecord:
    request = cri_messages()["ContainerStatusRequest"](container_id=item.id, verbose=True)
    try:
        status = await _call(channel, "ContainerStatus", request)
    except RuntimeAway as error:
        _log.warning("status_not_read", container=item.id, error=str(error))
        config: Mapping[str, Any] = {}
        resources = None
    else:
        config = _config_of(status.info)
        original = _mapping(_mapping(config.get("linux")).get("resources"))
        resources = _status_resources(status.status) or resources_of_json(original)
    return ContainerRecord(
        pod=pod,
        sandbox_id=item.pod_sandbox_id,
        name=item.metadata.name,
        id=item.id,
        attempt=item.metadata.attempt,
        annotations=dict(item.annotations),
        resources=resources,
        envs=_envs(config.get("envs")),
    )


def _status_resources(status: Message) -> Resources | None:
    return resources_of(status.resources.linux) if status.resources.HasField("linux") else None


def _envs(found: object) -> dict[str, str]:
    try:
        pairs = codec.convert(found or [], list[dict[str, str]])
    except codec.DecodeError:
        return {}
    return {pair["key"]: pair.get("value", "") for pair in pairs if "key" in pair}


async def _config(channel: grpc.aio.Channel, method: str, request: Message) -> Mapping[str, Any]:
    try:
        return _config_of((await _call(channel, method, request)).info)
    except RuntimeAway as error:
        _log.warning("status_not_read", method=method, error=str(error))
        return {}


def _config_of(info: Mapping[str, str]) -> Mapping[str, Any]:
    """The original configuration that containerd tells in verbose statuses; empty if there is none."""
    try:
        return _mapping(codec.decode(info.get("info", "{}").encode(), dict[str, Any]).get("config"))
    except codec.DecodeError:
        return {}


def _mapping(found: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


async def _call(channel: grpc.aio.Channel, method: str, request: Message) -> Message:
    unary: Any = channel.unary_unary
    answer = cri_messages()[type(request).__name__.removesuffix("Request") + "Response"]
    call = unary(f"/{RUNTIME_SERVICE}/{method}", response_deserializer=answer.FromString)
    try:
        found: Message | None = await call(request.SerializeToString(), timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise RuntimeAway(f"{method}: {error.code().name}: {error.details()}") from error
    if found is None:  # what grpc gives for bytes that are not the message
        raise RuntimeAway(f"{method}: the answer is malformed")
    return found
