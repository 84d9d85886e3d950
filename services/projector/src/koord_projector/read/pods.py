"""Pods as of a moment: the episodes at that position, and their phases (`fold.pods`)."""

from typing import Any

import msgspec
from koordcore.events.envelope import name_token
from koordcore.events.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.values.invalid import InvalidInput
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.answers import PendingAnswer, PodItem, PodsAnswer
from koord_projector.read.moments import Moment, stored_explanation, stored_fact
from koord_projector.read.pending import count_reasons
from koord_projector.read.timeline import TimelineEntry, pod_timeline

MAX_PAGE = 1000
_JUDGED_PODS = 5_000
_SHOWN_PENDING = 200
_SUPPRESSIONS = 30
_HOOKS = 100

_PHASE = """
    CASE WHEN deleted_seq <= :position THEN 'terminating'
         WHEN placed_seq IS NULL OR placed_seq > :position THEN 'pending'
         WHEN started_seq <= :position AND (stopped_seq IS NULL OR stopped_seq > :position) THEN 'running'
         ELSE 'placed' END
"""
_HELD = {
    True: "SELECT * FROM pods WHERE to_seq IS NULL",
    # The index by length (`domain.lives.span_of`) finds the rows of the moment among all ended ones. OFFSET 0 keeps the
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
_COLUMNS = f"""
    uid, namespace, name, {_PHASE} AS phase, qos, priority_class, requests, submitted_seq, submitted_at,
    gang, CASE WHEN placed_seq <= :position THEN node ELSE '' END AS node,
    CASE WHEN placed_seq <= :position THEN placed_at ELSE '' END AS placed_at,
    CASE WHEN started_seq <= :position THEN started_at ELSE '' END AS started_at
"""
HELD_PODS = {live: f"SELECT {_COLUMNS} FROM ({held}) AS held" for live, held in _HELD.items()}  # noqa: S608  constants
"""Whether the moment is the present -> statement that selects the pods of the moment, with their phases."""
WHY_PENDING = "type IN ('PodUnschedulable', 'PodGated', 'DecisionAbandoned')"
"""Condition on the explanations that say why a pod is pending. Others say why it was not evicted when it ran."""
_EXPLANATION_OF_PENDING = f"""
    LEFT JOIN LATERAL (
         SELECT v.body, v.type AS explanation,
                (SELECT max(a.attempt) FROM explanations AS a
                  WHERE a.uid = p.uid AND a.occurred_at <= :until) AS attempt
           FROM explanations AS v
          WHERE v.uid = p.uid AND p.phase = 'pending' AND v.occurred_at <= :until AND v.{WHY_PENDING}
          ORDER BY v.occurred_at DESC LIMIT 1
    ) AS w ON true
"""  # noqa: S608  constants
_decode_unschedulable = msgspec.json.Decoder(PodUnschedulable).decode
_decode_gated = msgspec.json.Decoder(PodGated).decode
_decode_abandoned = msgspec.json.Decoder(DecisionAbandoned).decode
_decode_requests = msgspec.json.Decoder(dict[str, int]).decode


class PodFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Condition on pods. An empty field matches all.

    `contains` is a part of `<namespace>/<name>`, or the uid. `gang` is the name of a gang in `namespace`.
    """

    namespace: str = ""
    phase: str = ""
    qos: str = ""
    node: str = ""
    gang: str = ""
    contains: str = ""


async def list_pods(
    connection: AsyncConnection, moment: Moment, wanted: PodFilter, *, limit: int, cursor: str | None
) -> PodsAnswer:
    """Return a page of pods at a moment, newest submission first.

    Args:
        connection: Read transaction.
        moment: The moment.
        wanted: Condition on the pods.
        limit: Largest number of pods.
        cursor: Cursor from the previous page; None: the first page.

    Raises:
        InvalidInput: The cursor is invalid.
    """
    where, values = _conditions(wanted)
    values |= {"position": moment.position, "until": moment.until}
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
            text(f"SELECT p.*, w.* FROM ({page}) AS p {_EXPLANATION_OF_PENDING} ORDER BY submitted_seq DESC"),  # noqa: S608
            {**values, "limit": limit + 1},
        )
    ).all()
    more = len(rows) > limit
    items = [_item(row) for row in rows[:limit]]
    return PodsAnswer(
        moment=moment,
        total=sum(counts.values()),
        counts=counts,
        pods=items,
        cursor=str(items[-1].submitted_seq) if more else None,
    )


async def pods_on_node(connection: AsyncConnection, moment: Moment, node: str) -> list[PodItem]:
    """Return the pods on a node at the moment, newest submission first, at most 500."""
    page = await list_pods(connection, moment, PodFilter(node=node), limit=500, cursor=None)
    return page.pods


async def pod_counts(connection: AsyncConnection, moment: Moment) -> dict[str, int]:
    """Return phase -> number of pods at the moment."""
    statement = f"SELECT {_PHASE} AS phase, count(*) AS pods FROM ({_HELD[moment.live]}) AS held GROUP BY 1"  # noqa: S608
    rows = await connection.execute(text(statement), {"position": moment.position})
    return {row.phase: row.pods for row in rows}


async def find_pod(connection: AsyncConnection, moment: Moment, uid: str) -> PodItem | None:
    """Return a pod at the moment. If it began later, return None.

    If it ended before, return its last version with the phase "gone".
    """
    statement = f"""
        SELECT p.*, w.* FROM (
            SELECT CASE WHEN to_seq <= :position THEN 'gone' ELSE phase END AS phase, uid, namespace, name, qos,
                   priority_class, requests, submitted_seq, submitted_at, node, placed_at, started_at
              FROM (SELECT {_COLUMNS}, from_seq, to_seq FROM pods WHERE uid = :uid AND from_seq <= :position) AS q
             ORDER BY from_seq DESC LIMIT 1
        ) AS p {_EXPLANATION_OF_PENDING}
    """  # noqa: S608  constants
    values = {"uid": uid, "position": moment.position, "until": moment.until}
    row = (await connection.execute(text(statement), values)).first()
    return None if row is None else _item(row)


async def find_uid(connection: AsyncConnection, moment: Moment, namespace: str, name: str) -> str | None:
    """Return the uid of the pod that had this namespace and name last, up to the moment; None if none ever had.

    A pod that was already deleted at the moment counts, too.
    """
    statement = text(
        "SELECT uid FROM pods WHERE namespace = :namespace AND name = :name AND from_seq <= :position"
        " ORDER BY from_seq DESC LIMIT 1"
    )
    values = {"namespace": namespace, "name": name, "position": moment.position}
    return (await connection.execute(statement, values)).scalar()


async def pod_life(connection: AsyncConnection, moment: Moment, uid: str) -> list[TimelineEntry]:
    """Return the events in a pod's life up to the moment, oldest first.

    They are the oldest 500 facts about the pod and the newest 200 explanations. For each episode on a node, the first
    100 facts about runtime hooks are added, and for a best-effort pod the newest 30 changes of the best-effort quota.
    """
    episodes = (
        await connection.execute(
            text("SELECT * FROM pods WHERE uid = :uid AND from_seq <= :position ORDER BY from_seq"),
            {"uid": uid, "position": moment.position},
        )
    ).all()
    marks = {seq for row in episodes for seq in (row.started_seq, row.stopped_seq) if seq is not None}
    facts = (
        await connection.execute(
            text(
                """
                SELECT seq, kind, id, type, schema, occurred_at, actor, event_id, based_on, traceparent, body
                  FROM events
                 WHERE ((kind IN ('podspec', 'pod', 'eviction') AND id = :uid) OR seq = ANY(:marks))
                   AND seq <= :position
                 ORDER BY seq LIMIT 500
                """
            ),
            {"uid": uid, "marks": sorted(marks), "position": moment.position},
        )
    ).all()
    rows = [
        *facts,
        *await _suppressions(connection, moment, episodes),
        *await _hooks(connection, moment, uid, episodes),
    ]
    explanations = await connection.execute(
        text(
            "SELECT uid, occurred_at, event_id, seq, type, attempt, based_on, actor, traceparent, body"
            " FROM explanations WHERE uid = :uid AND occurred_at <= :until ORDER BY occurred_at DESC LIMIT 200"
        ),
        {"uid": uid, "until": moment.until},
    )
    in_order = sorted(explanations, key=lambda row: row.seq)
    return pod_timeline(uid, map(stored_fact, rows), map(stored_explanation, in_order))


async def _suppressions(connection: AsyncConnection, moment: Moment, episodes: Any) -> list[Row[Any]]:
    """Return the newest changes of the best-effort quota on the nodes of a best-effort pod while it ran there."""
    found: list[Row[Any]] = []
    for row in episodes:
        if row.qos != "BE" or row.started_seq is None:
            continue
        until = min(moment.position, (row.stopped_seq or row.to_seq or moment.position))
        asked = {"token": name_token(row.node), "since": row.started_seq, "until": until, "count": _SUPPRESSIONS}
        statement = text(
            """
            SELECT seq, kind, id, type, schema, occurred_at, actor, event_id, based_on, traceparent, body
                  FROM events
             WHERE kind = 'nodestate' AND id = :token AND seq > :since AND seq <= :until
               AND type IN ('BeCpuSuppressed', 'BeCpuReleased') ORDER BY seq DESC LIMIT :count
            """
        )
        found.extend((await connection.execute(statement, asked)).all())
    return list({row.seq: row for row in found}.values())


async def _hooks(connection: AsyncConnection, moment: Moment, uid: str, episodes: Any) -> list[Row[Any]]:
    """Return the first facts about runtime hooks of a pod on each of its nodes, from its placement on."""
    found: list[Row[Any]] = []
    for row in episodes:
        if not row.node:
            continue
        until = min(moment.position, row.to_seq or moment.position)
        since = row.placed_seq or row.from_seq
        asked = {"uid": uid, "token": name_token(row.node), "since": since, "until": until, "count": _HOOKS}
        statement = text(
            """
            SELECT seq, kind, id, type, schema, occurred_at, actor, event_id, based_on, traceparent, body
                  FROM events
             WHERE id = :token AND seq >= :since AND seq <= :until
               AND type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed')
               AND position(:uid in body) > 0 ORDER BY seq LIMIT :count
            """
        )
        found.extend((await connection.execute(statement, asked)).all())
    return list({row.seq: row for row in found}.values())


async def explain_pending(connection: AsyncConnection, moment: Moment) -> PendingAnswer:
    """Count the reasons why pods are pending at the moment, over the oldest 5,000 pending pods."""
    values: dict[str, Any] = {"position": moment.position, "until": moment.until, "limit": _JUDGED_PODS}
    inner = HELD_PODS[moment.live]
    page = f"SELECT * FROM ({inner}) AS p WHERE phase = 'pending' ORDER BY submitted_seq LIMIT :limit"  # noqa: S608
    rows = (
        await connection.execute(
            text(f"SELECT p.*, w.* FROM ({page}) AS p {_EXPLANATION_OF_PENDING} ORDER BY submitted_seq"),  # noqa: S608
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
        pods=[_item(row) for row in rows[:_SHOWN_PENDING]],
    )


def _conditions(wanted: PodFilter) -> tuple[str, dict[str, Any]]:
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for column in ("namespace", "phase", "qos", "node", "gang"):
        value = getattr(wanted, column)
        if value:
            conditions.append(f"{column} = :{column}")
            values[column] = value
    if wanted.contains:
        conditions.append("(position(lower(:contains) in lower(namespace || '/' || name)) > 0 OR uid = :contains)")
        values["contains"] = wanted.contains
    return ("WHERE " + " AND ".join(conditions) if conditions else ""), values


def _item(row: Row[Any]) -> PodItem:
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
        message=_message(row),
        attempts=row.attempt or 0,
    )


def _message(row: Row[Any]) -> str:
    """Return the message of the last explanation of a pending pod; "" without one."""
    if row.body is None:
        return ""
    if row.explanation == PodGated.__name__:
        return _decode_gated(row.body).message
    if row.explanation == DecisionAbandoned.__name__:
        return _decode_abandoned(row.body).reason
    return _decode_unschedulable(row.body).message
