"""Records of pods and containers that the proxy keeps, with the fields that hook servers get.

Source: runtime spec, 5.3, 5.5.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of CRI. JSON of a runtime or a client may contain larger ones, which are refused."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources of a Linux container, as in CRI. Zero and empty mean that a field is not set.

    Attributes:
        cpu_period: CFS period in microseconds.
        cpu_quota: CFS quota in microseconds; -1 means no limit.
        cpu_shares: Relative weight for CPU time.
        memory_limit_in_bytes: Memory limit.
        oom_score_adj: Adjustment of the OOM score, -1000 to 1000.
        cpuset_cpus: CPU list, such as `0-3`.
        cpuset_mems: List of NUMA nodes.
        hugepage_limits: Page size and limit in bytes of each huge page size.
        unified: File of cgroup v2 -> its content.
        memory_swap_limit_in_bytes: Limit of memory and swap together.
    """

    cpu_period: Int64 = 0
    cpu_quota: Int64 = 0
    cpu_shares: Int64 = 0
    memory_limit_in_bytes: Int64 = 0
    oom_score_adj: Int64 = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    hugepage_limits: tuple[tuple[str, int], ...] = ()
    unified: dict[str, str] = {}
    memory_swap_limit_in_bytes: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """The record of a pod sandbox that the proxy keeps.

    Attributes:
        name: Name of the pod.
        uid: Uid of the pod.
        namespace: Namespace of the pod.
        attempt: Number of sandboxes that the pod had before this one.
        labels: Labels of the pod.
        annotations: Annotations of the pod.
        cgroup_parent: Cgroup of the pod; "" if it is not known.
        runtime_handler: Name of the runtime class' handler; "" for the default one.
    """

    name: str = ""
    uid: str = ""
    namespace: str = ""
    attempt: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    cgroup_parent: str = ""
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """The record of a container that the proxy keeps.

    Attributes:
        pod: Pod of the container, as it was when the container was created.
        sandbox_id: Id of the pod's sandbox.
        name: Name of the container.
        id: Id of the container; "" until the runtime has created it.
        attempt: Number of containers of this name that the sandbox had before this one.
        annotations: Annotations of the container.
        resources: Resources; None if they are not known.
        envs: Environment variables whose values are UTF-8.
    """

    pod: PodRecord
    sandbox_id: str
    name: str = ""
    id: str = ""
    attempt: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Resources | None = None
    envs: Mapping[str, str] = field(default_factory=dict[str, str])


class Store:
    """The records that the proxy keeps: pods by the id of their sandbox, and containers by id.

    Only one event loop uses it.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}

    def ids(self) -> frozenset[str]:
        """Return the ids of all sandboxes and containers."""
        return frozenset(self.pods.keys() | self.containers.keys())

    def drop(self, ids: AbstractSet[str]) -> None:
        """Forget removed sandboxes, with the containers in them, and removed containers."""
        for id_ in ids:
            self.containers.pop(id_, None)
            self.drop_sandbox(id_)

    def drop_sandbox(self, sandbox_id: str) -> None:
        """Forget a removed sandbox and the containers in it that were not removed before."""
        self.pods.pop(sandbox_id, None)
        for id_ in [id_ for id_, found in self.containers.items() if found.sandbox_id == sandbox_id]:
            del self.containers[id_]
