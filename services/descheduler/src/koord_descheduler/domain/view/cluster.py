"""The cluster as one round sees it: nodes, pods and other objects at one moment, with indexes.

A view never changes. The views of its nodes and pods are shared between rounds, so that a round needs no work for
objects that did not change. Each index is built at its first use.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from koordcore.events.envelope import name_from_token
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.storage import PersistentVolumeClaim
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.migrations import RepackState
from koordcore.values.resources import Amounts

from koord_descheduler.domain.view.disruptions import Disruptions
from koord_descheduler.domain.view.nodes import NodeMetric, NodeView
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import WorkloadView

DEVICES: Final = "devices"
POD_GROUPS: Final = "podgroups"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInventory:
    """What room for waiting gangs is planned from. The objects are decoded only if a gang waits."""

    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    # Name of a node -> the pods and Reservations that hold its resources.
    ledgers: Mapping[str, NodeLedger] = field(default_factory=dict[str, NodeLedger])
    groups: Mapping[tuple[str, str], Mapping[str, Any]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, Any]]
    )
    # Id of a plan -> its state. Plans that ended long ago are absent.
    plans: Mapping[str, RepackState] = field(default_factory=dict[str, RepackState])


def gpu_inventory(
    state: ClusterState, devices: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]
) -> GpuInventory:
    """Copies of the indexes of a state, which later events do not change. Empty in a cluster without devices."""
    by_node = {device["metadata"]["name"]: device for device in devices}
    if not by_node:
        return GpuInventory()
    return GpuInventory(
        devices=by_node,
        ledgers={name_from_token(token): ledger for token, ledger in state.of_kind(NodeLedger).items()},
        groups={(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in groups},
        plans=dict(state.of_kind(RepackState)),
    )


@dataclass(frozen=True, slots=True)
class Occupancy:
    requested: Amounts  # Sum of their requests: milli-cores for cpu, whole units for everything else
    pods: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterView:
    """All objects that a round reads, as of one moment (descheduler spec, 1.2)."""

    now: float  # Unix seconds of the moment
    nodes: tuple[NodeView, ...]  # All nodes in the order in which rounds visit them
    pods: tuple[PodView, ...]  # All pods in the order in which rounds visit them
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    claims: Mapping[tuple[str, str], PersistentVolumeClaim] = field(
        default_factory=dict[tuple[str, str], PersistentVolumeClaim]
    )
    budgets: Mapping[str, list[PodDisruptionBudget]] = field(default_factory=dict[str, list[PodDisruptionBudget]])
    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])  # Name of a PriorityClass -> its value
    # Name of a node -> its latest usage report.
    metrics: Mapping[str, NodeMetric] = field(default_factory=dict[str, NodeMetric])
    migrating: Set[str] = frozenset()  # Uids of the pods with a migration job in flight, or whose eviction is requested
    # Uid of the controller of a pod -> its workload. Unknown and vanished workloads are absent.
    workloads: Mapping[str, WorkloadView] = field(default_factory=dict[str, WorkloadView])
    # Pods that are being taken from their workloads, whatever the cause.
    disruptions: Disruptions = field(default_factory=Disruptions)
    gpus: GpuInventory = field(default_factory=GpuInventory)  # Devices, gangs, and plans that make room for gangs

    @cached_property
    def caught_up(self) -> "ClusterView":
        """The cluster with usage reports that are corrected for pods which have moved since the reports.

        Reports are a minute apart, and rounds follow each other faster. A pod that has left a node, or that is about to
        leave it, does not count there any more. A pod that came counts with its usage on its former node, or, if that
        is unknown, with its requests.
        """
        known = {key: usage for metric in self.metrics.values() for key, usage in metric.pods.items()}
        return replace(
            self, metrics={name: self._caught_up(name, metric, known) for name, metric in self.metrics.items()}
        )

    def _caught_up(self, node: str, metric: NodeMetric, known: Mapping[str, Amounts]) -> NodeMetric:
        staying = [pod for pod in self.unfinished_on(node) if pod.uid not in self.migrating]
        if set(metric.pods) == {pod.key for pod in staying}:
            return metric
        pods = {pod.key: metric.pods.get(pod.key) or known.get(pod.key) or _requested(pod) for pod in staying}
        return replace(metric, pods=pods)

    @cached_property
    def node_by_name(self) -> Mapping[str, NodeView]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def pod_by_uid(self) -> Mapping[str, PodView]:
        return {pod.uid: pod for pod in self.pods}

    @cached_property
    def pod_by_key(self) -> Mapping[str, PodView]:
        return {pod.key: pod for pod in self.pods}

    @cached_property
    def _pods_by_node(self) -> Mapping[str, list[PodView]]:
        found: dict[str, list[PodView]] = {node.name: [] for node in self.nodes}
        for pod in self.pods:
            if pod.node:
                on_node = found.get(pod.node)
                if on_node is None:
                    found[pod.node] = [pod]
                else:
                    on_node.append(pod)
        return found

    @cached_property
    def _pods_by_owner(self) -> Mapping[str, list[PodView]]:
        found: dict[str, list[PodView]] = {}
        for pod in self.pods:
            for owner in pod.owners:
                found.setdefault(owner.uid, []).append(pod)
        return found

    @cached_property
    def _unfinished_by_node(self) -> Mapping[str, list[PodView]]:
        return {
            name: [pod for pod in pods if not pod.is_finished] if any(pod.is_finished for pod in pods) else pods
            for name, pods in self._pods_by_node.items()
        }

    @cached_property
    def _occupancies(self) -> dict[str, Occupancy]:
        return {}

    def pods_on(self, node: str) -> list[PodView]:
        """All pods of a node, finished ones included. The list must not be changed."""
        return self._pods_by_node.get(node, _NO_PODS)

    def unfinished_on(self, node: str) -> list[PodView]:
        """The list must not be changed."""
        return self._unfinished_by_node.get(node, _NO_PODS)

    def pods_of_owner(self, uid: str) -> list[PodView]:
        """All pods with this owner, finished and terminating ones included. The list must not be changed."""
        return self._pods_by_owner.get(uid, _NO_PODS)

    def occupancy(self, node: str) -> Occupancy:
        """Computed once per view."""
        known = self._occupancies.get(node)
        if known is None:
            pods = self.unfinished_on(node)
            known = self._occupancies[node] = Occupancy(total_requests(pods), len(pods))
        return known

    @cached_property
    def _unavailable(self) -> dict[WorkloadView, frozenset[str]]:
        return {}

    def unavailable(self, workload: WorkloadView) -> frozenset[str]:
        """Uids of the pods that are finished, terminating, not ready, or being evicted. Computed once per view."""
        known = self._unavailable.get(workload)
        if known is None:
            known = self._unavailable[workload] = frozenset(
                pod.uid for owner in workload.owners for pod in self.pods_of_owner(owner) if self.disruptions.takes(pod)
            )
        return known

    def missing(self, workload: WorkloadView) -> int:
        """Replicas of a workload that have no pod. 0 if `disruptions` does not count them."""
        existing = sum(len(self.pods_of_owner(owner)) for owner in workload.owners)
        return self.disruptions.missing(workload.replicas, existing)


_NO_PODS: list[PodView] = []


def _requested(pod: PodView) -> Amounts:
    """Requests for the resources that usage reports have."""
    return {name: pod.requests.get(name, 0) for name in (CPU, MEMORY)}


def total_requests(pods: Iterable[PodView]) -> Amounts:
    """Sum of requests: milli-cores for cpu, whole units for everything else."""
    return total_of(pod.requests for pod in pods)


def total_of(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total
