"""Shapes of the read API's answers: what the routes return and what `/openapi.json` describes, in one definition.

cpu in milli-cores, memory in bytes, times RFC 3339. `moment` says which position and time an answer is about.
"""

from typing import Any

import msgspec
from koordcore.stories.device_cards import Card
from koordcore.stories.hardware import NodeHardware, Owner

from koord_projector.domain.timeline import TimelineEntry
from koord_projector.shell.queries.moments import Moment


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the projector. `first_at`, `last_at`: times of the oldest and newest fact, "" without one."""

    cluster: str
    position: int
    head: int
    lag_events: int
    lag_seconds: float
    trouble: str
    observations: int
    explanations: int
    first_at: str
    last_at: str


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in numbers. `nodes_reporting`: nodes whose usage is in the `*_used` sums."""

    moment: Moment
    nodes: int
    nodes_reporting: int
    cpu_milli: int
    memory_bytes: int
    gpus: int
    cpu_requested: int
    memory_requested: int
    gpus_requested: int
    cpu_used: int
    memory_used: int
    be_cpu_used: int
    batch_cpu: int
    batch_memory: int
    batch_cpu_requested: int
    batch_memory_requested: int
    pods: dict[str, int]


class NodeItem(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the list; `*_used` and `reported_at` are null when no report is known.

    Attributes:
        gpu_cards: Healthy GPUs of its Device object; 0 without one.
        gpu_share_used: Shares of GPUs that pods hold, in percent of one card.
        gpu_share_stranded: What is free on healthy GPUs that are partly used, in percent of one card.
    """

    name: str
    seq: int
    unschedulable: bool
    host: str
    cpu_milli: int
    memory_bytes: int
    gpus: int
    cpu_requested: int
    memory_requested: int
    gpus_requested: int
    batch_cpu: int
    batch_memory: int
    batch_cpu_requested: int
    batch_memory_requested: int
    pods: int
    be_pods: int
    pods_running: int
    be_quota_us: int
    cpu_used: int | None
    memory_used: int | None
    be_cpu_used: int | None
    be_memory_used: int | None
    reported_at: str | None
    gpu_cards: int = 0
    gpu_share_used: int = 0
    gpu_share_stranded: int = 0


class NodesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes by name."""

    moment: Moment
    nodes: list[NodeItem]


class PodItem(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of the list. `message` is the last explanation of a pending pod, "" without one."""

    uid: str
    namespace: str
    name: str
    phase: str
    qos: str
    priority_class: str
    node: str
    requests: dict[str, int]
    submitted_seq: int
    submitted_at: str
    placed_at: str
    started_at: str
    message: str = ""
    attempts: int = 0


class PodsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of pods, newest submission first.

    Attributes:
        total: Pods that match the filter; counts: the same by phase.
        cursor: For the next page, null on the last one.
    """

    moment: Moment
    total: int
    counts: dict[str, int]
    pods: list[PodItem]
    cursor: str | None


class UsagePoint(msgspec.Struct, frozen=True):
    """One report of a node's agent in short."""

    reported_at: str
    cpu_used: int
    memory_used: int
    be_cpu_used: int
    be_memory_used: int
    system_cpu_used: int


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was decided about a node or done on it, with its terms (`body` as in the log)."""

    seq: int
    type: str
    occurred_at: str
    actor: str
    trace_id: str
    body: dict[str, Any]


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node with everything that explains it.

    Attributes:
        pods: On it, newest placement first, at most 500.
        overcommit: How its batch resources were computed, newest first.
        suppression: Changes of the best-effort class's quota, newest first.
        protection: Evictions, interference, knobs and stops of the agent, newest first.
        usage: Newest last.
    """

    moment: Moment
    node: NodeItem
    object: dict[str, Any] | None
    pods: list[PodItem]
    overcommit: list[NodeEvent]
    suppression: list[NodeEvent]
    protection: list[NodeEvent]
    usage: list[UsagePoint]


class HardwareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Sockets, zones, cores, switches and devices of one node, with the pods that hold them."""

    moment: Moment
    hardware: NodeHardware


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node.

    Attributes:
        owners: Pods that hold a part of them.
        problems: Entries of the Device object that are ignored, with the reason.
    """

    node: str
    cards: list[Card]
    owners: list[Owner]
    problems: list[str]


class DevicesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of nodes with devices, by name. `after` asks for the next page, null on the last one."""

    moment: Moment
    nodes: list[NodeDevices]
    after: str | None


class PodUsagePoint(msgspec.Struct, frozen=True):
    """Usage of a pod in one report of its node."""

    reported_at: str
    cpu_used: int
    memory_used: int


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One pod and its life. `object` is null when the pod is gone."""

    moment: Moment
    pod: PodItem
    object: dict[str, Any] | None
    timeline: list[TimelineEntry]
    usage: list[PodUsagePoint]


class PendingReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why nodes were excluded: for how many pending pods, on how many nodes at most and in all."""

    plugin: str
    reason: str
    pods: int
    nodes_max: int


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why pods are pending.

    Attributes:
        examined: Number of the oldest pending pods whose explanations were counted.
        judged: Number of these that have an explanation.
        attempted: Number of these for which nodes were searched. A gated pod has an explanation without an attempt.
    """

    moment: Moment
    pending: int
    examined: int
    judged: int
    attempted: int
    reasons: list[PendingReason]
    pods: list[PodItem]


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. `body` is null in lists unless it was asked for."""

    seq: int
    kind: str
    id: str
    type: str
    schema: int
    occurred_at: str
    event_id: str
    causation_id: str
    correlation_id: str
    actor: str
    epoch: int
    based_on: int
    trace_id: str
    summary: str
    body: dict[str, Any] | None = None


class EventsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of facts, newest first. `before` asks for the next page, null when nothing older matches."""

    position: int
    events: list[EventItem]
    before: int | None


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """State of one aggregate. `state` is null when it did not exist (yet, or any more)."""

    moment: Moment
    kind: str
    id: str
    state: dict[str, Any] | None


class ObjectsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of aggregates of one kind, by id. `after` asks for the next page, null on the last one."""

    moment: Moment
    kind: str
    objects: list[ObjectAnswer]
    after: str | None


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over time, columns of equal length: `time` in seconds since 1970.

    Usage has its own times, evenly spaced; null: no report speaks for that time.
    """

    time: list[int]
    columns: dict[str, list[int]]
    usage_time: list[int]
    usage: dict[str, list[int | None]]


class RebuildAnswer(msgspec.Struct, frozen=True):
    """The rebuild was accepted."""

    accepted: bool


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Why a request was refused: field, rule, value."""

    error: str
    field: str = ""
    rule: str = ""
    value: str = ""
