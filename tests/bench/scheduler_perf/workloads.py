"""The rows of the table: which nodes, which pods first, which pods measured, what happens beside, what must hold after.

A `Workload` makes everything from a scale; counts of the table are those at scale 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.scheduler_perf.beside import Beside, large_pods, load_reports, preemptors
from bench.scheduler_perf.checks import (
    Check,
    gangs_were_whole,
    in_zones,
    named_node,
    nothing,
    one_per_node,
    preempted,
    quotas_and_loads_were_read,
    refused_some,
    spread_over_zones,
)
from bench.scheduler_perf.cluster import node_events, pod_events, sealed
from bench.scheduler_perf.objects import (
    HOSTNAME,
    ZONE,
    ZONES,
    PodTemplate,
    elastic_quota,
    namespace,
    node,
    node_affinity,
    node_name,
    pod_affinity,
    spread,
)
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.objects import CustomObjectObserved, NamespaceObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Pod

MakePod = Callable[[str, int], Pod]
"""A pod of a uid and its number among its like."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One row.

    initial     (how many, which) placed before the clock starts
    measured    how many are measured; each is made by `pod`
    gate        what kube-scheduler's project asks of itself, pods/s; None: it has no such workload
    target      what we ask, pods/s; None: for information
    group       measured pods that belong together
    zones       given out to the nodes in turn
    before      further objects, from the number of nodes
    beside      what goes on while pods are measured
    check       whether the placements are what the workload is about
    giant_node  the first node has room for everything
    node        a node by its number; None: the small node of the table
    configuration  of the scheduler, for decisions in one process without a log; "": as shipped
    engine_target  decisions/s in one process without a log where the row `engine` gives 40,000; None: not asked
    """

    key: str
    title: str
    measured: int
    pod: MakePod
    nodes: int = 5000
    group: int = 1
    initial: Sequence[tuple[int, MakePod]] = ()
    gate: float | None = None
    target: float | None = None
    zones: Sequence[str] = ZONES
    before: Callable[[int], list[NewEvent]] = lambda _nodes: []
    beside: Beside | None = None
    check: Check = nothing
    giant_node: bool = False
    node: Callable[[int], Node] | None = None
    configuration: str = ""
    engine_target: float | None = None

    def at(self, scale: float) -> "Sized":
        """The workload with its counts times a scale."""
        return Sized(self, scale)


@dataclass(frozen=True)
class Sized:
    """A workload of a size."""

    workload: Workload
    scale: float

    def count(self, number: int) -> int:
        """A count of the table at this scale."""
        return max(1, round(number * self.scale))

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.count(self.workload.nodes)

    @property
    def measured(self) -> int:
        """Pods that are measured."""
        size = self.workload.group
        return max(1, self.count(self.workload.measured) // size) * size

    def objects(self) -> list[NewEvent]:
        """Nodes and what else is there before any pod."""
        if self.workload.node is not None:
            return node_events(map(self.workload.node, range(self.nodes))) + self.workload.before(self.nodes)
        nodes = [node(number, zones=self.workload.zones) for number in range(self.nodes)]
        if self.workload.giant_node:
            nodes[0] = node(0, zones=self.workload.zones, giant=True)
        return node_events(nodes) + self.workload.before(self.nodes)

    def initial_pods(self) -> list[NewEvent]:
        """Pods that are placed first."""
        return pod_events(self._initial())

    def measured_pods(self) -> list[NewEvent]:
        """Pods that are measured."""
        return pod_events(self.workload.pod(f"m-{number:06d}", number) for number in range(self.measured))

    def _initial(self) -> Iterator[Pod]:
        for group, (count, make) in enumerate(self.workload.initial):
            for number in range(self.count(count)):
                yield make(f"i-{group}-{number:06d}", number)


def plain(cpu: str = "100m", **spec: Any) -> MakePod:
    """Pods that are alike."""
    template = PodTemplate(cpu=cpu, **spec)
    return lambda uid, _number: template.pod(uid)


BASIC = plain()
TWO_NAMESPACES = ("sched-0", "sched-1")


def coloured(colour: str, kind: str, key: str, *, required: bool) -> MakePod:
    """Pods of a colour with one term of affinity to their own colour, in two namespaces in turn."""
    affinity = pod_affinity(kind, colour, key, required=required, namespaces=TWO_NAMESPACES)
    template = PodTemplate(labels={"color": colour}, affinity=affinity)
    return lambda uid, number: template.pod(uid, namespace=TWO_NAMESPACES[number % 2])


APART = coloured("green", "podAntiAffinity", HOSTNAME, required=True)
TOGETHER_IN_ZONE = coloured("blue", "podAffinity", ZONE, required=True)
RATHER_TOGETHER = coloured("red", "podAffinity", HOSTNAME, required=False)
RATHER_APART = coloured("yellow", "podAntiAffinity", HOSTNAME, required=False)


def _spread(unsatisfiable: str) -> MakePod:
    return plain(labels={"color": "blue"}, topologySpreadConstraints=spread("blue", unsatisfiable=unsatisfiable))


def _apart_over_namespaces() -> Callable[[str], MakePod]:
    selector = {"matchLabels": {"team": "devops"}}
    affinity = pod_affinity("podAntiAffinity", "green", HOSTNAME, required=True, selector=selector)
    template = PodTemplate(labels={"color": "green"}, affinity=affinity)

    def in_namespaces(prefix: str) -> MakePod:
        if prefix == "measured":
            return lambda uid, _number: template.pod(uid, namespace=prefix)
        return lambda uid, number: template.pod(uid, namespace=f"{prefix}-{number % 100}")

    return in_namespaces


APART_OVER_NAMESPACES = _apart_over_namespaces()


def _team_namespaces(_nodes: int) -> list[NewEvent]:
    names = ["measured", *(f"team-{number}" for number in range(100))]
    return [
        sealed(AggregateRef("namespace", name), NamespaceObserved(object=namespace(name, {"team": "devops"})))
        for name in names
    ]


def _to_node(number_of: Callable[[int], int]) -> MakePod:
    """Pods that name their node as a DaemonSet's do."""

    def make(uid: str, number: int) -> Pod:
        requirement = {"key": "metadata.name", "operator": "In", "values": [node_name(number_of(number))]}
        return PodTemplate(affinity=node_affinity(requirement, fields=True)).pod(uid)

    return make


def _gangs(size: int) -> MakePod:
    template = PodTemplate()

    def make(uid: str, number: int) -> Pod:
        written = {keys.GANG_NAME: f"gang-{number // size}", keys.GANG_MIN_AVAILABLE: str(size)}
        return template.pod(uid, annotations=written)

    return make


GANG = 8
LEAVES = 100
PARENTS = 10


def _leaf(number: int) -> str:
    return f"leaf-{number % LEAVES}"


def _in_leaves() -> MakePod:
    template = PodTemplate()
    return lambda uid, number: template.pod(uid, namespace=_leaf(number), labels={keys.QUOTA_NAME: _leaf(number)})


IN_LEAVES = _in_leaves()


def _quota_tree(nodes: int) -> list[NewEvent]:
    """Ten parents of ten leaves each, whose minima add up to the cluster."""
    cpu, memory = 4 * nodes // LEAVES, 32 * nodes // LEAVES
    tree = [
        elastic_quota(
            f"parent-{number}",
            parent=keys.ROOT_QUOTA,
            is_parent=True,
            cpu=cpu * LEAVES // PARENTS,
            memory_gib=memory * LEAVES // PARENTS,
        )
        for number in range(PARENTS)
    ]
    tree += [
        elastic_quota(_leaf(number), parent=f"parent-{number % PARENTS}", is_parent=False, cpu=cpu, memory_gib=memory)
        for number in range(LEAVES)
    ]
    return [
        sealed(
            custom_ref("elasticquotas", quota["metadata"]["namespace"], quota["metadata"]["name"]),
            CustomObjectObserved(object=quota),
        )
        for quota in tree
    ]


BASIC_LONG = Workload(
    key="basic-long",
    title="basic, long",
    initial=((5000, BASIC),),
    measured=50_000,
    pod=BASIC,
    gate=810,
    target=8000,
)

WORKLOADS: Sequence[Workload] = (
    Workload(key="basic", title="basic", initial=((1000, BASIC),), measured=10_000, pod=BASIC, gate=680, target=6800),
    BASIC_LONG,
    Workload(
        key="anti-affinity",
        title="required pod anti-affinity by hostname",
        initial=((1000, APART),),
        measured=2000,
        pod=APART,
        gate=60,
        target=600,
        check=one_per_node,
    ),
    Workload(
        key="affinity",
        title="required pod affinity by zone (one zone)",
        zones=("zone-1",),
        initial=((5000, TOGETHER_IN_ZONE),),
        measured=5000,
        pod=TOGETHER_IN_ZONE,
        gate=35,
        target=350,
    ),
    Workload(
        key="preferred-affinity",
        title="preferred pod affinity by hostname",
        initial=((5000, RATHER_TOGETHER),),
        measured=5000,
        pod=RATHER_TOGETHER,
        gate=90,
        target=900,
    ),
    Workload(
        key="preferred-anti-affinity",
        title="preferred pod anti-affinity by hostname",
        initial=((5000, RATHER_APART),),
        measured=5000,
        pod=RATHER_APART,
        gate=90,
        target=900,
    ),
    Workload(
        key="node-affinity",
        title="required node affinity by zone",
        initial=((5000, BASIC),),
        measured=10_000,
        pod=plain(affinity=node_affinity({"key": ZONE, "operator": "In", "values": ["zone-1", "zone-2"]})),
        gate=220,
        target=2200,
        check=in_zones("zone-1", "zone-2"),
    ),
    Workload(
        key="spread",
        title="topology spread, required, zone, skew 5",
        initial=((5000, BASIC),),
        measured=5000,
        pod=_spread("DoNotSchedule"),
        gate=460,
        target=4600,
        check=spread_over_zones(5),
    ),
    Workload(
        key="preferred-spread",
        title="topology spread, preferred, zone",
        initial=((5000, BASIC),),
        measured=5000,
        pod=_spread("ScheduleAnyway"),
        gate=340,
        target=3400,
    ),
    Workload(
        key="namespace-selector",
        title="anti-affinity with namespace selector, 100 namespaces, 6,000 nodes",
        nodes=6000,
        before=_team_namespaces,
        initial=((4000, APART_OVER_NAMESPACES("team")),),
        measured=2000,
        pod=APART_OVER_NAMESPACES("measured"),
        gate=24,
        target=240,
        check=one_per_node,
    ),
    Workload(
        key="mixed",
        title="mixed (2,000 each of basic and the four affinity kinds first)",
        zones=("zone-1",),
        initial=tuple((2000, make) for make in (BASIC, TOGETHER_IN_ZONE, APART, RATHER_TOGETHER, RATHER_APART)),
        measured=5000,
        pod=BASIC,
        gate=140,
        target=1400,
    ),
    Workload(
        key="unschedulable",
        title="unschedulable churn: large high-priority pods at 5/s beside",
        initial=((20_000, BASIC),),
        measured=10_000,
        pod=BASIC,
        gate=600,
        target=6000,
        beside=large_pods,
        check=refused_some,
    ),
    Workload(
        key="preemption",
        title="preemption churn: preemptors at 5/s beside, 4 low pods on each node",
        initial=((20_000, plain("900m")),),
        measured=5000,
        pod=BASIC,
        gate=570,
        target=5700,
        beside=preemptors,
        check=preempted,
    ),
    Workload(
        key="daemonset",
        title="daemonset-like (node name affinity), 15,000 nodes",
        nodes=15_000,
        measured=30_000,
        pod=_to_node(lambda number: number // 2),
        gate=1100,
        target=11_000,
        check=named_node,
    ),
    Workload(
        key="daemonset-one-node",
        title="daemonset-like, all pods to one of 15,000 nodes",
        nodes=15_000,
        giant_node=True,
        measured=30_000,
        pod=_to_node(lambda _number: 0),
        gate=1100,
    ),
    Workload(
        key="gangs",
        title="gangs of 8 with min-available 8, 1,000 nodes",
        nodes=1000,
        group=GANG,
        measured=8000,
        pod=_gangs(GANG),
        target=2000,
        check=gangs_were_whole,
    ),
    Workload(
        key="full",
        title="full default profile, load metrics of all nodes moving, quota tree of 100 leaves",
        before=_quota_tree,
        initial=((20_000, IN_LEAVES),),
        measured=10_000,
        pod=IN_LEAVES,
        target=5000,
        beside=load_reports,
        check=quotas_and_loads_were_read,
    ),
)

BY_KEY: Mapping[str, Workload] = {workload.key: workload for workload in WORKLOADS}
