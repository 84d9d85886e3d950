"""The calls of CRI v1 that the proxy intercepts, and the hooks that belong to them.

Source: runtime spec, 5.2.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koordcore.runtime_api.cri import IMAGE_SERVICE, RUNTIME_SERVICE


class Stage(StrEnum):
    """Time at which a hook runs: PRE, before the call reaches the container runtime, or POST, after it.

    The name of a hook begins with it.
    """

    PRE = "Pre"
    POST = "Post"


HOOKS: Final[Mapping[str, frozenset[str]]] = {
    "RunPodSandbox": frozenset(("PreRunPodSandbox",)),
    "StopPodSandbox": frozenset(("PostStopPodSandbox",)),
    "CreateContainer": frozenset(("PreCreateContainer",)),
    "StartContainer": frozenset(("PreStartContainer", "PostStartContainer")),
    "UpdateContainerResources": frozenset(("PreUpdateContainerResources",)),
    "StopContainer": frozenset(("PostStopContainer",)),
    "RemoveContainer": frozenset(),
    "RemovePodSandbox": frozenset(),
}
"""Intercepted call -> names of the hooks that belong to it. The last two calls only drop what is remembered."""

_RUNTIME_CALLS: Final = (
    "Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox CreateContainer "
    "StartContainer StopContainer RemoveContainer ListContainers ContainerStatus UpdateContainerResources "
    "ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats ListContainerStats PodSandboxStats "
    "ListPodSandboxStats UpdateRuntimeConfig Status CheckpointContainer ListMetricDescriptors ListPodSandboxMetrics "
    "RuntimeConfig UpdatePodSandboxResources"
)
_IMAGE_CALLS: Final = "ListImages ImageStatus PullImage RemoveImage ImageFsInfo"
UNARY: Final = frozenset(
    f"/{service}/{name}"
    for service, names in ((RUNTIME_SERVICE, _RUNTIME_CALLS), (IMAGE_SERVICE, _IMAGE_CALLS))
    for name in names.split()
)
"""gRPC paths with one request and one answer. gRPC needs fewer operations for them than for a stream, so the proxy does
not treat them as streams, as it treats every other path."""

_PREFIX: Final = f"/{RUNTIME_SERVICE}/"


def intercepted_call(path: str) -> str | None:
    """Return the name of a CRI call, such as `RunPodSandbox`, if the proxy intercepts it; None if it only forwards it.

    Args:
        path: gRPC path, such as `/runtime.v1.RuntimeService/RunPodSandbox`.
    """
    name = path.removeprefix(_PREFIX)
    return name if name != path and name in HOOKS else None
