"""Messages of NRI, and their translation to and from values.

Source: runtime spec, appendix B.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

from koordcore.runtime_api.protobuf import Fields, message_classes

from koord_agent.domain.nri.objects import NriContainer, NriPod, envs_of

# Messages are classes that are made at run time, so they have no static type.
Message = Any

PACKAGE: Final = "nri.pkg.api.v1alpha1"
_RESOURCES: Final = "LinuxResources"
_MESSAGES: Final[dict[str, Fields]] = {
    "Empty": {},
    "OptionalInt64": {"value": (1, "int64")},
    "OptionalUInt64": {"value": (1, "uint64")},
    "OptionalString": {"value": (1, "string")},
    "OptionalFileMode": {"value": (1, "uint32")},
    "RegisterPluginRequest": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
    "ConfigureRequest": {
        "config": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
    },
    "ConfigureResponse": {"events": (2, "int32")},
    "LinuxPodSandbox": {"cgroup_parent": (3, "string")},
    "PodSandbox": {
        "id": (1, "string"),
        "name": (2, "string"),
        "uid": (3, "string"),
        "namespace": (4, "string"),
        "labels": (5, "map"),
        "annotations": (6, "map"),
        "linux": (8, "LinuxPodSandbox"),
    },
    "LinuxMemory": {"limit": (1, "OptionalInt64")},
    "LinuxCPU": {
        "shares": (1, "OptionalUInt64"),
        "quota": (2, "OptionalInt64"),
        "cpus": (6, "string"),
    },
    _RESOURCES: {"memory": (1, "LinuxMemory"), "cpu": (2, "LinuxCPU"), "rdt_class": (5, "OptionalString")},
    "LinuxContainer": {"resources": (3, _RESOURCES)},
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "name": (3, "string"),
        "labels": (5, "map"),
        "annotations": (6, "map"),
        "env": (8, "repeated string"),
        "linux": (11, "LinuxContainer"),
    },
    "SynchronizeRequest": {
        "pods": (1, "repeated PodSandbox"),
        "containers": (2, "repeated Container"),
        "more": (3, "bool"),
    },
    "LinuxContainerUpdate": {"resources": (1, _RESOURCES)},
    "ContainerUpdate": {"container_id": (1, "string"), "linux": (2, "LinuxContainerUpdate")},
    "SynchronizeResponse": {"update": (1, "repeated ContainerUpdate"), "more": (2, "bool")},
    "StateChangeEvent": {"event": (1, "int32"), "pod": (2, "PodSandbox"), "container": (3, "Container")},
    "CreateContainerRequest": {"pod": (1, "PodSandbox"), "container": (2, "Container")},
    "Mount": {
        "destination": (1, "string"),
        "type": (2, "string"),
        "source": (3, "string"),
        "options": (4, "repeated string"),
    },
    "KeyValue": {"key": (1, "string"), "value": (2, "string")},
    "LinuxDevice": {
        "path": (1, "string"),
        "type": (2, "string"),
        "major": (3, "int64"),
        "minor": (4, "int64"),
        "file_mode": (5, "OptionalFileMode"),
    },
    "LinuxContainerAdjustment": {"devices": (1, "repeated LinuxDevice"), "resources": (2, _RESOURCES)},
    "ContainerAdjustment": {
        "mounts": (3, "repeated Mount"),
        "env": (4, "repeated KeyValue"),
        "linux": (6, "LinuxContainerAdjustment"),
    },
    "CreateContainerResponse": {"adjust": (1, "ContainerAdjustment")},
    "UpdateContainerRequest": {
        "pod": (1, "PodSandbox"),
        "container": (2, "Container"),
        "linux_resources": (3, _RESOURCES),
    },
    "UpdateContainerResponse": {"update": (1, "repeated ContainerUpdate")},
}


@cache
def nri_messages() -> Mapping[str, Any]:
    """Return name -> protobuf class of the messages of NRI that the agent uses."""
    return message_classes(PACKAGE, _MESSAGES)


def pod_of(message: Message) -> NriPod:
    """Return the pod of a `PodSandbox` message."""
    return NriPod(
        id=message.id,
        name=message.name,
        uid=message.uid,
        namespace=message.namespace,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        cgroup_parent=message.linux.cgroup_parent,
    )


def container_of(message: Message, resources: Message) -> NriContainer:
    """Return the container of a `Container` message.

    Args:
        message: The container.
        resources: Its `LinuxResources`: those that it has, or those that an update asks for.
    """
    return NriContainer(
        id=message.id,
        name=message.name,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        envs=envs_of(message.env),
        cpu_shares=resources.cpu.shares.value if resources.cpu.HasField("shares") else None,
        cpu_quota=resources.cpu.quota.value if resources.cpu.HasField("quota") else None,
        memory_limit_bytes=resources.memory.limit.value if resources.memory.HasField("limit") else None,
        cpuset=resources.cpu.cpus,
    )


def write_fields(message: Message, fields: Mapping[str, Any]) -> None:
    """Write fields into a message. A plain value for an optional wrapper becomes the wrapper's value.

    Args:
        message: The message.
        fields: Name of a field -> a value, a list, or the fields of a message.
    """
    for name, value in fields.items():
        target: Any = getattr(message, name)
        if isinstance(value, dict):
            target.SetInParent()
            write_fields(target, cast("dict[str, Any]", value))
        elif isinstance(value, list):
            for each in cast("list[Any]", value):
                if isinstance(each, dict):
                    write_fields(target.add(), cast("dict[str, Any]", each))
                else:
                    target.append(each)
        elif message.DESCRIPTOR.fields_by_name[name].message_type is not None:
            target.SetInParent()
            target.value = value
        else:
            setattr(message, name, value)
