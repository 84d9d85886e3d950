"""Extension points: one protocol or callable for each point at which installed packages extend an agent.

`extensions.Extensions` is the registry, `node_extensions` calls what is registered. A failing extension never ends a
cycle. In each cycle, an extension may use half a second in total, and `EvictPod` ten seconds for all victims.

Extensions get a *look*: an immutable snapshot of the node (`domain.node.node_look.NodeLook`). If an extension is
slower, the cycle goes on without its answer, and the late answer is dropped. The cycle then appends to the series
behind `Metrics` while the thread of the extension still reads them. So the extension must not keep the look or act on
it itself. Pods and the other fields of a look never change. Strategies are `domain.strategies.strategy.Strategy`.

Source: agent spec, 4.1, 10.1, 22.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koordcore.events.nodestate import NodeTopologyReported

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, HostApplication
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile


class Point(StrEnum):
    """Name of an extension point, as it appears in the texts and metrics of failures."""

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
    """Supplies CPU burst and memory QoS policies for pods that have no annotation with a policy of their own."""

    def cpu_burst(self, pod: AgentPod) -> str | None:
        """Return the JSON of the annotation koordinator.sh/cpuBurst for a pod; None for no policy."""
        ...

    def memory_qos(self, pod: AgentPod) -> str | None:
        """Return the JSON of the annotation koordinator.sh/memoryQOS for a pod; None for no policy."""
        ...


class StateKind(StrEnum):
    """Parts of the node's state: NodeSLO, all pods, NodeResourceTopology, labels and annotations of the node.

    If a part changes, the callbacks that extensions registered for it are called.
    """

    NODE_SLO = "NodeSLOSpec"
    """The effective NodeSLO as JSON."""
    ALL_PODS = "AllPods"
    """No object; the target contains the pods."""
    NODE_TOPOLOGY = "NodeTopology"
    """`CpuPools`: the CPUs of each kind of pods."""
    NODE_METADATA = "NodeMetadata"
    """Labels and annotations of the node."""


@dataclass(frozen=True, slots=True)
class Target:
    """The pods and host applications that are on the node when a callback is called."""

    pods: tuple[AgentPod, ...]
    host_applications: tuple[HostApplication, ...]


Callback = Callable[[StateKind, object, Target], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The inputs of an extension's collector or state: the pods of the node, and its cgroup files."""

    now_ms: int
    node: str
    layout: CgroupLayout
    cgroup_version: int  # 1 or 2
    pods: tuple[AgentPod, ...]
    host_applications: tuple[HostApplication, ...]  # Processes outside of Kubernetes that the NodeSLO names
    # Returns the text of a cgroup file by its v1 resource name, on either version. None if it is unreadable.
    read: Callable[[CgroupFile], str | None]


class Found(NamedTuple):
    """One value that an extension's collector measured."""

    metric: str  # Name of the value
    value: float
    of: str = ""  # UID of the pod or name of the object that it is about, or "" for the node


class Collector(Protocol):
    """Extension point: measures values that the agent itself does not measure.

    The values become time series (`metric_kinds.Kind.EXTENSION`).
    """

    @property
    def every_seconds(self) -> float:
        """Seconds between two collections, on the service's clock."""
        ...

    def collect(self, seen: Surroundings) -> Iterable[Found]:
        """Measure, and return the present values. It runs in its own thread, so it may take long."""
        ...


class State(Protocol):
    """Extension point: reads a state of the node. Strategies find the last value as `look.states[name]`."""

    @property
    def every_seconds(self) -> float:
        """Seconds between two reads, on the service's clock."""
        ...

    def read(self, seen: Surroundings) -> object:
        """Read and return the present state. It runs in its own thread, so it may take long."""
        ...


class PodCollector(StrEnum):
    """Groups of the agent's own collectors that visit each pod: usage, pressure and others.

    A pod filter can exclude pods from a group.
    """

    USAGE = "usage"
    """CPU, memory, throttling, NUMA pages. Usage of an omitted pod counts as usage of the system."""
    PRESSURE = "pressure"
    """PSI, waiting for CPU, memory, disks and the network."""
    CYCLES = "cycles"
    COLD_PAGES = "cold pages"


PodFilter = Callable[[AgentPod], bool]
"""Return whether a collector visits a pod. It is called once per version of the pod, and again after a failure."""

PodMetricFiller = Callable[[AgentPod, Metrics], object]
"""Return additional values of a pod for the report, as JSON; None for no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyAdditions:
    """Annotations and resources that a hook adds to the topology of the node.

    A hook must not replace what the agent itself reports.
    """

    # Annotations to add to the NodeResourceTopology.
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    # Name of a zone (`node-0`) -> resource -> amount, added to its capacity and allocatable.
    zone_resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])


TopologyHook = Callable[[NodeTopologyReported], TopologyAdditions]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A GET or POST request to a page that an extension serves on the agent's port."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """The answer of an HTTP handler of an extension to an `HttpRequest`."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


HttpHandler = Callable[[HttpRequest], HttpReply]

RunController = Callable[[], Awaitable[None]]
"""Coroutine function that runs in its own event loop until the agent stops."""

EvictPod = Callable[[AgentPod], bool]
"""Function that ends an evicted pod; False leaves the eviction as a request. All calls of a cycle share 10 s."""

JsonObject = Mapping[str, Any]
