"""Translate between the messages of the RuntimeHookService and calls of the hooks.

Source: runtime spec, 2.3, 2.4, 4.
"""

from collections.abc import Mapping
from typing import Any, Final

from koordcore.runtime_api.hooks import POD_CALLS, messages_of_call

from koord_agent.domain.hook_stages.call import HookCall, HookedContainer, HookedPod
from koord_agent.domain.hook_stages.stages import Mode, Stage
from koord_agent.domain.hook_stages.values import HookValues
from koord_agent.domain.kernel.cgroup_files import UNLIMITED

HOOK: Final = "Hook"
"""Suffix of the name of a stage in the name of its gRPC call."""
DOCKER: Final = "docker"
DOCKER_TYPE: Final = "io.kubernetes.docker.type"
"""Annotation of pods that Docker runs."""
_FIELDS: Final[Mapping[str, str]] = {
    "cpuset": "cpuset_cpus",
    "cfs_quota_us": "cpu_quota",
    "cpu_shares": "cpu_shares",
    "memory_limit_bytes": "memory_limit_in_bytes",
}
"""Value of hooks -> field of LinuxContainerResources."""

Message = Any
"""A protobuf message; their classes are made at run time."""


def call_of_request(rpc: str, request: Message, *, runtime: str) -> HookCall:
    """Convert a gRPC request of the RuntimeHookService to a call of the hooks.

    Args:
        rpc: Name of the gRPC call, such as `PreCreateContainerHook`.
        request: Its request.
        runtime: Container runtime of the machine, such as `containerd`.
    """
    stage = Stage(rpc.removesuffix(HOOK))
    meta = request.pod_meta
    if rpc in POD_CALLS:
        labels, annotations, parent = request.labels, request.annotations, request.cgroup_parent
    else:
        labels, annotations, parent = request.pod_labels, request.pod_annotations, request.pod_cgroup_parent
    pod = HookedPod(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=dict(labels),
        annotations=dict(annotations),
        cgroup_parent=parent,
    )
    container = None
    if rpc not in POD_CALLS:
        id_ = request.container_meta.id
        of_runtime = DOCKER if DOCKER_TYPE in annotations else runtime
        container = HookedContainer(
            name=request.container_meta.name,
            id=f"{of_runtime}://{id_}" if id_ else "",
            before=_before(request.container_resources, request.container_envs),
        )
    return HookCall(mode=Mode.PROXY, stage=stage, pod=pod, container=container)


def response_of(rpc: str, request: Message, values: HookValues) -> Message:
    """Return the response to a request: an echo of the request, with the values of the hooks.

    Of these values, it has the CPU list, CPU quota, CPU shares, memory limit, and the environment of a container.

    Args:
        rpc: Name of the gRPC call.
        request: Request of the call.
        values: Values that the hooks computed.
    """
    response = messages_of_call(rpc)[1]()
    if rpc in POD_CALLS:
        response.labels.update(request.labels)
        response.annotations.update(request.annotations)
        response.cgroup_parent = request.cgroup_parent
        resources = "resources"
    else:
        response.container_annotations.update(request.container_annotations)
        response.container_envs.update(request.container_envs)
        response.container_envs.update(values.envs)
        response.pod_cgroup_parent = request.pod_cgroup_parent
        resources = "container_resources"
    if request.HasField(resources):
        getattr(response, resources).CopyFrom(getattr(request, resources))
    for name, field in _FIELDS.items():
        if (value := getattr(values, name)) is not None:
            setattr(getattr(response, resources), field, value)
    return response


def _before(resources: Message, envs: Mapping[str, str]) -> HookValues:
    """Return the values of a request. 0 and "" mean that the request leaves them to the runtime."""
    memory = resources.memory_limit_in_bytes
    return HookValues(
        cpuset=resources.cpuset_cpus or None,
        cfs_quota_us=resources.cpu_quota or None,
        cpu_shares=resources.cpu_shares or None,
        memory_limit_bytes=max(memory, UNLIMITED) or None,
        envs=dict(envs),
    )
