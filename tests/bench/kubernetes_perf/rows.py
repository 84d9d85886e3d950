"""The rows about throughput: which pods, which pods and objects before them, and which sides can place them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.kubernetes_perf.api import PODS
from bench.kubernetes_perf.objects import (
    APART,
    GANG,
    RATHER_APART,
    RATHER_SPREAD,
    RATHER_TOGETHER,
    SPREAD,
    TOGETHER,
    Json,
    Make,
    devices,
    gpu_share,
    in_gang,
    large_node,
    owner,
    plain,
    reserved,
    small_node,
    topology,
    whole_cores,
)
from koordcore.protocol import keys

RESERVATIONS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
DEVICES: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One workload. Counts are those at scale 1.

    Attributes:
        key: Name on the command line.
        title: Description in the results.
        nodes: Number of nodes.
        node: Makes a node from its number.
        of_node: Objects that exist once for each node: (collection, maker from the node's number).
        reservations: Number of Reservations that have a node before the first measured pod.
        initial: Number of pods that are bound before the first run of the row, and stay until its last one.
        make_initial: Makes such a pod.
        is_filled: Whether the initial pods are created with a node, as many on each, because placing them takes long.
        measured: Number of measured objects.
        make: Makes a measured object.
        path: Collection of the measured objects: pods or Reservations.
        ratio: Target as a multiple of kube-scheduler's rate; None if kube-scheduler cannot place these objects.
        target: Target in objects per second, or None.
        group: Measured objects that belong together.
        annotation: Annotation that the last pod must have at the end, because the row is about it; "" for none.
    """

    key: str
    title: str
    measured: int
    make: Make
    nodes: int = 1_000
    node: Callable[[int], Json] = small_node
    of_node: Sequence[tuple[str, Callable[[int], Json]]] = ()
    reservations: int = 0
    initial: int = 0
    make_initial: Make = plain
    is_filled: bool = False
    path: str = PODS
    ratio: float | None = None
    target: float | None = None
    group: int = 1
    annotation: str = ""

    def on(self, nodes: int) -> "Row":
        """Return the row with another number of nodes, and initial pods in the same proportion."""
        initial = round(self.initial * nodes / self.nodes)
        return replace(self, nodes=nodes, initial=initial, title=f"{self.title}, {nodes:,} nodes")


PLAIN: Final = Row(key="plain", title="plain pods", measured=2_000, make=plain, ratio=1.0)
BASIC: Final = Row(
    key="basic", title="plain pods, 5,000 nodes", nodes=5_000, initial=1_000, measured=10_000, make=plain, ratio=1.0
)
LARGE: Final = Row(
    key="large", title="50,000 plain pods, 5,000 nodes", nodes=5_000, measured=50_000, make=plain, ratio=1.0
)
CONSTRAINED: Final[Sequence[Row]] = (
    Row(
        key="affinity",
        title="required pod affinity, one domain",
        nodes=5_000,
        initial=5_000,
        make_initial=TOGETHER,
        measured=1_000,
        make=TOGETHER,
        ratio=3.0,
    ),
    Row(
        key="anti-affinity",
        title="required pod anti-affinity by hostname",
        nodes=5_000,
        initial=1_000,
        make_initial=APART,
        measured=1_000,
        make=APART,
        ratio=3.0,
    ),
    Row(
        key="preferred-affinity",
        title="preferred pod affinity by hostname",
        nodes=5_000,
        initial=5_000,
        make_initial=RATHER_TOGETHER,
        measured=1_000,
        make=RATHER_TOGETHER,
        ratio=3.0,
    ),
    Row(
        key="preferred-anti-affinity",
        title="preferred pod anti-affinity by hostname",
        nodes=5_000,
        initial=5_000,
        make_initial=RATHER_APART,
        measured=1_000,
        make=RATHER_APART,
        ratio=3.0,
    ),
    Row(
        key="spread",
        title="topology spread over zones, skew 5",
        nodes=5_000,
        initial=5_000,
        measured=2_000,
        make=SPREAD,
        ratio=3.0,
    ),
    Row(
        key="preferred-spread",
        title="preferred topology spread over zones",
        nodes=5_000,
        initial=5_000,
        measured=2_000,
        make=RATHER_SPREAD,
        ratio=3.0,
    ),
)
"""The workloads `5000Nodes` of scheduler_perf. With fewer nodes, there are fewer initial pods."""
FULL: Final[Sequence[Row]] = tuple(
    replace(
        row,
        key=f"{row.key}-full",
        title=f"{row.title}, 30 pods a node",
        initial=30 * row.nodes,
        make_initial=plain,
        is_filled=True,
        measured=1_000,
    )
    for row in CONSTRAINED
    if row.key in ("anti-affinity", "spread", "preferred-spread")
)
"""Rows in which kube-scheduler is not slow with one pod a node, in a cluster that is in use."""

ROWS: Final[Sequence[Row]] = (
    PLAIN,
    # Twice the rates of koord-scheduler on an idle machine of this kind; ten times for GPU shares (issue text).
    Row(key="gangs", title="gangs of 8", measured=2_000, make=in_gang, group=GANG, target=458),
    Row(
        key="reservations",
        title="Reservations that get a node",
        measured=2_000,
        make=reserved,
        path=RESERVATIONS,
        target=414,
    ),
    Row(
        key="owners",
        title="owner pods of Reservations",
        reservations=2_000,
        measured=2_000,
        make=owner,
        annotation=keys.RESERVATION_ALLOCATED,
        target=232,
    ),
    Row(
        key="cpusets",
        title="LSR pods that bind two whole cores",
        node=large_node,
        of_node=((TOPOLOGIES, topology),),
        measured=2_000,
        make=whole_cores,
        annotation=keys.RESOURCE_STATUS,
        target=394,
    ),
    Row(
        key="gpu-shares",
        title="pods that ask for 20 to 80 percent of a GPU",
        node=large_node,
        of_node=((TOPOLOGIES, topology), (DEVICES, devices)),
        measured=2_000,
        make=gpu_share,
        annotation=keys.DEVICE_ALLOCATED,
        target=400,
    ),
)
ON_5000_NODES: Final[Sequence[Row]] = (BASIC, *CONSTRAINED, *FULL, LARGE)
"""Rows that take an hour together; none of them runs by default."""
BY_KEY: Final = {row.key: row for row in (*ROWS, *ON_5000_NODES)}
