"""The RuntimeHookService of the agent: gRPC on a unix socket, for a CRI proxy on the same machine.

It registers by a file in a folder that the proxy watches. Its threads answer; they never wait for a cycle. Importing
this module loads grpc (11 MiB).

Source: runtime spec, 2.3, 2.4, 2.7, 2.10, 4.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from koordcore.runtime_api.hooks import CONTAINER_CALLS, POD_CALLS, SERVICE, messages_of_call, service_descriptors

from koord_agent.domain.hooks.call import HookCall, HookedContainer, HookedPod, HookValues, Mode, Stage
from koord_agent.domain.hooks.plugins import REGISTRATION_FILE
from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US, UNLIMITED, per_100_ms
from koord_agent.shell.grpc.unix_server import UnixServer
from koord_agent.shell.hooks.answering import HookAnswers

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
    """`rpc` is for example `PreCreateContainerHook`, `runtime` `containerd`."""
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
    values = values.in_period(getattr(request, resources).cpu_period)
    for name, field in _FIELDS.items():
        if (value := getattr(values, name)) is not None:
            setattr(getattr(response, resources), field, value)
    return response


def _before(resources: Message, envs: Mapping[str, str]) -> HookValues:
    """0 and "" mean that the request leaves a value to the runtime."""
    memory = resources.memory_limit_in_bytes
    return HookValues(
        cpuset=resources.cpuset_cpus or None,
        cfs_quota_us=per_100_ms(resources.cpu_quota, resources.cpu_period or CFS_PERIOD_US) or None,
        cpu_shares=resources.cpu_shares or None,
        memory_limit_bytes=max(memory, UNLIMITED) or None,
        envs=dict(envs),
    )


class HookServer(UnixServer):
    """Its socket can change every container of the machine. `runtime` is for example `containerd`."""

    def __init__(self, socket: Path, answers: HookAnswers, *, runtime: str) -> None:
        self._answers = answers
        self._runtime = runtime
        handlers = {rpc: self._handler_of(rpc) for rpc in (*POD_CALLS, *CONTAINER_CALLS)}
        generic: Any = grpc.method_handlers_generic_handler
        super().__init__(socket, generic(SERVICE, handlers), name="hooks", extend=_describe)

    def _handler_of(self, rpc: str) -> Any:
        request_class, response_class = messages_of_call(rpc)

        def answer(request: Message, context: Any) -> Message:
            result = self._answers.answer(call_of_request(rpc, request, runtime=self._runtime))
            if result.failed:
                context.abort(grpc.StatusCode.UNKNOWN, result.error)
            return response_of(rpc, request, result.values)

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(
            answer, request_deserializer=request_class.FromString, response_serializer=response_class.SerializeToString
        )


def _describe(server: Any) -> None:
    """Let clients such as grpcurl ask the server for its methods and messages (runtime spec, 2.10)."""
    from grpc_reflection.v1alpha import reflection

    known: Any = reflection
    known.enable_server_reflection((SERVICE, known.SERVICE_NAME), server, service_descriptors())


def write_registration(folder: Path, text: str) -> bool:
    """Write the file atomically, unless it is in place. It stays when the agent stops. Return whether it was written.

    Raises:
        OSError: The folder does not exist, or it is not writable.
    """
    path = folder / REGISTRATION_FILE
    with contextlib.suppress(OSError):
        if path.read_bytes() == text.encode():  # bytes: what is there may be no text
            return False
    draft = folder / f".{REGISTRATION_FILE}.{os.getpid()}.tmp"  # the proxy reads only names that end in json
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return True
