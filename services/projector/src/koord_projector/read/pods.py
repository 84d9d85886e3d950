"""Pods as of a moment: the episodes at that position, and their phases (`fold.pods`)."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.stories.pending import pending_sentence
from koordcore.values.invalid import InvalidInput
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.fold.pods import LONGEST_GANG, Phase
from koord_projector.read.endpoint import At, Query, Reading, Text, about, one_of
from koord_projector.read.moments import Moment

PHASES: Final = tuple(map(str, Phase))
_JUDGED_PODS = 5_000
_SHOWN_PENDING = 200

_PHASE = """
    CASE WHEN deleted_seq <= :position THEN 'terminating'
         WHEN placed_seq IS NULL OR placed_seq > :position THEN 'pending'
         WHEN started_seq <= :position AND (stopped_seq IS NULL OR stopped_seq > :position) THEN 'running'
         ELSE 'placed' END
"""
_HELD = {
    True: "SELECT * FROM pods WHERE to_seq IS NULL",
    # The index by length (`fold.lives.span_of`) finds the rows of the moment among all ended ones. OFFSET 0 keeps the
    # planner from a join that reads all rows that began before.
    False: """
        SELECT * FROM pods WHERE to_seq IS NULL AND from_seq <= :position
         UNION ALL
        SELECT ended.* FROM generate_series(1, 62) AS s(bits)
         CROSS JOIN LATERAL (
               SELECT * FROM pods
                WHERE span = s.bits AND to_seq IS NOT NULL AND from_seq <= :position
                  AND from_seq > :position - (CAST(1 AS bigint) << s.bits) AND to_seq > :position
                OFFSET 0
         ) AS ended
    """,
}
COLUMNS = f"""
    uid, namespace, name, {_PHASE} AS phase, qos, priority_class, requests, submitted_seq, submitted_at,
    gang, CASE WHEN placed_seq <= :position THEN node ELSE '' END AS node,
    CASE WHEN placed_seq <= :position THEN placed_at ELSE '' END AS placed_at,
    CASE WHEN started_seq <= :position THEN started_at ELSE '' END AS started_at
"""
HELD_PODS = {live: f"SELECT {COLUMNS} FROM ({held}) AS held" for live, held in _HELD.items()}  # noqa: S608  constants
"""Whether the moment is the present -> statement that selects the pods of the moment, with their phases."""
WHY_PENDING = "type IN ('PodUnschedulable', 'PodGated', 'DecisionAbandoned')"
"""Condition on the explanations that say why a pod is pending. Others say why it was not evicted when it ran."""
EXPLANATION_OF_PENDING = f"""
    LEFT JOIN LATERAL (
         SELECT v.body, v.type AS explanation,
                (SELECT max(a.attempt) FROM explanations AS a
                  WHERE a.uid = p.uid AND a.based_on <= :based_until) AS attempt
           FROM explanations AS v
          WHERE v.uid = p.uid AND p.phase = 'pending' AND v.based_on <= :based_until AND v.{WHY_PENDING}
          ORDER BY v.occurred_at DESC LIMIT 1
    ) AS w ON true
"""  # noqa: S608  constants
_decode_unschedulable = msgspec.json.Decoder(PodUnschedulable).decode
_decode_gated = msgspec.json.Decoder(PodGated).decode
_decode_abandoned = msgspec.json.Decoder(DecisionAbandoned).decode
_decode_requests = msgspec.json.Decoder(dict[str, int]).decode


class PodItem(msgspec.Struct, frozen=True, kw_only=True):
    """One pod in a list.

    Attributes:
        requests: Resource -> amount: milli-cores for cpu, whole units for everything else.
        phase: "pending", "placed", "running" or "terminating"; "gone" for a pod that does not exist any more at the
            moment (not in lists).
        message: Message of the last explanation of a pending pod; "" without one.
        why: The same as one sentence for people: what the pod lacks and what would help.
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
    why: str = ""
    attempts: int = 0


class PodsQuery(Query, frozen=True, kw_only=True):
    """An empty field matches all. `gang` is the name of a gang in any namespace, unless `namespace` is given, too."""

    namespace: Annotated[Text, about("Only pods of this namespace.")] = ""
    phase: Annotated[Text, one_of(*PHASES), about("Only pods in this phase.")] = ""
    qos: Annotated[Text, one_of("LSE", "LSR", "LS", "BE", "SYSTEM"), about("Only pods of this QoS class.")] = ""
    node: Annotated[Text, about("Only pods on this node.")] = ""
    gang: Annotated[Text, about("Only pods of the gangs with this name.")] = ""
    text: Annotated[Text, about("Only pods with this in namespace/name, or with this uid.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Pods per page.")] = 100
    cursor: Annotated[Text, about("From the page before.")] = ""
    at: At = ""


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


async def list_pods(reading: Reading, query: PodsQuery) -> PodsAnswer:
    connection, moment, limit, cursor = reading.connection, reading.moment, query.limit, query.cursor
    where, values = _conditions(query)
    values |= {"position": moment.position, "based_until": moment.based_until}
    inner = HELD_PODS[moment.live]
    counted = await connection.execute(
        text(f"SELECT phase, count(*) AS pods FROM ({inner}) AS p {where} GROUP BY phase"),  # noqa: S608
        values,
    )
    counts = {row.phase: row.pods for row in counted}
    if cursor:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise InvalidInput("a cursor from the page before", cursor, "cursor")
        where += (" AND" if where else "WHERE") + " submitted_seq < :before"
        values["before"] = int(cursor)
    page = f"SELECT * FROM ({inner}) AS p {where} ORDER BY submitted_seq DESC LIMIT :limit"  # noqa: S608
    rows = (
        await connection.execute(
            text(f"SELECT p.*, w.* FROM ({page}) AS p {EXPLANATION_OF_PENDING} ORDER BY submitted_seq DESC"),  # noqa: S608
            {**values, "limit": limit + 1},
        )
    ).all()
    more = len(rows) > limit
    items = [pod_item(row) for row in rows[:limit]]
    return PodsAnswer(
        moment=moment,
        total=sum(counts.values()),
        counts=counts,
        pods=items,
        cursor=str(items[-1].submitted_seq) if more else None,
    )


async def pod_counts(connection: AsyncConnection, moment: Moment) -> dict[str, int]:
    """Phase -> number of pods."""
    statement = f"SELECT {_PHASE} AS phase, count(*) AS pods FROM ({_HELD[moment.live]}) AS held GROUP BY 1"  # noqa: S608
    rows = await connection.execute(text(statement), {"position": moment.position})
    return {row.phase: row.pods for row in rows}


class PendingReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why nodes were refused, and the number of pending pods with it.

    Attributes:
        plugin: Plugin that refused the nodes.
        reason: Text of the reason.
        pods: Number of pending pods with this reason.
        nodes_max: Largest number of nodes that it excluded for one pod.
    """

    plugin: str
    reason: str
    pods: int
    nodes_max: int


class PendingQuery(Query, frozen=True, kw_only=True):
    at: At = ""


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


async def explain_pending(reading: Reading, _query: PendingQuery) -> PendingAnswer:
    """Reasons are counted over the oldest 5,000 pending pods."""
    connection, moment = reading.connection, reading.moment
    values: dict[str, Any] = {"position": moment.position, "based_until": moment.based_until, "limit": _JUDGED_PODS}
    inner = HELD_PODS[moment.live]
    page = f"SELECT * FROM ({inner}) AS p WHERE phase = 'pending' ORDER BY submitted_seq LIMIT :limit"  # noqa: S608
    rows = (
        await connection.execute(
            text(f"SELECT p.*, w.* FROM ({page}) AS p {EXPLANATION_OF_PENDING} ORDER BY submitted_seq"),  # noqa: S608
            values,
        )
    ).all()
    counts = await pod_counts(connection, moment)
    explanations = [_decode_unschedulable(row.body) for row in rows if row.explanation == PodUnschedulable.__name__]
    return PendingAnswer(
        moment=moment,
        pending=counts.get("pending", 0),
        judged=sum(row.body is not None for row in rows),
        attempted=sum((row.attempt or 0) > 0 for row in rows),
        examined=len(rows),
        reasons=count_reasons(explanations),
        pods=[pod_item(row) for row in rows[:_SHOWN_PENDING]],
    )


def count_reasons(explanations: Iterable[PodUnschedulable]) -> list[PendingReason]:
    """The most frequent one comes first."""
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for explanation in explanations:
        for exclusion in explanation.explanation.exclusions:
            for reason, nodes in exclusion.reasons.items():
                pods, most = counted.get((exclusion.plugin, reason), (0, 0))
                counted[exclusion.plugin, reason] = (pods + 1, max(most, nodes))
    ordered = sorted(counted.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
    return [
        PendingReason(plugin=plugin, reason=reason, pods=pods, nodes_max=most)
        for (plugin, reason), (pods, most) in ordered
    ]


def _conditions(query: PodsQuery) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {
        column: value for column in ("namespace", "phase", "qos", "node", "gang") if (value := getattr(query, column))
    }
    conditions = [f"{column} = :{column}" for column in values]
    if query.gang:
        values["gang"] = query.gang[:LONGEST_GANG]
    if query.text:
        conditions.append("(position(lower(:contains) in lower(namespace || '/' || name)) > 0 OR uid = :contains)")
        values["contains"] = query.text
    return ("WHERE " + " AND ".join(conditions) if conditions else ""), values


def pod_item(row: Row[Any]) -> PodItem:
    explanation = _explanation_of(row.explanation, row.body)
    return PodItem(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        phase=row.phase,
        qos=row.qos,
        priority_class=row.priority_class,
        node=row.node,
        requests=_decode_requests(row.requests),
        submitted_seq=row.submitted_seq,
        submitted_at=row.submitted_at,
        placed_at=row.placed_at,
        started_at=row.started_at,
        message=_message_of(explanation),
        why="" if explanation is None else pending_sentence(explanation),
        attempts=row.attempt or 0,
    )


def _explanation_of(type_: str, body: str | None) -> PodUnschedulable | PodGated | DecisionAbandoned | None:
    """The last explanation of a pending pod; None without one."""
    if body is None:
        return None
    if type_ == PodGated.__name__:
        return _decode_gated(body)
    return _decode_abandoned(body) if type_ == DecisionAbandoned.__name__ else _decode_unschedulable(body)


def _message_of(explanation: PodUnschedulable | PodGated | DecisionAbandoned | None) -> str:
    if explanation is None:
        return ""
    return explanation.reason if isinstance(explanation, DecisionAbandoned) else explanation.message
