"""Convert between the proxy's records and the messages of CRI and of the hook service.

Source: runtime spec, 4, 5.3.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from koordcore.runtime_api.hooks import messages_of_call
from koordcore.values import codec

from koord_criproxy.records import ContainerRecord, PodRecord, Resources

# Messages are classes that are made at run time, so they have no static type.
Message = Any

_PLAIN = tuple(field for field in Resources.__struct_fields__ if field not in ("hugepage_limits", "unified"))


def resources_of(message: Message) -> Resources:
    return Resources(
        **{field: getattr(message, field) for field in _PLAIN},
        unified=dict(message.unified),
        hugepage_limits=tuple((limit.page_size, limit.limit) for limit in message.hugepage_limits),
    )


def write_resources(resources: Resources, message: Message) -> None:
    """Fields of the message that the proxy does not know stay."""
    for field in _PLAIN:
        setattr(message, field, getattr(resources, field))
    write_map(message.unified, resources.unified)
    del message.hugepage_limits[:]
    for page_size, limit in resources.hugepage_limits:
        message.hugepage_limits.add(page_size=page_size, limit=limit)


def write_map(field: Message, values: Mapping[str, str]) -> None:
    field.clear()
    field.update(values)


def pod_of_config(config: Message, runtime_handler: str) -> PodRecord:
    """`config` is a `PodSandboxConfig`."""
    return PodRecord(
        name=config.metadata.name,
        uid=config.metadata.uid,
        namespace=config.metadata.namespace,
        attempt=config.metadata.attempt,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        cgroup_parent=config.linux.cgroup_parent,
        runtime_handler=runtime_handler,
    )


def pod_request(rpc: str, pod: PodRecord) -> Message:
    request = messages_of_call(rpc)[0](
        labels=pod.labels,
        annotations=pod.annotations,
        cgroup_parent=pod.cgroup_parent,
        runtime_handler=pod.runtime_handler,
    )
    _write_pod_meta(pod, request.pod_meta)
    return request


def pod_after(pod: PodRecord, response: Message) -> PodRecord:
    """After the answer of the hook before its sandbox is created."""
    return replace(
        pod,
        labels={**pod.labels, **response.labels},
        annotations={**pod.annotations, **response.annotations},
        cgroup_parent=response.cgroup_parent or pod.cgroup_parent,
    )


def container_request(rpc: str, container: ContainerRecord) -> Message:
    request = messages_of_call(rpc)[0](
        container_annotations=container.annotations,
        pod_annotations=container.pod.annotations,
        pod_labels=container.pod.labels,
        pod_cgroup_parent=container.pod.cgroup_parent,
        container_envs=container.envs,
    )
    _write_pod_meta(container.pod, request.pod_meta)
    request.container_meta.name = container.name
    request.container_meta.attempt = container.attempt
    request.container_meta.id = container.id
    if container.resources is not None:
        write_resources(container.resources, request.container_resources)
    return request


def response_resources(response: Message) -> Resources | None:
    """None if the answer has none."""
    return resources_of(response.container_resources) if response.HasField("container_resources") else None


def resources_of_json(found: Mapping[str, Any]) -> Resources | None:
    """From a runtime's own JSON, as it is in verbose status, without huge page limits.

    None if there are none, or if the JSON has another form.
    """
    fields = {key: value for key, value in found.items() if value is not None and key != "hugepage_limits"}
    try:
        return codec.convert(fields, Resources) if fields else None
    except codec.DecodeError:
        return None


def _write_pod_meta(pod: PodRecord, meta: Message) -> None:
    meta.name, meta.uid, meta.namespace = pod.name, pod.uid, pod.namespace
