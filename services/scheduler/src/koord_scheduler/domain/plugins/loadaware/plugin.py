"""LoadAwareScheduling as a plugin, and its debug page. The rules are in the other modules of this folder.

Source: scheduler-core spec, 7, 14
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import cast

import numpy as np
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.objects import Node, Pod, PodCondition
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.values.resources import format_resources, quantity_of

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer
from koord_scheduler.domain.framework.node_points import Reads, RowFunction, RowStates
from koord_scheduler.domain.plugins.loadaware.assigned import AssignedPod, NodeSums, window_end
from koord_scheduler.domain.plugins.loadaware.columns import LoadColumns, NodeLoad
from koord_scheduler.domain.plugins.loadaware.metric import metric_of_report
from koord_scheduler.domain.plugins.loadaware.rules import PodLoad, node_facts, pod_load
from koord_scheduler.domain.plugins.resources.scores import RawScores
from koord_scheduler.domain.plugins.resources.single_rows import SharedScores


def describe_node(load: NodeLoad | None, args: LoadAwareSchedulingArgs) -> dict[str, object]:
    """Return the response of `/apis/v1/plugins/LoadAwareScheduling/node/<node>`: the pods and sums of one node. Empty
    for an unknown node. Pods are ordered by the time at which they were assigned (Unix seconds). Resources are
    quantities, names are namespace/name.
    """
    if load is None or (load.metric is None and not load.pods):
        return {}
    pods = sorted(load.pods, key=lambda pod: pod.assigned_at)
    view: dict[str, object] = {
        "pods": [
            {"timestamp": pod.assigned_at, "pod": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}
            for pod in pods
        ]
    }
    if load.metric is None or load.sums is None:
        return view
    resources, metric = args.resources, load.metric
    for name, vector in (
        ("prodUsage", load.sums.prod_usage),
        ("nodeDelta", load.sums.delta),
        ("prodDelta", load.sums.prod_delta),
        ("nodeEstimated", load.sums.estimated),
    ):
        amounts = {resource: quantity_of(resource, amount) for resource, amount in zip(resources, vector, strict=True)}
        view[name] = format_resources(amounts)

    def contributing(part: Callable[[NodeSums], Sequence[int]]) -> list[str]:
        names: list[str] = []
        for pod in pods:
            alone = NodeSums(metric, args, resources)
            alone.add(pod)
            if any(part(alone)):
                names.append(f"{pod.namespace}/{pod.name}")
        return sorted(names)

    view["nodeDeltaPods"] = contributing(lambda sums: sums.delta)
    view["prodDeltaPods"] = contributing(lambda sums: sums.prod_delta)
    view["nodeEstimatedPods"] = contributing(lambda sums: sums.estimated)
    return view


class LoadAwareScheduling(RawScores):
    """The plugin LoadAwareScheduling: refuses nodes with high usage and prefers nodes with low usage. It reads usage
    reports, and estimates the usage of pods placed since the last report.
    """

    name = "LoadAwareScheduling"
    extension_points = (
        points.FILTER,
        points.ROW_FILTER,
        points.SCORE,
        points.ROW_SCORE,
        points.ROW_STATES,
        points.READ_POD,
        points.FOLLOW_NODES,
        points.FOLLOW_PODS,
        points.OBSERVE,
        points.CLOCK,
        points.PAGES,
    )
    reads = Reads.LOAD

    def __init__(self, nodes: NodeColumns, args: LoadAwareSchedulingArgs) -> None:
        self.nodes = nodes
        self.load = LoadColumns(args, touched=nodes.load)
        self._reports: dict[str, NodeUsageReported] = {}
        self._forgetting = Forgetting()
        self._shared = SharedScores()

    def read(self, pod: Pod) -> Hashable:
        return pod_load(pod, self.load.args)

    # --- what happens ------------------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node) -> None:
        """Record the allocatable amounts and thresholds of a node. A report that came before the node counts now."""
        is_new = row not in self.load
        self.load.on_node(row, node_facts(node))
        report = self._reports.get(node.metadata.name)
        if is_new and report is not None:
            self.load.on_metric(row, metric_of_report(report))

    def drop_node(self, row: int) -> None:
        """Forget the load of a deleted node. Its last report stays, until `observe` forgets it. So the result is the
        same whether a report or the deletion of its node is read first. Otherwise a decision could not be recomputed.
        """
        self.load.off_node(row)

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """Record the last usage report of a node. If there are many, forget the reports of nodes that do not exist.
        Return True if thresholds are set, since then it may admit waiting pods.
        """
        if self._forgetting.is_due(len(self._reports)):
            self._reports = {name: each for name, each in self._reports.items() if self.nodes.row(name) is not None}
            self._forgetting.searched(len(self._reports))
        self._reports[node] = report
        row = self.nodes.row(node)
        if row is not None and row in self.load:
            self.load.on_metric(row, metric_of_report(report))
        return self.load.has_limits

    def pages(self) -> Mapping[str, PageAnswer]:
        """Return path -> function that answers, for the page `node/{node}`: the measured and estimated load of a node.
        The page is {} for an unknown node.
        """

        def load(asked: Mapping[str, str]) -> object:
            row = self.nodes.row(asked["node"])
            return {} if row is None else describe_node(self.load.node_load(row), self.load.args)

        return {"node/{node}": load}

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether any node has a threshold for pods of this class. Pods of DaemonSets have none."""
        return self.load.is_limiting(self._load_of(pod_class))

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Add the estimated usage of a pod to its node, until reports contain what it really uses. A Reservation uses
        nothing. Its owners do.
        """
        if pod_info.pod is None or is_reserve_pod(pod_info.pod):
            return
        if pod_info.pod_class is not None and row in self.load:
            load = cast("PodLoad", pod_info.pod_class.aspects[self.name])
            self.load.on_pod(row, assigned(pod_info, pod_info.pod, load, self.load.args))

    def gave(self, row: int, pod_info: PodInfo) -> None:
        self.load.off_pod(pod_info.uid)

    def advance(self, now: float) -> None:
        self.load.advance(now)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse nodes whose load with the pod would exceed a threshold. None if every node passes."""
        codes = self.load.filter_codes(self._load_of(pod), rows)
        return None if codes is None else codes.astype(np.int64)

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function from a node's position to its code of `filter`: 0 passes, others see `reasons`. None for
        pods of DaemonSets, which no node ever refuses.
        """
        return self.load.row_filter(self._load_of(pod))

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return (self.load.reason(code),)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return False for all nodes: preemption may help, because evicted pods lower the load."""
        return np.zeros(len(rows), np.bool_)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        return self.load.scores(self._load_of(pod), rows)

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        load = self._load_of(pod)
        score = self.load.row_score(load)
        return None if score is None else self._shared.of(nodes, load, lambda: score)

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates:
        """Return a state that is equal for all classes with equal estimated usage, so that they share all results."""
        return RowStates(self._load_of(pod), self.row_filter(pod, nodes), self.row_score(pod, nodes))

    def _load_of(self, pod: PodClass) -> PodLoad:
        return cast("PodLoad", pod.aspects[self.name])


def assigned(pod_info: PodInfo, pod: Pod, load: PodLoad, args: LoadAwareSchedulingArgs) -> AssignedPod:
    """Return the record that LoadAwareScheduling keeps of a pod on a node. The pod counts from the time of its
    condition PodScheduled. Without this condition, it counts from the time at which this scheduler first counted it
    there.
    """
    conditions = pod.status.conditions
    scheduled_at = _since(conditions, "PodScheduled") if conditions else None
    since = pod_info.since if scheduled_at is None else scheduled_at
    return AssignedPod(
        uid=pod_info.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        is_prod=load.is_prod,
        estimate=load.estimate,
        assigned_at=since,
        window_end=window_end(pod, args, since, _since(conditions, "Initialized") if conditions else None),
    )


def _since(conditions: list[PodCondition], kind: str) -> float | None:
    for condition in conditions:
        if condition.type == kind and condition.status == "True" and condition.last_transition_time:
            try:
                return datetime.fromisoformat(condition.last_transition_time).timestamp()
            except ValueError:
                return None
    return None
