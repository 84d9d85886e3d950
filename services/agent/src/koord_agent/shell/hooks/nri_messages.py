"""Messages of NRI, and their translation to and from values.

Source: runtime spec, appendix B.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, cast

from koordcore.runtime_api.hooks import Fields, message_classes

from koord_agent.domain.hooks.call import HookCall, HookedContainer, HookedPod, HookValues, Mode, Stage
from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US, per_100_ms

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
        "period": (3, "OptionalUInt64"),
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
    """Name -> protobuf class."""
    return message_classes(PACKAGE, _MESSAGES)


def call_of(stage: Stage, pod: Message, container: Message | None, resources: Message, *, runtime: str) -> HookCall:
    """Convert a `PodSandbox` and a `Container` (None for an event of a pod) to a call of the hooks.

    `resources` are the `LinuxResources` of the container: those that it has, or those that an update asks for.
    """
    hooked = HookedPod(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        cgroup_parent=pod.linux.cgroup_parent,
    )
    found = None
    if container is not None:
        found = HookedContainer(
            name=container.name, id=f"{runtime}://{container.id}", before=_before(resources, container.env)
        )
    return HookCall(mode=Mode.NRI, stage=stage, pod=hooked, container=found)


def _before(resources: Message, envs: Iterable[str]) -> HookValues:
    cpu, memory = resources.cpu, resources.memory
    return HookValues(
        cpu_shares=cpu.shares.value if cpu.HasField("shares") else None,
        cfs_quota_us=per_100_ms(cpu.quota.value, period_us_of(resources)) if cpu.HasField("quota") else None,
        memory_limit_bytes=memory.limit.value if memory.HasField("limit") else None,
        cpuset=cpu.cpus or None,
        envs=envs_of(envs),
    )


def period_us_of(resources: Message) -> int:
    """CFS period of a `LinuxResources`."""
    return resources.cpu.period.value or CFS_PERIOD_US


def envs_of(lines: Iterable[str]) -> dict[str, str]:
    """From lines `K=V`. A line with an empty name or value is left out."""
    pairs = (line.partition("=") for line in lines)
    return {key: value for key, _, value in pairs if key and value}


def write_fields(message: Message, fields: Mapping[str, Any]) -> None:
    """A plain value for an optional wrapper becomes the wrapper's value; nested fields are those of a message."""
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
