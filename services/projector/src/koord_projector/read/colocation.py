"""Colocation as of a moment: suppressed nodes with the reason, contentions with suspects, evictions by agents."""

from typing import Annotated, Any, Final

import msgspec
from koordcore.events.envelope import name_from_token, name_token
from koordcore.events.nodestate import (
    BeCpuSuppressed,
    EvictedPod,
    InterferenceDetected,
    InterferenceEnded,
    PodsEvictedByAgent,
)
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.contentions import Contention, Detection, DisturbingPair, disturbing_pairs, join_contentions
from koord_projector.read.endpoint import At, Query, Reading, about
from koord_projector.read.moments import Moment
from koord_projector.read.nodes import NodeItem, list_nodes

_SHOWN_NODES: Final = 200
# The types are constants of the statements, because the planner must see that the index `disturbances` has their facts.
_NEWEST: Final = """
    SELECT seq, id, occurred_at, body FROM events
     WHERE type = '{type}' AND seq <= :position ORDER BY seq DESC LIMIT :limit
"""
_DETECTIONS: Final = text(_NEWEST.format(type=InterferenceDetected.__name__))
_EVICTIONS: Final = text(_NEWEST.format(type=PodsEvictedByAgent.__name__))
_ENDS: Final = text(
    """
    SELECT id, body FROM events
     WHERE type = 'InterferenceEnded' AND seq > :since AND seq <= :position ORDER BY seq
    """
)
_SUPPRESSIONS: Final = text(
    """
    SELECT e.* FROM unnest(CAST(:tokens AS text[])) AS n(token)
     CROSS JOIN LATERAL (
           SELECT seq, id, occurred_at, body FROM events
            WHERE kind = 'nodestate' AND id = n.token AND type = :type AND seq <= :position
            ORDER BY seq DESC LIMIT 1
     ) AS e
    """
)
_decode_detected = msgspec.json.Decoder(InterferenceDetected).decode
_decode_ended = msgspec.json.Decoder(InterferenceEnded).decode
_decode_evicted = msgspec.json.Decoder(PodsEvictedByAgent).decode
_decode_suppressed = msgspec.json.Decoder(BeCpuSuppressed).decode


class ColocationQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Results of each kind.")] = 100
    at: At = ""


class SuppressedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose best-effort pods have a CFS quota below their requests.

    Attributes:
        be_quota_us: The quota of all best-effort pods together, in microseconds per 100 ms.
        be_cpu_used: CPU that they use, in milli-cores; null without a usage report.
        batch_cpu_requested: CPU that they request, in milli-cores.
        changed_at: RFC 3339 time of the last change.
        reason: Why the quota was changed last, one sentence.
        terms: Numbers that gave the quota, in milli-cores; `threshold_percent` is in percent.
    """

    node: str
    be_quota_us: int
    be_cpu_used: int | None
    batch_cpu_requested: int
    be_pods: int
    changed_at: str
    reason: str
    terms: dict[str, int]


class AgentEviction(msgspec.Struct, frozen=True, kw_only=True):
    """An eviction by the agent of a node; the fields are those of `PodsEvictedByAgent`."""

    seq: int
    evicted_at: str
    node: str
    feature: str
    pods: list[EvictedPod]
    reason: str


class ColocationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Colocation at one moment: limits of best-effort pods, and the contentions before this moment.

    Attributes:
        suppressed_nodes: Number of nodes that hold best-effort pods back: their quota is below what they request.
        limited_nodes: Number of nodes with best-effort pods that have a quota, of whatever size.
        suppressed: The 200 of `suppressed_nodes` with the lowest quota in relation to these requests.
        contentions: Contentions, newest first.
        pairs: Main suspects of these contentions with the pods that they disturbed, the most frequent first.
        evictions: Evictions by agents, newest first.
    """

    moment: Moment
    suppressed_nodes: int
    limited_nodes: int
    suppressed: list[SuppressedNode]
    contentions: list[Contention]
    pairs: list[DisturbingPair]
    evictions: list[AgentEviction]


async def read_colocation(reading: Reading, query: ColocationQuery) -> ColocationAnswer:
    connection, moment, limit = reading.connection, reading.moment, query.limit
    found = await list_nodes(connection, moment, reading.now)
    nodes = [node for node in found if node.be_held_back]
    contentions = await _contentions(connection, moment, limit)
    evictions = await connection.execute(_EVICTIONS, {"position": moment.position, "limit": limit})
    return ColocationAnswer(
        moment=moment,
        suppressed_nodes=len(nodes),
        limited_nodes=sum(node.be_quota_us >= 0 and node.be_pods > 0 for node in found),
        suppressed=await _suppressed(connection, moment, sorted(nodes, key=_granted)[:_SHOWN_NODES]),
        contentions=contentions,
        pairs=disturbing_pairs(contentions),
        evictions=[_eviction(row) for row in evictions],
    )


def _granted(node: NodeItem) -> tuple[float, str]:
    """The part of their requests that the quota grants the best-effort pods, then the name of the node."""
    return (node.be_quota_us / 100) / max(1, node.batch_cpu_requested), node.name


async def _contentions(connection: AsyncConnection, moment: Moment, limit: int) -> list[Contention]:
    rows = (await connection.execute(_DETECTIONS, {"position": moment.position, "limit": limit})).all()
    if not rows:
        return []
    ends = (await connection.execute(_ENDS, {"since": rows[-1].seq, "position": moment.position})).all()
    return join_contentions(
        (
            Detection(
                seq=row.seq,
                detected_at=row.occurred_at,
                node=name_from_token(row.id),
                event=_decode_detected(row.body),
            )
            for row in rows
        ),
        ((name_from_token(row.id), _decode_ended(row.body)) for row in ends),
    )


async def _suppressed(connection: AsyncConnection, moment: Moment, nodes: list[NodeItem]) -> list[SuppressedNode]:
    asked = {
        "tokens": [name_token(node.name) for node in nodes],
        "type": BeCpuSuppressed.__name__,
        "position": moment.position,
    }
    rows = {name_from_token(row.id): row for row in await connection.execute(_SUPPRESSIONS, asked)}
    return [_suppressed_node(node, rows[node.name]) for node in nodes if node.name in rows]


def _suppressed_node(node: NodeItem, row: Row[Any]) -> SuppressedNode:
    event = _decode_suppressed(row.body)
    return SuppressedNode(
        node=node.name,
        be_quota_us=node.be_quota_us,
        be_cpu_used=node.be_cpu_used,
        batch_cpu_requested=node.batch_cpu_requested,
        be_pods=node.be_pods,
        changed_at=row.occurred_at,
        reason=event.reason,
        terms=event.terms,
    )


def _eviction(row: Row[Any]) -> AgentEviction:
    event = _decode_evicted(row.body)
    return AgentEviction(
        seq=row.seq,
        evicted_at=row.occurred_at,
        node=name_from_token(row.id),
        feature=event.feature,
        pods=event.pods,
        reason=event.reason,
    )
