"""What an extension implements: one protocol or callable for each point at which installed packages add to an agent.

`extensions.Extensions` is where they are registered, `node_extensions` where they are called; none of them can end a
round. Each has half a second of a round, however often it is asked in it; `EvictPod` has ten, for all victims.

A round goes on without one that is slower, and adds to the series behind `Metrics` while its thread still reads them.
Such an answer comes too late and is dropped; the extension must not keep or act on it itself. Pods and the other fields
of a look never change.

source    agent spec, 4.1, 10.1, 22
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koordcore.events.agents.nodestate import NodeTopologyReported

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, HostApplication
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.state.pods import AgentPod


class Point(StrEnum):
    """Where something is registered: how failures are named in sentences and metrics."""

    PACKAGE = "package"
    STRATEGY = "strategy"
    POLICIES = "policies"
    CALLBACK = "callback"
    STATE = "state"
    COLLECTOR = "collector"
    POD_FILTER = "pod filter"
    POD_METRIC = "pod metric"
    TOPOLOGY = "topology hook"
    HTTP = "http handler"
    CONTROLLER = "controller"
    EVICTION = "eviction"


class PodPolicies(Protocol):
    """Policies of single pods that have no annotation of their own: grey control."""

    def cpu_burst(self, pod: AgentPod) -> str | None:
        """The JSON that the annotation koordinator.sh/cpuBurst would have; None = nothing."""
        ...

    def memory_qos(self, pod: AgentPod) -> str | None:
        """The same of koordinator.sh/memoryQOS."""
        ...


class StateKind(StrEnum):
    """States that callbacks hear of; with what as their object."""

    NODE_SLO = "NodeSLOSpec"
    """the effective NodeSLO in wire spelling"""
    ALL_PODS = "AllPods"
    """nothing: the pods are the target"""
    NODE_TOPOLOGY = "NodeTopology"
    """`CpuPools`: who may use which CPUs"""
    NODE_METADATA = "NodeMetadata"
    """labels and annotations of the node"""


@dataclass(frozen=True, slots=True)
class Target:
    """What a callback is about."""

    pods: tuple[AgentPod, ...]
    host_applications: tuple[HostApplication, ...]


Callback = Callable[[StateKind, object, Target], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The node as collectors and states see it.

    read    the text of a cgroup's file by its v1 resource name, on either version; None = unreadable
    """

    now_ms: int
    node: str
    layout: CgroupLayout
    cgroup_version: int
    pods: tuple[AgentPod, ...]
    host_applications: tuple[HostApplication, ...]
    read: Callable[[CgroupFile], str | None]


class Found(NamedTuple):
    """One value of a collector.

    of    uid of the pod that it is about, any other name, or "" for the node
    """

    metric: str
    value: float
    of: str = ""


class Collector(Protocol):
    """Measures what the agent does not; its values are series like all others (`metric_kinds.Kind.EXTENSION`)."""

    @property
    def every_seconds(self) -> float:
        """Between two collections, on the service's clock."""
        ...

    def collect(self, seen: Surroundings) -> Iterable[Found]:
        """What there is now. It has a thread of its own, so it may take its time."""
        ...


class State(Protocol):
    """Knows something about the node that strategies ask for: `look.states[name]`, the last one that was read."""

    @property
    def every_seconds(self) -> float:
        """Between two reads, on the service's clock."""
        ...

    def read(self, seen: Surroundings) -> object:
        """The state now. It has a thread of its own, so it may take its time."""
        ...


class PodCollector(StrEnum):
    """Collectors that visit each pod."""

    USAGE = "usage"
    """cpu, memory, throttling, NUMA pages; of a pod that is left out they count as the system's"""
    PRESSURE = "pressure"
    """PSI, waiting for CPU, memory, disks and the network"""
    CYCLES = "cycles"
    COLD_PAGES = "cold pages"


PodFilter = Callable[[AgentPod], bool]
"""Whether a collector visits a pod. It answers once for each state of a pod; one that failed is asked again."""

PodMetricFiller = Callable[[AgentPod, Metrics], object]
"""What a report says of a pod beside its usage, as JSON values; None = nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyAdditions:
    """What a hook adds to the node's topology; what the agent reports itself stays.

    zone_resources    by zone name (`node-0`): resource -> amount, in the zone's capacity and allocatable
    """

    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    zone_resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])


TopologyHook = Callable[[NodeTopologyReported], TopologyAdditions]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A GET or POST of the agent's port."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """Its answer."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


HttpHandler = Callable[[HttpRequest], HttpReply]

RunController = Callable[[], Awaitable[None]]
"""A loop beside the agent's, on an event loop of its own; cancelled when the agent ends."""

EvictPod = Callable[[AgentPod], bool]
"""Ends an evicted pod here and now; False = the request alone stands. A round waits for it, 10 s for all victims."""

JsonObject = Mapping[str, Any]
