"""A tour of the extension points: three plugins that together implement every one, and count how often each is asked.

`TourOfNodes` judges nodes, `TourOfSelectors` filters by node selector, `TourOfCycle` takes part in everything else. The
last one concerns only pods with a label, so all other pods cost it nothing.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from koord_scheduler.domain.cluster.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.cross_node_points import CrossNodeFilter, CrossNodeScore
from koord_scheduler.domain.framework.cycle_points import Offers, Scored, Views
from koord_scheduler.domain.framework.fact_points import ClusterEvent, EventKind
from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, PageAnswer, Status
from koord_scheduler.domain.framework.node_points import Reads, RowFunction, RowStates
from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Next, Rejection, Wait
from koord_scheduler.domain.framework.plugin import ExtensionPoint
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch, Room
from koord_scheduler.domain.framework.topology_hints import NO_HINTS, Hints, TopologyHintsPlugin, Zones
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.objects import Node, Pod
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, Allocation

TOUR: Final = "example.com/tour"
"""Label of the pods that `TourOfCycle` concerns; `refused` and `late` name what it does with them."""


class TourOfNodes:
    """A filter and a score by load, for many rows and for one; counts its pods on each row."""

    name = "TourOfNodes"
    extension_points: tuple[ExtensionPoint[Any], ...] = (
        points.FILTER,
        points.ROW_FILTER,
        points.AMOUNTS_FILTER,
        points.SCORE,
        points.ROW_SCORE,
        points.ROW_STATES,
        points.FOLLOW_NODES,
        points.FOLLOW_PODS,
        points.SETTLE,
        points.TOPOLOGY_HINTS,
        points.TOPOLOGY_MANAGER,
    )
    reads = Reads.LOAD
    normalizes = False

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """See `FilterPlugin.filter`: every node passes."""
        self.calls["filter"] += 1
        return None

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """See `RowFilterPlugin.row_filter`."""
        self.calls["row_filter"] += 1
        return None

    def checks_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        """See `AmountsFilterPlugin.checks_of`: no amount is compared."""
        self.calls["checks_of"] += 1
        return ()

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """See `FilterPlugin.reasons`."""
        return ()

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """See `FilterPlugin.unresolvable`."""
        return np.zeros(len(rows), np.bool_)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """See `ScorePlugin.score`: all nodes are equal."""
        self.calls["score"] += 1
        return None

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """See `RowScorePlugin.row_score`."""
        self.calls["row_score"] += 1
        return None

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates | None:
        """See `RowStatesPlugin.row_states`: all classes share all results."""
        self.calls["row_states"] += 1
        return RowStates()

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """See `ScorePlugin.normalize`."""
        return raw

    def put_node(self, row: int, node: Node) -> None:
        """See `NodeFollower.put_node`."""
        self.calls["put_node"] += 1

    def drop_node(self, row: int) -> None:
        """See `NodeFollower.drop_node`."""

    def settle(self) -> None:
        """See `SettlingPlugin.settle`."""
        self.calls["settle"] += 1

    def may_refuse(self, pod_class: PodClass) -> bool:
        """See `PodFollower.may_refuse`."""
        return False

    def took(self, row: int, pod_info: PodInfo) -> None:
        """See `PodFollower.took`."""
        self.calls["took"] += 1

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """See `PodFollower.gave`."""

    def use_hints_of(self, providers: Sequence[TopologyHintsPlugin]) -> None:
        """See `TopologyManagerPlugin.use_hints_of`: it merges nothing."""

    def gives_hints(self, pod: PodClass) -> bool:
        """See `TopologyHintsPlugin.gives_hints`: its pods accept any NUMA zones."""
        return False

    def topology_hints(self, pod: PodClass, row: int) -> Hints:
        """See `TopologyHintsPlugin.topology_hints`."""
        return NO_HINTS

    def refused_within(self, pod: PodClass, row: int, zones: Zones | None) -> str | None:
        """See `TopologyHintsPlugin.refused_within`."""
        return None

    def state_of(self, row: int) -> Hashable:
        """See `TopologyHintsPlugin.state_of`: all nodes are alike to it."""
        return None


class TourOfSelectors(TourOfNodes):
    """Refuses nodes outside the pod's node selector, by the shape of nodes."""

    name = "TourOfSelectors"
    extension_points = (
        points.FILTER,
        points.TOLERATION_FILTER,
        points.NODE_SELECTOR_FILTER,
        points.READ_POD,
        points.READ_SHAPE,
    )
    reads = Reads.SHAPE
    by_tolerations = True
    refused = 1

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """See `FilterPlugin.filter`."""
        self.calls["filter"] += 1
        codes = np.zeros(len(rows), np.int64)
        for key, value in pod.node_selector.items():
            column = nodes.label(key)
            codes |= np.array([text != value for text in column.texts], np.int64)[column.values[rows]]
        return codes

    def read(self, pod: Pod) -> Hashable:
        """See `PodReader.read`."""
        self.calls["read"] += 1
        return pod.metadata.labels.get(TOUR)


class TourOfCycle:
    """Takes part in the cycle of pods with the label, in what surrounds it, and in what the log says."""

    name = "TourOfCycle"
    extension_points: tuple[ExtensionPoint[Any], ...] = tuple(
        point
        for point in points.EXTENSION_POINTS
        if point not in (*TourOfNodes.extension_points, *TourOfSelectors.extension_points)
    )
    kinds = frozenset({"nodespec"})
    wakes_on = frozenset({EventKind.NODE})

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.events = 0

    # --- which pods, and when ----------------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        """See `ConcernedPlugin.concerns`."""
        self.calls["concerns"] += 1
        return TOUR in pod.metadata.labels

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """See `PreEnqueuePlugin.pre_enqueue`."""
        self.calls["pre_enqueue"] += 1
        return None

    def next_pod(self) -> Next:
        """See `NextPodPlugin.next_pod`."""
        self.calls["next_pod"] += 1
        return Next()

    def hint_version(self) -> int:
        """See `QueueingHintsPlugin.hint_version`."""
        self.calls["hint_version"] += 1
        return 0

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """See `QueueingHintsPlugin.queueing_hint`."""
        self.calls["queueing_hint"] += 1
        return True

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def transform(self, pod: Pod) -> Pod:
        """See `PodTransformer.transform`."""
        self.calls["transform"] += 1
        return pod

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """See `BeforePreFilterPlugin.before_pre_filter`."""
        self.calls["before_pre_filter"] += 1
        return None

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """See `PreFilterPlugin.pre_filter`: pods that are `refused` never come to the nodes."""
        self.calls["pre_filter"] += 1
        is_refused = pod.pod is not None and pod.pod.metadata.labels[TOUR] == "refused"
        return Rejection(plugin=self.name, message="the tour is over") if is_refused else None

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """See `AfterPreFilterPlugin.after_pre_filter`."""
        self.calls["after_pre_filter"] += 1
        return None

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """See `FindOneNodePlugin.find_one_node`."""
        self.calls["find_one_node"] += 1
        return None

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """See `BeforeFilterPlugin.before_filter`."""
        self.calls["before_filter"] += 1
        return None

    def version(self) -> int:
        """See `CrossNodeFilterPlugin.version`."""
        self.calls["version"] += 1
        return 0

    def filter_for(self, subject: Subject) -> CrossNodeFilter | None:
        """See `CrossNodeFilterPlugin.filter_for`."""
        self.calls["filter_for"] += 1
        return None

    def score_for(self, subject: Subject) -> CrossNodeScore | None:
        """See `CrossNodeScorePlugin.score_for`."""
        self.calls["score_for"] += 1
        return None

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """See `BeforeScorePlugin.before_score`."""
        self.calls["before_score"] += 1
        return None

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """See `ResizePodPlugin.resize_pod`."""
        self.calls["resize_pod"] += 1
        return None

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """See `ReservePlugin.reserve`."""
        self.calls["reserve"] += 1
        return NOTHING

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """See `ReservePlugin.unreserve`."""
        self.calls["unreserve"] += 1
        return ()

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """See `PermitPlugin.permit`: pods that are `late` lose their node again."""
        self.calls["permit"] += 1
        is_late = pod.pod is not None and pod.pod.metadata.labels[TOUR] == "late"
        return Rejection(plugin=self.name, message="the tour has left") if is_late else Allow()

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """See `PreBindPlugin.pre_bind`."""
        self.calls["pre_bind"] += 1
        return {"example.com/toured": node}

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """See `PostBindPlugin.post_bind`."""
        self.calls["post_bind"] += 1
        return ()

    # --- no node -----------------------------------------------------------------------------------------------------

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """See `PostFilterPlugin.post_filter`: searches by the rules below, which spare everyone."""
        self.calls["post_filter"] += 1
        return search.on_one_node(self)

    def spares_everyone(self, pod: PodRecord) -> bool:
        """See `VictimRules.spares_everyone`."""
        return True

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """See `VictimRules.may_preempt`."""
        return False

    def room_for(self, pod: PodRecord) -> Room | None:
        """See `VictimRules.room_for`."""
        return None

    def most_candidates(self, nodes: int) -> int:
        """See `VictimRules.most_candidates`."""
        return nodes

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """See `AfterPostFilterPlugin.after_post_filter`."""
        self.calls["after_post_filter"] += 1
        return Failure()

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        """See `BeforeFailurePlugin.before_failure`."""
        self.calls["before_failure"] += 1
        return False

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """See `AfterFailurePlugin.after_failure`."""
        self.calls["after_failure"] += 1

    # --- the log, the nodes' reports, time, users --------------------------------------------------------------------

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """See `FoldingPlugin.apply`."""
        self.calls["apply"] += 1
        self.events += 1
        return False

    def facts(self) -> bytes:
        """See `FoldingPlugin.facts`."""
        self.calls["facts"] += 1
        return codec.encode(self.events)

    def restore(self, facts: bytes) -> None:
        """See `FoldingPlugin.restore`."""
        self.calls["restore"] += 1
        self.events = codec.decode(facts, int)

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """See `ObservingPlugin.observe`."""
        self.calls["observe"] += 1
        return False

    def advance(self, now: float) -> None:
        """See `ClockPlugin.advance`."""
        self.calls["advance"] += 1

    def control_due(self) -> float | None:
        """See `ControllerPlugin.control_due`."""
        return 0.0

    def control(self, now: float) -> Sequence[Eviction | Status]:
        """See `ControllerPlugin.control`."""
        self.calls["control"] += 1
        return ()

    def pages(self) -> Mapping[str, PageAnswer]:
        """See `PagesPlugin.pages`: how often each method was called."""
        self.calls["pages"] += 1
        return {"calls": lambda _: dict(self.calls)}
