"""Nodes as of a moment: their newest figures, the newest reports of their agents, and all archived reports in pages."""

import zlib
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.envelope import name_from_token, name_token, trace_id_of
from koordcore.ports.clock import Clock
from koordcore.stories.usage_archive import ArchivedReport, ReportsAnswer
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.fold.archives import EXPIRED_AFTER_INTERVALS
from koord_projector.fold.figures import NodeFigures
from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import HOST, Moment, normal_time, state_at
from koord_projector.read.pods import PodItem, PodsQuery, list_pods

_NODES = """
    SELECT v.*, o.cpu_used, o.memory_used, o.be_cpu_used, o.be_memory_used, o.reported_at, o.interval_seconds,
           o.stored_at_ns
      FROM {names} AS n
      CROSS JOIN LATERAL (
           SELECT * FROM node_versions WHERE token = n.token AND seq <= :position ORDER BY seq DESC LIMIT 1
      ) AS v
      LEFT JOIN LATERAL (
           SELECT * FROM observations WHERE token = n.token AND stored_at_ns <= :until_ns
            ORDER BY stored_at_ns DESC, seq DESC LIMIT 1
      ) AS o ON true
     WHERE v."exists"
     ORDER BY v.token
"""
_ALL_NODES = text(_NODES.format(names="node_names"))
_ONE_NODE = text(_NODES.format(names="(SELECT CAST(:token AS text) AS token)"))
_USAGE = text(
    """
    SELECT reported_at, cpu_used, memory_used, be_cpu_used, be_memory_used, system_cpu_used FROM observations
     WHERE token = :token AND stored_at_ns <= :until_ns ORDER BY stored_at_ns DESC, seq DESC LIMIT :count
    """
)
_NODE_EVENTS = text(
    """
    SELECT seq, type, occurred_at, actor, traceparent, body FROM events
     WHERE kind = :kind AND id = :token AND seq <= :position AND type = ANY(:types) ORDER BY seq DESC LIMIT :count
    """
)
PROTECTION = [
    "PodsEvictedByAgent",
    "ContainersOomKilled",
    "InterferenceDetected",
    "InterferenceEnded",
    "KnobsChanged",
    "AgentStopped",
]
_SHOWN_EVENTS = 50
_SHOWN_PODS = 500
SHOWN_REPORTS = 120
_QUOTA_US_PER_MILLI: Final = 100  # One core is a quota of 100,000 us per 100 ms


class NodeItem(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a list, in milli-cores and bytes.

    The `..._used` fields are null without a usage report, and if the newest report had expired at a past moment.

    Attributes:
        seq: Position from which these figures hold.
        host: "linux" or "simulated"; "" if the agent never started.
        conditions: The conditions that are bad, separated by blanks, such as "NotReady DiskPressure"; "" if none is.
        taints: Its taints as KEY=VALUE:EFFECT, separated by blanks.
        cpu_milli: Allocatable cpu. `memory_bytes` and `gpus` (`nvidia.com/gpu`) are allocatable, too.
        reported_at: Time of the newest usage report as its agent says, even if it had expired; null without one. The
            newest one is the last one that the log stored.
        silent_seconds: Age of the newest usage report if it is over five report intervals; else null.
        cpu_requested: Requests of pods that are not best effort. `memory_requested` and `gpus_requested` likewise.
        batch_cpu: Amount that the manager offers to best-effort pods; 0 if nothing is published.
        be_pods: Number of pods with batch resources.
        be_quota_us: CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited.
        be_held_back: Whether this quota is below what its best-effort pods request.
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
    conditions: str
    taints: str
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
    be_held_back: bool
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


class NodesQuery(Query, frozen=True, kw_only=True):
    at: At = ""


class NodesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that exist at one moment, by name."""

    moment: Moment
    nodes: list[NodeItem]


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


class NodeQuery(Query, frozen=True, kw_only=True):
    name: Annotated[Text, about("Name of the node.")]
    at: At = ""


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


_FIGURES = tuple(name for name in NodeFigures.__struct_fields__ if name in NodeItem.__struct_fields__)


async def read_nodes(reading: Reading, _query: NodesQuery) -> NodesAnswer:
    nodes = await list_nodes(reading.connection, reading.moment, reading.now, reading.clock)
    return NodesAnswer(moment=reading.moment, nodes=nodes)


async def list_nodes(connection: AsyncConnection, moment: Moment, now: datetime, clock: Clock = HOST) -> list[NodeItem]:
    """The nodes that exist at the moment, by name. `now` gives the age of reports if the moment is the present."""
    rows = await connection.execute(_ALL_NODES, {"position": moment.position, "until_ns": moment.until_ns})
    return [_item(row, moment, now, clock) for row in rows]


async def read_node(reading: Reading, query: NodeQuery) -> NodeAnswer | None:
    """None if it does not exist at the moment."""
    connection, moment = reading.connection, reading.moment
    token = name_token(query.name)
    asked = {"token": token, "position": moment.position, "until_ns": moment.until_ns}
    row = (await connection.execute(_ONE_NODE, asked)).first()
    if row is None:
        return None
    item = _item(row, moment, reading.now, reading.clock)
    spec = await state_at(connection, moment, "nodespec", token)
    usage = (await connection.execute(_USAGE, {**asked, "count": SHOWN_REPORTS})).all()
    return NodeAnswer(
        moment=moment,
        node=item,
        object=None if spec is None else spec.get("object"),
        pods=(await list_pods(reading, PodsQuery(node=item.name, limit=_SHOWN_PODS))).pods,
        overcommit=await _events(connection, moment, "nodepolicy", token, ["NodeOvercommitComputed"]),
        suppression=await _events(connection, moment, "nodestate", token, ["BeCpuSuppressed", "BeCpuReleased"]),
        protection=await _events(connection, moment, "nodestate", token, PROTECTION),
        usage=[UsagePoint(*point) for point in reversed(usage)],
    )


async def _events(
    connection: AsyncConnection, moment: Moment, kind: str, token: str, types: list[str]
) -> list[NodeEvent]:
    asked = {"kind": kind, "token": token, "position": moment.position, "types": types, "count": _SHOWN_EVENTS}
    return [
        NodeEvent(
            seq=row.seq,
            type=row.type,
            occurred_at=row.occurred_at,
            actor=row.actor,
            trace_id=trace_id_of(row.traceparent),
            body=msgspec.json.decode(row.body),
        )
        for row in await connection.execute(_NODE_EVENTS, asked)
    ]


def _item(row: Row[Any], moment: Moment, now: datetime, clock: Clock) -> NodeItem:
    silent = _silent_seconds(row, moment, now, clock)
    reports = row.reported_at is not None and (moment.live or silent is None)
    return NodeItem(
        name=name_from_token(row.token),
        seq=row.seq,
        be_held_back=is_held_back(row.be_quota_us, row.batch_cpu_requested),
        cpu_used=row.cpu_used if reports else None,
        memory_used=row.memory_used if reports else None,
        be_cpu_used=row.be_cpu_used if reports else None,
        be_memory_used=row.be_memory_used if reports else None,
        reported_at=row.reported_at,
        silent_seconds=silent,
        **{name: getattr(row, name) for name in _FIGURES},
    )


def is_held_back(quota_us: int, requested: int) -> bool:
    """`quota_us` per 100 ms, negative: unlimited; `requested` in milli-cores."""
    return 0 <= quota_us < requested * _QUOTA_US_PER_MILLI


def _silent_seconds(row: Row[Any], moment: Moment, now: datetime, clock: Clock) -> int | None:
    """Age of the newest report since it was stored, if it has expired; else, or without one, None."""
    if row.reported_at is None or row.interval_seconds <= 0 or not (moment.live or moment.stored_at_ns):
        return None
    at = now.timestamp() if moment.live else clock.at_host(moment.stored_at_ns / 1e9)
    age = at - clock.at_host(row.stored_at_ns / 1e9)
    return int(age) if age > row.interval_seconds * EXPIRED_AFTER_INTERVALS else None


_PAGE: Final = text(
    """
    SELECT token, reported_at, seq, body FROM observations
     WHERE (reported_at, token) > (:since, :after) ORDER BY reported_at, token LIMIT :limit
    """
)


class ReportsQuery(Query, frozen=True, kw_only=True):
    since: Annotated[Text, about("Only from this RFC 3339 time on.")] = ""
    after: Annotated[Text, about("Of the reports with exactly this time, only those of nodes after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Reports per page.")] = 100


async def read_reports(reading: Reading, query: ReportsQuery) -> ReportsAnswer:
    """The bodies are as stored."""
    since = normal_time(query.since, "since") if query.since else ""
    asked = {"since": since, "after": query.after, "limit": query.limit}
    rows = await reading.connection.execute(_PAGE, asked)
    return ReportsAnswer(
        reports=[
            ArchivedReport(
                node=row.token,
                reported_at=row.reported_at,
                seq=row.seq,
                body=msgspec.Raw(zlib.decompress(row.body)),
            )
            for row in rows
        ]
    )
