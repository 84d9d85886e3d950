"""The record of one pod: facts of the log and the API, and our own decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec
from koordcore.events.node_ledger import PodOnNode, pod_on_node
from koordcore.events.pod import UnhealthyDevice
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.cluster.equivalence_classes import PodSort, Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import Demand, NodeColumns

_FINISHED: Final = ("Succeeded", "Failed")


class Phase(Enum):
    """State of a pod in the scheduler: waiting, assumed, placed, being released, bound by others, or not ours."""

    OTHERS = auto()
    """Not ours to place: it belongs to another scheduler, is finished, or is invalid."""
    QUEUED = auto()
    """In the queue."""
    ASSUMED = auto()
    """We chose a node, and the log has not confirmed it."""
    PLACED = auto()
    """The log states that it has a node."""
    RELEASING = auto()
    """Its release is on its way to the log."""
    BOUND = auto()
    """The API states that it has a node, and our log has no placement of it."""


@dataclass(slots=True, kw_only=True, eq=False)
class PodRecord:
    """The scheduler's record of one pod: its object, its facts in the log, and the scheduler's own decisions."""

    uid: str
    namespace: str = ""
    name: str = ""
    # Its object; None if the API deleted it or never reported it, so that only its placement is known.
    pod: Pod | None = None
    subject: Subject | None = None  # Its subject; None without `pod`, or if its requests are invalid
    sort: PodSort | None = None  # See `PodSort`; None if `subject` is None
    # Its profile (`Frameworks.framework_of`); None without a spec, or if it belongs to another scheduler.
    framework: object | None = None
    phase: Phase = Phase.OTHERS
    trigger: str = ""  # Id of the event that queued it last: the cause of its next placement
    spec_event: str = ""  # Id of the last event of `podspec.<uid>`
    submitted_at: str = ""  # RFC 3339 time of its submission
    traceparent: str = ""  # Trace of its submission
    tracestate: str = ""
    # Position in the log of the last known event of `pod.<uid>`, which the next append expects; 0 if there is none.
    seq: int = 0
    node: str = ""  # Node on which the log has placed it; "" for none
    bound_node: str = ""  # Node on which it runs according to the API; "" for none
    # Node in the append about the pod that is in progress (phase ASSUMED or RELEASING); "" for none.
    work_node: str = ""
    # Node of its last nomination that has ended, while its status may still name the node because of it; "" for none.
    left_node: str = ""
    refolds: int = 0  # Number of consecutive appends about the pod that the log refused
    bind_failed: int = 0  # Position of the placement that the API server could not carry out; 0 for none
    bind_failures: int = 0  # Number of its placements that the API server could not carry out
    # What its object requests, if plugins have changed that; else None.
    untransformed: dict[str, int] | None = None
    unhealthy: tuple[UnhealthyDevice, ...] = ()  # Its devices that are unhealthy by the last event about them
    # Unhealthy devices whose event is larger than the log accepts; None if the log refused none.
    unstorable: tuple[UnhealthyDevice, ...] | None = None
    known_since: float = 0.0  # Unix seconds at which the scheduler first saw its object
    placed_at: float = 0.0  # Unix seconds of its last placement, assumed or not; 0.0 for none

    @property
    def priority(self) -> int:
        """0 if its object is unknown."""
        return self.pod.spec.priority or 0 if self.pod is not None else 0

    @property
    def is_settled(self) -> bool:
        """Whether the pod has a node that it keeps for now. The log may have yet to hear of its new amounts there."""
        if self.phase is Phase.ASSUMED:
            return bool(self.node) and self.work_node == self.node
        return self.phase in (Phase.PLACED, Phase.BOUND)

    def pod_info(self, allocation: Allocation = NOTHING) -> PodInfo:
        """Pod as it counts on a node with its own requests and this allocation. Its class and kind must be known."""
        assert self.subject is not None, f"pod {self.uid} has no spec that can be read"
        return PodInfo(
            self.uid,
            self.subject.pod_class.demand,
            self.subject.pod_class,
            self.subject.kind,
            self.pod,
            self.priority,
            self.placed_at or self.known_since,
            allocation,
        )

    def pod_info_without_object(self, demand: Demand, allocation: Allocation = NOTHING) -> PodInfo:
        """Pod as it counts on a node if its object was deleted or cannot be read. `demand`: what the log gave it."""
        since = self.placed_at or self.known_since
        return PodInfo(self.uid, demand, priority=self.priority, since=since, allocation=allocation)


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in _FINISHED


def is_alive(pod: Pod) -> bool:
    """Return whether the pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)


_DEFAULTS: Final = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}


def on_node(uid: str, pod: Pod, sort: PodSort, allocation: Allocation = NOTHING) -> PodOnNode:
    """In the form of the ledger event, which the node's agent reads. Equal pods share one computation in `sort`.
    `pod_on_node` computes the same without a cache, too slowly for thousands of placements per second.
    """
    meta, qos_class = pod.metadata, pod.status.qos_class
    known = sort.on_node.get(qos_class)
    if known is None:
        known = sort.on_node[qos_class] = pod_on_node(uid, pod)
    return msgspec.structs.replace(known, uid=uid, namespace=meta.namespace, name=meta.name, allocation=allocation)


def demand_of(nodes: NodeColumns, requests: Mapping[str, int]) -> Demand:
    """Of a pod whose `requests` (milli-cores, bytes, whole units) are known only from the log."""
    return nodes.demand(requests, {**_DEFAULTS, **requests})


def pod_info_with(
    nodes: NodeColumns, pod: PodRecord, requests: Mapping[str, int], allocation: Allocation = NOTHING
) -> PodInfo:
    """`requests` are what it takes: different from its own if it was resized. Its class and kind must be known."""
    assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
    info = pod.pod_info(allocation)
    if pod.subject.pod_class.requests != requests:
        info = msgspec.structs.replace(info, demand=demand_of(nodes, requests))
    return info
