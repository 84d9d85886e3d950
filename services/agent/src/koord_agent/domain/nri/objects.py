"""Pods and containers as the runtime describes them to an NRI plugin.

Source: runtime spec, 2.3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NriPod:
    """A pod sandbox.

    Attributes:
        id: Id of the sandbox.
        name: Name of the pod.
        uid: Uid of the pod.
        namespace: Namespace of the pod.
        labels: Labels of the pod.
        annotations: Annotations of the pod.
        cgroup_parent: Cgroup of the pod.
    """

    id: str = ""
    name: str = ""
    uid: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    cgroup_parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NriContainer:
    """A container of a pod. None means that the runtime has no value.

    Attributes:
        id: Id of the container.
        name: Name of the container.
        labels: Labels of the container.
        annotations: Annotations of the container.
        envs: Environment variables.
        cpu_shares: Relative weight for CPU time.
        cpu_quota: CFS quota in microseconds; -1 means no limit.
        memory_limit_bytes: Memory limit in bytes; -1 means no limit.
        cpuset: CPU list; "" for all CPUs.
    """

    id: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    cpu_shares: int | None = None
    cpu_quota: int | None = None
    memory_limit_bytes: int | None = None
    cpuset: str = ""


def envs_of(lines: Iterable[str]) -> dict[str, str]:
    """Return the environment variables in lines `K=V`. A line with an empty name or value is left out."""
    pairs = (line.partition("=") for line in lines)
    return {key: value for key, _, value in pairs if key and value}
