"""Types of the read API's answers. Routes return them, and `/openapi.json` describes them.

Units are milli-cores and bytes; times are RFC 3339. `moment` is the position and time of an answer.
"""

from typing import Any

import msgspec
from koordcore.stories.device_cards import Card
from koordcore.stories.hardware import NodeHardware, Owner

from koord_projector.read.moments import Moment
from koord_projector.read.pending import PendingReason
from koord_projector.read.timeline import TimelineEntry


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `/api/status`: the position up to which the projector has folded the log, and its lag.

    Attributes:
        position: Position of the newest committed fact.
        head: Position of the newest fact in the log.
        lag_events: Number of facts that are not committed yet.
        lag_seconds: Age of the newest committed fact if there are newer ones; else 0.
        trouble: Reason why the fold has stopped; "" while it runs.
        observations: Position up to which observations are archived.
        explanations: Position up to which explanations are archived.
        first_at: RFC 3339 time of the oldest fact; `last_at`: of the newest one. Both are "" without facts.
        now: RFC 3339 time of the answer, on the clock of the run.
    """

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
    now: str


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the cluster at one moment, in milli-cores and bytes: sums over the nodes that exist.

    Attributes:
        cpu_milli: Sum of allocatable cpu. Memory, `gpus` and the other sums are those of the fields of `NodeItem`.
        nodes_reporting: Number of nodes whose newest usage report has not expired; of `nodes_silent`, it has.
        reservations: Number of Reservations that hold a node.
        cpu_unused_reserved: CPU that they hold and no pod uses; contained in `cpu_requested`. The other `..._reserved`
            fields likewise.
        pods: Phase -> number of pods.
    """

    moment: Moment
    nodes: int
    nodes_reporting: int
    nodes_silent: int
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
    reservations: int
    cpu_unused_reserved: int
    memory_unused_reserved: int
    gpus_unused_reserved: int
    pods: dict[str, int]


class NodeItem(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a list, in milli-cores and bytes.

    The `..._used` fields are null without a usage report, and if the newest report had expired at a past moment.

    Attributes:
        seq: Position from which these figures hold.
        host: "linux" or "simulated"; "" if the agent never started.
        cpu_milli: Allocatable cpu. `memory_bytes` and `gpus` (`nvidia.com/gpu`) are allocatable, too.
        reported_at: Time of the newest usage report, even if it had expired; null without one.
        silent_seconds: Age of the newest usage report if it is over five report intervals; else null.
        cpu_requested: Requests of pods that are not best effort. `memory_requested` and `gpus_requested` likewise.
        batch_cpu: Amount that the manager offers to best-effort pods; 0 if nothing is published.
        be_pods: Number of pods with batch resources.
        be_quota_us: CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited.
        gpu_cards: Healthy GPUs of its Device object; 0 without one.
        gpu_share_used: Sum of the shares of GPUs that pods hold, in percent of one GPU.
        gpu_share_stranded: Sum of the free shares on healthy GPUs that are partly used, in percent of one GPU.
        reservations: Number of Reservations on it.
        cpu_unused_reserved: CPU that Reservations hold and no pod uses; contained in `cpu_requested`.
            `memory_unused_reserved` and `gpus_unused_reserved` likewise.
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
    silent_seconds: int | None = None
    gpu_cards: int = 0
    gpu_share_used: int = 0
    gpu_share_stranded: int = 0
    reservations: int = 0
    cpu_unused_reserved: int = 0
    memory_unused_reserved: int = 0
    gpus_unused_reserved: int = 0


class NodesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that exist at one moment, by name."""

    moment: Moment
    nodes: list[NodeItem]


class PodItem(msgspec.Struct, frozen=True, kw_only=True):
    """One pod in a list.

    Attributes:
        requests: Resource -> amount: milli-cores for cpu, whole units for everything else.
        phase: A `domain.pods.Phase`; "gone" for a pod that does not exist any more at the moment (not in lists).
        message: Message of the last explanation of a pending pod; "" without one.
        attempts: Number of the last explained attempt to place a pending pod; 0 without one, and for other pods.
    """

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
    """A page of pods at one moment, newest submission first.

    Attributes:
        total: Number of pods that match the filter.
        counts: Phase -> number of these pods.
        cursor: Cursor of the next page; null on the last one.
    """

    moment: Moment
    total: int
    counts: dict[str, int]
    pods: list[PodItem]
    cursor: str | None


class UsagePoint(msgspec.Struct, frozen=True):
    """Usage of a node in one report, in milli-cores and bytes. `be_...` is the part of best-effort pods."""

    reported_at: str
    cpu_used: int
    memory_used: int
    be_cpu_used: int
    be_memory_used: int
    system_cpu_used: int


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about a node: a decision of the manager or an action of the agent. `body` is the body in the log."""

    seq: int
    type: str
    occurred_at: str
    actor: str
    trace_id: str
    body: dict[str, Any]


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment, with its pods, decisions, actions and usage.

    Attributes:
        object: The Node object; null if it was deleted.
        pods: Pods on it, newest submission first, at most 500.
        overcommit: Computations of its batch resources, newest first, at most 50.
        suppression: Changes of the CFS quota of best-effort pods, newest first, at most 50.
        protection: Evictions, interference, written kernel files and stops of the agent, newest first, at most 50.
        usage: The newest 120 usage reports, newest last.
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
    """The hardware of one node at one moment, from sockets to devices, with the pods that hold it."""

    moment: Moment
    hardware: NodeHardware


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node, with the pods that hold them.

    Attributes:
        cards: The devices.
        owners: Pods that hold a part of them.
        problems: One sentence for each entry of the Device object that was ignored.
    """

    node: str
    cards: list[Card]
    owners: list[Owner]
    problems: list[str]


class DevicesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of nodes with devices at one moment, by name.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    nodes: list[NodeDevices]
    after: str | None


class PodUsagePoint(msgspec.Struct, frozen=True):
    """Usage of a pod in one report of its node, in milli-cores and bytes."""

    reported_at: str
    cpu_used: int
    memory_used: int


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One pod at one moment, with its life up to then.

    Attributes:
        object: The pod object; null if the pod was deleted.
        timeline: Events in its life, oldest first. Their number is limited (`queries.pods.pod_life`).
        usage: Usage since it was placed, in the newest 120 reports of its node, oldest first.
    """

    moment: Moment
    pod: PodItem
    object: dict[str, Any] | None
    timeline: list[TimelineEntry]
    usage: list[PodUsagePoint]


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons why pods are pending at one moment.

    Attributes:
        pending: Number of pending pods.
        examined: Number of the oldest pending pods whose explanations were counted.
        judged: Number of these pods with an explanation.
        attempted: Number of these pods for which nodes were searched. A gated pod has an explanation without an
            attempt.
        reasons: Reasons, the most frequent one first.
        pods: The oldest 200 of these pods, oldest first.
    """

    moment: Moment
    pending: int
    examined: int
    judged: int
    attempted: int
    reasons: list[PendingReason]
    pods: list[PodItem]


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the log. In lists, `body` is null unless the request asks for bodies.

    Attributes:
        seq: Position of the fact. `kind` and `id` name its aggregate.
        based_on: Position up to which its writer had folded the log; `epoch` is the term of that writer.
        summary: The fact in one line.
    """

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
    """A page of facts, newest first.

    Attributes:
        position: Position of the newest committed fact.
        before: Value of the parameter `before` for the next page; null if there is none. A page with few or no facts
            may have a next page.
    """

    position: int
    events: list[EventItem]
    before: int | None


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one aggregate at one moment. `state` is null if the aggregate did not exist."""

    moment: Moment
    kind: str
    id: str
    state: dict[str, Any] | None


class ObjectsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of aggregates of one kind at one moment, by id.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    kind: str
    objects: list[ObjectAnswer]
    after: str | None


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the cluster over time, as columns on two time axes. CPU in milli-cores, memory in bytes.

    Attributes:
        time: Unix seconds of each row of `columns`, ascending; not evenly spaced.
        columns: Name (`cpu_milli`, `cpu_requested`, `batch_cpu`, `pods_pending`, ...) -> values, aligned with `time`.
        usage_time: Unix seconds at which each usage interval ends, evenly spaced.
        usage: `cpu`, `memory`, `be_cpu` (best-effort pods) -> values, aligned with `usage_time`; null: no report.
    """

    time: list[int]
    columns: dict[str, list[int]]
    usage_time: list[int]
    usage: dict[str, list[int | None]]


class RebuildAnswer(msgspec.Struct, frozen=True):
    """Answer to a request to delete the tables and fold the log again."""

    accepted: bool


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The reason why a request was refused. `field`, `rule` and `value` are "" unless a parameter is invalid."""

    error: str
    field: str = ""
    rule: str = ""
    value: str = ""
