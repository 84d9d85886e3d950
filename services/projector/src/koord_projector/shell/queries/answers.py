"""Types of the read API's answers. Routes return them, and `/openapi.json` describes them.

Units are milli-cores and bytes; times are RFC 3339. `moment` is the position and time of an answer.
"""

from typing import Any

import msgspec
from koordcore.stories.device_cards import Card
from koordcore.stories.hardware import NodeHardware, Owner

from koord_projector.domain.timeline import TimelineEntry
from koord_projector.shell.queries.moments import Moment


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the projector. `first_at`, `last_at`: times of the oldest and newest fact; "" without facts."""

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
    """Totals of the cluster. `nodes_reporting`: number of nodes whose usage is in the `*_used` sums."""

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
    """One node of the list. `*_used` and `reported_at` are null if no report is known.

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
    """List of nodes by name."""

    moment: Moment
    nodes: list[NodeItem]


class PodItem(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of the list. `message` is the last explanation of a pending pod; "" without one."""

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
        total: Number of pods that match the filter. `counts` has the same by phase.
        cursor: Cursor of the next page; null on the last one.
    """

    moment: Moment
    total: int
    counts: dict[str, int]
    pods: list[PodItem]
    cursor: str | None


class UsagePoint(msgspec.Struct, frozen=True):
    """Short form of one usage report."""

    reported_at: str
    cpu_used: int
    memory_used: int
    be_cpu_used: int
    be_memory_used: int
    system_cpu_used: int


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a node or an action on it, with its terms (`body` as in the log)."""

    seq: int
    type: str
    occurred_at: str
    actor: str
    trace_id: str
    body: dict[str, Any]


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node with its details.

    Attributes:
        pods: Pods on it, newest placement first, at most 500.
        overcommit: Computations of its batch resources, newest first.
        suppression: Changes of the best-effort class's quota, newest first.
        protection: Evictions, interference, knobs and stops of the agent, newest first.
        usage: Usage reports, newest last.
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
    """One pod and its life. `object` is null if the pod was deleted."""

    moment: Moment
    pod: PodItem
    object: dict[str, Any] | None
    timeline: list[TimelineEntry]
    usage: list[PodUsagePoint]


class PendingReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why nodes were excluded.

    It has the number of pending pods, and the numbers of nodes at most and in all.
    """

    plugin: str
    reason: str
    pods: int
    nodes_max: int


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons why pods are pending.

    Attributes:
        examined: Number of the oldest pending pods whose explanations were counted.
        judged: Number of these pods with an explanation.
        attempted: Number of these pods for which nodes were searched. A gated pod has an explanation without an
            attempt.
    """

    moment: Moment
    pending: int
    examined: int
    judged: int
    attempted: int
    reasons: list[PendingReason]
    pods: list[PodItem]


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. In lists, `body` is null unless requested."""

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
    """A page of facts, newest first. `before` is the cursor of the next page; null if there is none."""

    position: int
    events: list[EventItem]
    before: int | None


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """State of one aggregate. `state` is null if it did not exist at the moment."""

    moment: Moment
    kind: str
    id: str
    state: dict[str, Any] | None


class ObjectsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of aggregates of one kind, by id. `after` is the cursor of the next page; null on the last one."""

    moment: Moment
    kind: str
    objects: list[ObjectAnswer]
    after: str | None


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over time as columns of equal length. `time` is in unix seconds.

    Usage has its own, evenly spaced times. null: no report is valid for that time.
    """

    time: list[int]
    columns: dict[str, list[int]]
    usage_time: list[int]
    usage: dict[str, list[int | None]]


class RebuildAnswer(msgspec.Struct, frozen=True):
    """The rebuild request was accepted."""

    accepted: bool


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Reason why a request was refused: field, rule, value."""

    error: str
    field: str = ""
    rule: str = ""
    value: str = ""
