"""CRI v1: messages that a proxy between kubelet and container runtime reads or changes, and those that start a pod.

Source: runtime spec, appendix A.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from koordcore.runtime_api.hooks import LINUX_RESOURCES, Fields, message_classes

PACKAGE: Final = "runtime.v1"
RUNTIME_SERVICE: Final = f"{PACKAGE}.RuntimeService"
# Largest message in bytes, in both directions; the kubelet has the same limit.
LARGEST_MESSAGE: Final = 16 * 1024 * 1024

_MESSAGES: Final[dict[str, Fields]] = {
    **LINUX_RESOURCES,
    "PodSandboxMetadata": {
        "name": (1, "string"),
        "uid": (2, "string"),
        "namespace": (3, "string"),
        "attempt": (4, "uint32"),
    },
    "NamespaceOption": {"network": (1, "int32")},
    "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption")},
    "LinuxPodSandboxConfig": {
        "cgroup_parent": (1, "string"),
        "security_context": (2, "LinuxSandboxSecurityContext"),
    },
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata"),
        "log_directory": (3, "string"),
        "labels": (6, "map"),
        "annotations": (7, "map"),
        "linux": (8, "LinuxPodSandboxConfig"),
    },
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig"), "runtime_handler": (2, "string")},
    "RunPodSandboxResponse": {"pod_sandbox_id": (1, "string")},
    "StopPodSandboxRequest": {"pod_sandbox_id": (1, "string")},
    "RemovePodSandboxRequest": {"pod_sandbox_id": (1, "string")},
    "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32")},
    "KeyValue": {"key": (1, "string"), "value": (2, "bytes")},
    "ImageSpec": {"image": (1, "string")},
    "LinuxContainerSecurityContext": {"namespace_options": (3, "NamespaceOption")},
    "LinuxContainerConfig": {
        "resources": (1, "LinuxContainerResources"),
        "security_context": (2, "LinuxContainerSecurityContext"),
    },
    "ContainerConfig": {
        "metadata": (1, "ContainerMetadata"),
        "image": (2, "ImageSpec"),
        "command": (3, "repeated string"),
        "envs": (6, "repeated KeyValue"),
        "annotations": (10, "map"),
        "log_path": (11, "string"),
        "linux": (15, "LinuxContainerConfig"),
    },
    "CreateContainerRequest": {
        "pod_sandbox_id": (1, "string"),
        "config": (2, "ContainerConfig"),
        "sandbox_config": (3, "PodSandboxConfig"),
    },
    "CreateContainerResponse": {"container_id": (1, "string")},
    "StartContainerRequest": {"container_id": (1, "string")},
    "StopContainerRequest": {"container_id": (1, "string"), "timeout": (2, "int64")},
    "RemoveContainerRequest": {"container_id": (1, "string")},
    "UpdateContainerResourcesRequest": {
        "container_id": (1, "string"),
        "linux": (2, "LinuxContainerResources"),
        "annotations": (4, "map"),
    },
    "VersionRequest": {"version": (1, "string")},
    "VersionResponse": {
        "version": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
        "runtime_api_version": (4, "string"),
    },
    "ListPodSandboxRequest": {},
    "PodSandbox": {
        "id": (1, "string"),
        "metadata": (2, "PodSandboxMetadata"),
        "labels": (5, "map"),
        "annotations": (6, "map"),
        "runtime_handler": (7, "string"),
    },
    "ListPodSandboxResponse": {"items": (1, "repeated PodSandbox")},
    "ListContainersRequest": {},
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "metadata": (3, "ContainerMetadata"),
        "annotations": (9, "map"),
    },
    "ListContainersResponse": {"containers": (1, "repeated Container")},
    "PodSandboxStatusRequest": {"pod_sandbox_id": (1, "string"), "verbose": (2, "bool")},
    "PodSandboxStatus": {
        "metadata": (2, "PodSandboxMetadata"),
        "state": (3, "int32"),
        "labels": (7, "map"),
        "annotations": (8, "map"),
        "runtime_handler": (9, "string"),
    },
    "PodSandboxStatusResponse": {"status": (1, "PodSandboxStatus"), "info": (2, "map")},
    "ContainerStatusRequest": {"container_id": (1, "string"), "verbose": (2, "bool")},
    "ContainerResources": {"linux": (1, "LinuxContainerResources")},
    "ContainerStatus": {"resources": (16, "ContainerResources")},
    "ContainerStatusResponse": {"status": (1, "ContainerStatus"), "info": (2, "map")},
}


@cache
def cri_messages() -> Mapping[str, Any]:
    """Return name -> protobuf class of these messages of CRI v1. An object keeps the fields that its class does not
    list.
    """
    return message_classes(PACKAGE, _MESSAGES)
