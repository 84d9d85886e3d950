"""A node as the descheduler sees it: the object, what pods may use of it, and the usage in the latest report."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.annotations.node import NodeReservation, node_reservation, trim_allocatable
from koordcore.protocol.objects import Node, Taint
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.resources import Amounts, amount_of, clamped, parse_resources
from koordcore.values.timestamps import unix_seconds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodeView:
    """One version of a Node object with values computed from it (descheduler spec, 1.2, 4 (1))."""

    object: Node  # The node, with deprecated resource names replaced
    name: str
    # Amounts for pods: milli-cores for cpu, whole units for everything else. The reservation of the node's annotation
    # is subtracted.
    allocatable: Amounts
    capacity: Amounts  # Capacity of the whole node, in the same units
    reservation: NodeReservation  # The reservation in the node's annotation; empty if it is absent or invalid
    is_ready: bool  # Whether every condition Ready has status True. A node without such a condition is ready.

    @property
    def labels(self) -> dict[str, str]:
        return self.object.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.object.metadata.annotations

    @property
    def taints(self) -> list[Taint]:
        return self.object.spec.taints

    @property
    def is_unschedulable(self) -> bool:
        return self.object.spec.unschedulable


def node_view(node: Node) -> NodeView:
    """Raises InvalidInput: a quantity of the node is invalid."""
    status = node.status
    allocatable = rename_resources(status.allocatable, DEPRECATED)
    capacity = rename_resources(status.capacity, DEPRECATED)
    if allocatable is not status.allocatable or capacity is not status.capacity:
        status = msgspec.structs.replace(status, allocatable=allocatable, capacity=capacity)
        node = msgspec.structs.replace(node, status=status)
    reservation = node_reservation(node.metadata.annotations)
    free = trim_allocatable(parse_resources(allocatable), reservation)
    return NodeView(
        object=node,
        name=node.metadata.name,
        allocatable={name: amount_of(name, quantity) for name, quantity in free.items()},
        capacity={name: amount_of(name, quantity) for name, quantity in parse_resources(capacity).items()},
        reservation=reservation,
        is_ready=all(each.status == "True" for each in node.status.conditions if each.type == "Ready"),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodeMetric:
    """The latest usage report of a node (descheduler spec, 8.2)."""

    updated: float | None  # Unix seconds of the report; None if it has no valid time
    # Usage outside of pods: milli-cores for cpu, whole units for everything else.
    system: Amounts = field(default_factory=dict[str, int])
    # "namespace/name" of a pod -> its usage, in the same units.
    pods: Mapping[str, Amounts] = field(default_factory=dict[str, Amounts])
    position: int = 0  # Position of the report in the stream of observations; 0 if it is not from there

    def is_fresh(self, now: float, expiration: float) -> bool:
        """Whether the report is younger than `expiration` seconds at `now`."""
        return self.updated is not None and now - self.updated < expiration


def metric_of_report(report: NodeUsageReported, position: int) -> NodeMetric | None:
    """None if the node has not been measured yet."""
    if report.node_usage is None:
        return None
    return NodeMetric(
        updated=unix_seconds(report.updated_at) or None,
        system=_amounts(report.system_usage) if report.system_usage is not None else {},
        pods={f"{pod.namespace}/{pod.name}": _amounts(pod.usage) for pod in report.pods},
        position=position,
    )


def _amounts(usage: Usage) -> Amounts:
    return {"cpu": clamped(usage.cpu_milli), "memory": clamped(usage.memory_bytes)}
