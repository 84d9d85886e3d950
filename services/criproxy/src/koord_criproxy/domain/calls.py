"""The calls of CRI v1 that the proxy intercepts, and the hooks that belong to them.

Source: runtime spec, 5.2.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koordcore.runtime_api.cri import RUNTIME_SERVICE


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

_PREFIX: Final = f"/{RUNTIME_SERVICE}/"


def intercepted_call(path: str) -> str | None:
    """Return the name of a CRI call, such as `RunPodSandbox`, if the proxy intercepts it; None if it only forwards it.

    Args:
        path: gRPC path, such as `/runtime.v1.RuntimeService/RunPodSandbox`.
    """
    name = path.removeprefix(_PREFIX)
    return name if name != path and name in HOOKS else None
