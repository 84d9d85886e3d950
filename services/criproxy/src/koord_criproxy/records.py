"""Records of pods and containers that the proxy keeps, and how the answers of hook servers and updates change them.

Source: runtime spec, 5.3 to 5.5.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of CRI. JSON of a runtime or a client may contain larger ones, which are refused."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources of a Linux container, as in CRI. Zero and empty mean that a field is not set."""

    cpu_period: Int64 = 0  # CFS period in microseconds
    cpu_quota: Int64 = 0  # CFS quota in microseconds; -1 means no limit
    cpu_shares: Int64 = 0  # Relative weight for CPU time
    memory_limit_in_bytes: Int64 = 0
    oom_score_adj: Int64 = 0  # Adjustment of the OOM score, -1000 to 1000
    cpuset_cpus: str = ""  # CPU list, such as `0-3`
    cpuset_mems: str = ""  # List of NUMA nodes
    hugepage_limits: tuple[tuple[str, int], ...] = ()  # Page size and limit in bytes of each huge page size
    unified: dict[str, str] = {}  # File of cgroup v2 -> its content
    memory_swap_limit_in_bytes: Int64 = 0  # Limit of memory and swap together


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    name: str = ""
    uid: str = ""
    namespace: str = ""
    attempt: int = 0  # Number of sandboxes that the pod had before this one
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    cgroup_parent: str = ""  # Cgroup of the pod; "" if it is not known
    runtime_handler: str = ""  # Name of the runtime class' handler; "" for the default one


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    pod: PodRecord  # Pod of the container, as it was when the container was created
    sandbox_id: str  # Id of the pod's sandbox
    name: str = ""
    id: str = ""  # Id of the container; "" until the runtime has created it
    attempt: int = 0  # Number of containers of this name that the sandbox had before this one
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Resources | None = None  # Resources; None if they are not known
    envs: Mapping[str, str] = field(default_factory=dict[str, str])  # Environment variables whose values are UTF-8


class Store:
    """Pods by the id of their sandbox, and containers by id. Only one event loop uses it."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}

    def ids(self) -> frozenset[str]:
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


_LOWEST_OOM_SCORE, _HIGHEST_OOM_SCORE = -1000, 1000


def with_hook_response(base: Resources, response: Resources | None) -> Resources:
    """The resources of a request after the answer of a hook server (None: no change) has overridden them.

    CPU and NUMA lists are always taken from the answer, also when they are empty, because a server echoes the values
    that it does not want to change. For the same reason, an OOM score of 0 overrides, too; one outside -1000..1000 does
    not. Other amounts of 0 do not override. Files of `unified` are merged, and huge page limits stay.
    """
    if response is None:
        return base
    changed = _amounts_over(base, response)
    is_score = _LOWEST_OOM_SCORE <= response.oom_score_adj <= _HIGHEST_OOM_SCORE
    return msgspec.structs.replace(
        changed,
        oom_score_adj=response.oom_score_adj if is_score else base.oom_score_adj,
        cpuset_cpus=response.cpuset_cpus,
        cpuset_mems=response.cpuset_mems,
    )


def with_update(cached: Resources | None, request: Resources) -> Resources:
    """The remembered resources (None: none) of a container after an UpdateContainerResources call has overridden them.

    OOM score and huge pages stay. Amounts of 0 and empty CPU and NUMA lists have no effect.
    """
    if cached is None:
        return request
    return msgspec.structs.replace(
        _amounts_over(cached, request),
        cpuset_cpus=request.cpuset_cpus or cached.cpuset_cpus,
        cpuset_mems=request.cpuset_mems or cached.cpuset_mems,
    )


def _amounts_over(base: Resources, change: Resources) -> Resources:
    """`base` with those amounts of `change` that are set. 0 is not set; -1 is set, as an unlimited quota."""

    def positive(value: int, old: int) -> int:
        return value if value > 0 else old

    return msgspec.structs.replace(
        base,
        cpu_period=positive(change.cpu_period, base.cpu_period),
        cpu_quota=change.cpu_quota or base.cpu_quota,
        cpu_shares=positive(change.cpu_shares, base.cpu_shares),
        memory_limit_in_bytes=positive(change.memory_limit_in_bytes, base.memory_limit_in_bytes),
        memory_swap_limit_in_bytes=positive(change.memory_swap_limit_in_bytes, base.memory_swap_limit_in_bytes),
        unified={**base.unified, **change.unified},
    )


def readable_envs(envs: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Name -> value that hook servers get: those that are UTF-8. If a variable occurs twice, the last one counts."""
    found: dict[str, str] = {}
    for key, value in envs:
        text = _text(value)
        if text is not None:
            found[key] = text
    return found


def with_hook_envs(envs: Iterable[tuple[str, bytes]], response: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """The environment of a request after the answer of a hook server, which replaces it; empty for no change.

    Variables of the request keep their order, and a duplicate keeps its first position. New variables follow in
    ascending order. A variable whose value is not UTF-8 was not shown to the server and stays.
    """
    envs = list(envs)
    if not response:
        return envs
    merged: dict[str, bytes] = {}
    for key, value in envs:
        if key in response:
            merged.setdefault(key, response[key].encode())
        elif _text(value) is None:
            merged.setdefault(key, value)
    for key in sorted(response):
        merged.setdefault(key, response[key].encode())
    return list(merged.items())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
