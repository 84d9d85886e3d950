"""RuntimeHookService: the calls by which a CRI proxy asks the agent what to change in pods and containers.

Message classes are made from tables of field numbers, for the few messages of CRI and hooks that are used. protobuf is
imported with the first table, so a process that speaks to no such interface does not load it.

Source: runtime spec, 4.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

# Name of a field -> (number, kind). A kind is string, bytes, bool, int32, uint32, int64, uint64 or the name of a
# message; `repeated ` before it for a list; `map` for a map from string to string.
Fields = Mapping[str, tuple[int, str]]

_REPEATED: Final = "repeated "
_MAP: Final = "map"


def message_classes(package: str, messages: Mapping[str, Fields]) -> Mapping[str, Any]:
    """Return name -> protobuf class for every message of a table. An object keeps the fields that the table lacks, so
    that it is written as it was read. `messages`: name of a message -> its fields.

    Raises:
        KeyError: The type of a field is unknown.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {name: getattr(kinds, f"TYPE_{name.upper()}") for name in _SCALARS}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            of = kind.removeprefix(_REPEATED)
            label = kinds.LABEL_REPEATED if kind != of or of == _MAP else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if of == _MAP:
                entry_name = "".join(part.capitalize() for part in field_name.split("_")) + "Entry"
                entry = message.nested_type.add(name=entry_name)
                entry.options.map_entry = True
                for key, position in (("key", 1), ("value", 2)):
                    entry.field.add(name=key, number=position, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{name}.{entry_name}"
            elif of in messages:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{of}"
            else:
                field.type = scalars[of]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


_SCALARS: Final = ("string", "bytes", "bool", "int32", "uint32", "int64", "uint64")


PACKAGE: Final = "runtime.v1alpha1"
SERVICE: Final = f"{PACKAGE}.RuntimeHookService"
POD_CALLS: Final = ("PreRunPodSandboxHook", "PostStopPodSandboxHook")
CONTAINER_CALLS: Final = (
    "PreCreateContainerHook",
    "PreStartContainerHook",
    "PostStartContainerHook",
    "PostStopContainerHook",
    "PreUpdateContainerResourcesHook",
)

# Resources of a container. CRI v1 has the same messages with the same numbers.
LINUX_RESOURCES: Final[dict[str, Fields]] = {
    "HugepageLimit": {"page_size": (1, "string"), "limit": (2, "uint64")},
    "LinuxContainerResources": {
        "cpu_period": (1, "int64"),
        "cpu_quota": (2, "int64"),
        "cpu_shares": (3, "int64"),
        "memory_limit_in_bytes": (4, "int64"),
        "oom_score_adj": (5, "int64"),
        "cpuset_cpus": (6, "string"),
        "cpuset_mems": (7, "string"),
        "hugepage_limits": (8, "repeated HugepageLimit"),
        "unified": (9, "map"),
        "memory_swap_limit_in_bytes": (10, "int64"),
    },
}

_MESSAGES: Final[dict[str, Fields]] = {
    **LINUX_RESOURCES,
    "PodSandboxMetadata": {
        "name": (1, "string"),
        "uid": (2, "string"),
        "namespace": (3, "string"),
        "attempt": (4, "uint32"),
    },
    "PodSandboxHookRequest": {
        "pod_meta": (1, "PodSandboxMetadata"),
        "runtime_handler": (2, "string"),
        "labels": (3, "map"),
        "annotations": (4, "map"),
        "cgroup_parent": (5, "string"),
        "overhead": (6, "LinuxContainerResources"),
        "resources": (7, "LinuxContainerResources"),
    },
    "PodSandboxHookResponse": {
        "labels": (1, "map"),
        "annotations": (2, "map"),
        "cgroup_parent": (3, "string"),
        "resources": (4, "LinuxContainerResources"),
    },
    "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32"), "id": (3, "string")},
    "ContainerResourceHookRequest": {
        "pod_meta": (1, "PodSandboxMetadata"),
        "container_meta": (2, "ContainerMetadata"),
        "container_annotations": (3, "map"),
        "container_resources": (4, "LinuxContainerResources"),
        "pod_resources": (5, "LinuxContainerResources"),
        "pod_annotations": (6, "map"),
        "pod_labels": (7, "map"),
        "pod_cgroup_parent": (8, "string"),
        "container_envs": (9, "map"),
    },
    "ContainerResourceHookResponse": {
        "container_annotations": (1, "map"),
        "container_resources": (2, "LinuxContainerResources"),
        "pod_cgroup_parent": (3, "string"),
        "container_envs": (4, "map"),
    },
}


@cache
def hook_messages() -> Mapping[str, Any]:
    """Return name -> protobuf class of the messages of the RuntimeHookService."""
    return message_classes(PACKAGE, _MESSAGES)


def service_descriptors() -> Any:
    """Return the protobuf descriptor pool of the RuntimeHookService, for gRPC reflection."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto()
    messages_of_call(POD_CALLS[0])[0].DESCRIPTOR.file.CopyToProto(file)
    service = file.service.add(name=SERVICE.rpartition(".")[2])
    for call in (*POD_CALLS, *CONTAINER_CALLS):
        request, response = (each.DESCRIPTOR.full_name for each in messages_of_call(call))
        service.method.add(name=call, input_type=f".{request}", output_type=f".{response}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def messages_of_call(call: str) -> tuple[Any, Any]:
    """Return the protobuf classes of request and response of a hook call, such as `PreRunPodSandboxHook`."""
    kind = "PodSandbox" if call in POD_CALLS else "ContainerResource"
    found = hook_messages()
    return found[f"{kind}HookRequest"], found[f"{kind}HookResponse"]
