"""Nodes as of a moment: their newest figures, the newest reports of their agents, and all archived reports in pages."""

import zlib
from datetime import datetime
from typing import Any, Final

import msgspec
from koordcore.events.envelope import name_from_token, name_token, trace_id_of
from koordcore.events.observation import NodeUsageReported
from koordcore.stories.usage_archive import ArchivedReport, ReportsAnswer
from koordcore.values.timestamps import unix_seconds
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.fold.archives import EXPIRED_AFTER_INTERVALS
from koord_projector.read.answers import NodeAnswer, NodeEvent, NodeItem, PodUsagePoint, UsagePoint
from koord_projector.read.moments import Moment
from koord_projector.read.objects import state_at
from koord_projector.read.pods import pods_on_node

_NODES = """
    SELECT v.*, o.cpu_used, o.memory_used, o.be_cpu_used, o.be_memory_used, o.reported_at, o.interval_seconds
      FROM {names} AS n
      CROSS JOIN LATERAL (
           SELECT * FROM node_versions WHERE token = n.token AND seq <= :position ORDER BY seq DESC LIMIT 1
      ) AS v
      LEFT JOIN LATERAL (
           SELECT * FROM observations WHERE token = n.token AND reported_at <= :until
            ORDER BY reported_at DESC LIMIT 1
      ) AS o ON true
     WHERE v."exists"
     ORDER BY v.token
"""
_ALL_NODES = text(_NODES.format(names="node_names"))
_ONE_NODE = text(_NODES.format(names="(SELECT CAST(:token AS text) AS token)"))
_USAGE = text(
    """
    SELECT reported_at, cpu_used, memory_used, be_cpu_used, be_memory_used, system_cpu_used FROM observations
     WHERE token = :token AND reported_at <= :until ORDER BY reported_at DESC LIMIT :count
    """
)
_REPORTS = text(
    """
    SELECT reported_at, body FROM observations
     WHERE token = :token AND reported_at <= :until AND reported_at >= :since ORDER BY reported_at DESC LIMIT :count
    """
)
_NODE_EVENTS = text(
    """
    SELECT seq, type, occurred_at, actor, traceparent, body FROM events
     WHERE kind = :kind AND id = :token AND seq <= :position AND type = ANY(:types) ORDER BY seq DESC LIMIT :count
    """
)
PROTECTION = ["PodsEvictedByAgent", "InterferenceDetected", "InterferenceEnded", "KnobsChanged", "AgentStopped"]
_SHOWN_EVENTS = 50
_SHOWN_REPORTS = 120
_decode_report = msgspec.json.Decoder(NodeUsageReported).decode


async def list_nodes(connection: AsyncConnection, moment: Moment, now: datetime) -> list[NodeItem]:
    """Return the nodes that exist at the moment, by name.

    Args:
        connection: Read transaction.
        moment: Later facts and reports are left out.
        now: The time, to which the age of reports is relative if the moment is the present.
    """
    rows = await connection.execute(_ALL_NODES, {"position": moment.position, "until": moment.until})
    return [_item(row, moment, now) for row in rows]


async def describe_node(connection: AsyncConnection, moment: Moment, name: str, now: datetime) -> NodeAnswer | None:
    """Return one node with its details; None if it does not exist at the moment. `now` as for `list_nodes`."""
    token = name_token(name)
    asked = {"token": token, "position": moment.position, "until": moment.until}
    row = (await connection.execute(_ONE_NODE, asked)).first()
    if row is None:
        return None
    item = _item(row, moment, now)
    spec = await state_at(connection, moment, "nodespec", token)
    usage = (await connection.execute(_USAGE, {**asked, "count": _SHOWN_REPORTS})).all()
    return NodeAnswer(
        moment=moment,
        node=item,
        object=None if spec is None else spec.get("object"),
        pods=await pods_on_node(connection, moment, item.name),
        overcommit=await _events(connection, moment, "nodepolicy", token, ["NodeOvercommitComputed"]),
        suppression=await _events(connection, moment, "nodestate", token, ["BeCpuSuppressed", "BeCpuReleased"]),
        protection=await _events(connection, moment, "nodestate", token, PROTECTION),
        usage=[UsagePoint(*point) for point in reversed(usage)],
    )


async def pod_usage(
    connection: AsyncConnection, moment: Moment, node: str, uid: str, since: str
) -> list[PodUsagePoint]:
    """Return the usage of a pod in the newest 120 reports of its node, oldest first.

    Reports without the pod give no point.

    Args:
        connection: Read transaction.
        moment: Reports after it are left out.
        node: Name of the node.
        uid: Uid of the pod.
        since: RFC 3339 time; earlier reports are left out.
    """
    asked = {"token": name_token(node), "until": moment.until, "since": since, "count": _SHOWN_REPORTS}
    points: list[PodUsagePoint] = []
    for row in (await connection.execute(_REPORTS, asked)).all():
        report = _decode_report(zlib.decompress(row.body))
        points.extend(
            PodUsagePoint(row.reported_at, pod.usage.cpu_milli, pod.usage.memory_bytes)
            for pod in report.pods
            if pod.uid == uid
        )
    return points[::-1]


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


def _item(row: Row[Any], moment: Moment, now: datetime) -> NodeItem:
    silent = _silent_seconds(row, moment, now)
    reports = row.reported_at is not None and (moment.live or silent is None)
    return NodeItem(
        name=name_from_token(row.token),
        seq=row.seq,
        unschedulable=row.unschedulable,
        host=row.host,
        cpu_milli=row.cpu_milli,
        memory_bytes=row.memory_bytes,
        gpus=row.gpus,
        cpu_requested=row.cpu_requested,
        memory_requested=row.memory_requested,
        gpus_requested=row.gpus_requested,
        batch_cpu=row.batch_cpu,
        batch_memory=row.batch_memory,
        batch_cpu_requested=row.batch_cpu_requested,
        batch_memory_requested=row.batch_memory_requested,
        pods=row.pods,
        be_pods=row.be_pods,
        pods_running=row.pods_running,
        be_quota_us=row.be_quota_us,
        cpu_used=row.cpu_used if reports else None,
        memory_used=row.memory_used if reports else None,
        be_cpu_used=row.be_cpu_used if reports else None,
        be_memory_used=row.be_memory_used if reports else None,
        reported_at=row.reported_at,
        silent_seconds=silent,
        gpu_cards=row.gpu_cards,
        gpu_share_used=row.gpu_share_used,
        gpu_share_stranded=row.gpu_share_stranded,
        reservations=row.reservations,
        cpu_unused_reserved=row.cpu_unused_reserved,
        memory_unused_reserved=row.memory_unused_reserved,
        gpus_unused_reserved=row.gpus_unused_reserved,
    )


def _silent_seconds(row: Row[Any], moment: Moment, now: datetime) -> int | None:
    """Return the age in seconds of the newest report of a node if it has expired; else, or without a report, None.

    It is also None if the fact of the moment has no valid time.
    """
    if row.reported_at is None or row.interval_seconds <= 0 or not (moment.live or moment.occurred_at):
        return None
    at = now.timestamp() if moment.live else unix_seconds(moment.occurred_at)
    age = at - unix_seconds(row.reported_at)
    return int(age) if age > row.interval_seconds * EXPIRED_AFTER_INTERVALS else None


MAX_PAGE: Final = 1_000
_PAGE: Final = text(
    """
    SELECT token, reported_at, seq, body FROM observations
     WHERE (reported_at, token) > (:since, :after) ORDER BY reported_at, token LIMIT :limit
    """
)


async def page_reports(connection: AsyncConnection, *, since: str, after: str, limit: int) -> ReportsAnswer:
    """Return a page of archived reports, with their bodies as stored.

    Args:
        connection: Read transaction.
        since: Earliest time of a report, in the form of `rfc3339`; "": the time of the oldest report.
        after: Of the reports with exactly this time, only those of nodes after this one are returned.
        limit: Largest number of reports.
    """
    rows = await connection.execute(_PAGE, {"since": since, "after": after, "limit": limit})
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
