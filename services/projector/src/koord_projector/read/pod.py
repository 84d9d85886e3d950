"""One pod and its life up to a moment: the story of `koordcore.stories.pod`."""

import zlib
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.envelope import name_token
from koordcore.events.observation import NodeUsageReported
from koordcore.stories.moment import TimelineEntry
from koordcore.stories.pod import pod_story
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import Moment, state_at, stored_explanation, stored_fact
from koord_projector.read.nodes import SHOWN_REPORTS
from koord_projector.read.pods import COLUMNS, EXPLANATION_OF_PENDING, PodItem, pod_item

_SUPPRESSIONS: Final = 30
_HOOKS: Final = 100
_FACT: Final = "seq, kind, id, type, schema, occurred_at, actor, event_id, based_on, traceparent, body"
_FACTS: Final = text(
    f"""
    SELECT {_FACT} FROM events
     WHERE ((kind IN ('podspec', 'pod', 'eviction') AND id = :uid) OR seq = ANY(:marks)) AND seq <= :position
     ORDER BY seq LIMIT 500
    """  # noqa: S608  constants
)
_EXPLANATIONS: Final = text(
    """
    SELECT uid, occurred_at, event_id, seq, type, attempt, based_on, actor, traceparent, body FROM explanations
     WHERE uid = :uid AND based_on <= :based_until ORDER BY occurred_at DESC LIMIT 200
    """
)
_SUPPRESSED: Final = text(
    f"""
    SELECT {_FACT} FROM events
     WHERE kind = 'nodestate' AND id = :token AND seq > :since AND seq <= :until
       AND type IN ('BeCpuSuppressed', 'BeCpuReleased') ORDER BY seq DESC LIMIT :count
    """  # noqa: S608  constants
)
_HOOKED: Final = text(
    f"""
    SELECT {_FACT} FROM events
     WHERE id = :token AND seq >= :since AND seq <= :until
       AND type IN ('ContainerHookApplied', 'ContainerHookFailed', 'HookServerFailed', 'ContainersOomKilled')
       AND position(:uid in body) > 0 ORDER BY seq LIMIT :count
    """  # noqa: S608  constants
)
_REPORTS = text(
    """
    SELECT reported_at, body FROM observations
     WHERE token = :token AND stored_at_ns <= :until_ns ORDER BY stored_at_ns DESC, seq DESC LIMIT :count
    """
)
_decode_report = msgspec.json.Decoder(NodeUsageReported).decode


class PodUsagePoint(msgspec.Struct, frozen=True):
    """Usage of a pod in one report of its node, in milli-cores and bytes."""

    reported_at: str
    cpu_used: int
    memory_used: int


class PodQuery(Query, frozen=True, kw_only=True):
    uid: Annotated[Text, about("Uid of the pod.")]
    at: At = ""


class PodByNameQuery(Query, frozen=True, kw_only=True):
    namespace: Annotated[Text, about("Namespace of the pod.")]
    name: Annotated[Text, about("Name of the pod.")]
    at: At = ""


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One pod at one moment, with its life up to then.

    Attributes:
        object: The pod object; null if the pod was deleted.
        timeline: Events in its life, oldest first. Their number is limited (`read.pod.pod_life`).
        usage: Usage since it was placed, in the newest 120 reports of its node, oldest first.
    """

    moment: Moment
    pod: PodItem
    object: dict[str, Any] | None
    timeline: list[TimelineEntry]
    usage: list[PodUsagePoint]


async def read_pod(reading: Reading, query: PodQuery) -> PodAnswer | None:
    """None if there was no such pod up to the moment."""
    connection, moment, uid = reading.connection, reading.moment, query.uid
    pod = await find_pod(connection, moment, uid)
    if pod is None:
        return None
    spec = await state_at(connection, moment, "podspec", uid)
    return PodAnswer(
        moment=moment,
        pod=pod,
        object=None if spec is None else spec.get("object"),
        timeline=await pod_life(connection, moment, uid),
        usage=await _usage(connection, moment, pod) if pod.node else [],
    )


async def read_pod_by_name(reading: Reading, query: PodByNameQuery) -> PodAnswer | None:
    """None if no pod had this name up to the moment."""
    uid = await _find_uid(reading.connection, reading.moment, query.namespace, query.name)
    return None if uid is None else await read_pod(reading, PodQuery(uid=uid))


async def find_pod(connection: AsyncConnection, moment: Moment, uid: str) -> PodItem | None:
    """None if it began later. If it ended before, its last version with the phase "gone"."""
    statement = f"""
        SELECT p.*, w.* FROM (
            SELECT CASE WHEN to_seq <= :position THEN 'gone' ELSE phase END AS phase, uid, namespace, name, qos,
                   priority_class, requests, submitted_seq, submitted_at, node, placed_at, started_at
              FROM (SELECT {COLUMNS}, from_seq, to_seq FROM pods WHERE uid = :uid AND from_seq <= :position) AS q
             ORDER BY from_seq DESC LIMIT 1
        ) AS p {EXPLANATION_OF_PENDING}
    """  # noqa: S608  constants
    values = {"uid": uid, "position": moment.position, "based_until": moment.based_until}
    row = (await connection.execute(text(statement), values)).first()
    return None if row is None else pod_item(row)


async def _find_uid(connection: AsyncConnection, moment: Moment, namespace: str, name: str) -> str | None:
    """Uid of the pod that had this name last, also if it is deleted already; None if none ever had."""
    statement = text(
        "SELECT uid FROM pods WHERE namespace = :namespace AND name = :name AND from_seq <= :position"
        " ORDER BY from_seq DESC LIMIT 1"
    )
    values = {"namespace": namespace, "name": name, "position": moment.position}
    return (await connection.execute(statement, values)).scalar()


async def pod_life(connection: AsyncConnection, moment: Moment, uid: str) -> list[TimelineEntry]:
    """The events in a pod's life up to the moment, oldest first.

    They are the oldest 500 facts about the pod and the newest 200 explanations. For each episode on a node, the first
    100 facts about runtime hooks are added, and for a best-effort pod the newest 30 changes of the best-effort quota.
    """
    episodes = (
        await connection.execute(
            text("SELECT * FROM pods WHERE uid = :uid AND from_seq <= :position ORDER BY from_seq"),
            {"uid": uid, "position": moment.position},
        )
    ).all()
    marks = sorted({seq for row in episodes for seq in (row.started_seq, row.stopped_seq) if seq is not None})
    facts = await connection.execute(_FACTS, {"uid": uid, "marks": marks, "position": moment.position})
    rows = [
        *facts.all(),
        *await _suppressions(connection, moment, episodes),
        *await _hooks(connection, moment, uid, episodes),
    ]
    explanations = await connection.execute(_EXPLANATIONS, {"uid": uid, "based_until": moment.based_until})
    in_order = sorted(explanations, key=lambda row: row.seq)
    story = pod_story(uid, map(stored_fact, rows), map(stored_explanation, in_order))
    return [moment.entry() for moment in story]


async def _suppressions(connection: AsyncConnection, moment: Moment, episodes: Sequence[Row[Any]]) -> list[Row[Any]]:
    """The newest changes of the best-effort quota on the nodes of a best-effort pod while it ran there."""
    found: list[Row[Any]] = []
    for row in episodes:
        if row.qos != "BE" or row.started_seq is None:
            continue
        until = min(moment.position, (row.stopped_seq or row.to_seq or moment.position))
        asked = {"token": name_token(row.node), "since": row.started_seq, "until": until, "count": _SUPPRESSIONS}
        found.extend((await connection.execute(_SUPPRESSED, asked)).all())
    return list({row.seq: row for row in found}.values())


async def _hooks(connection: AsyncConnection, moment: Moment, uid: str, episodes: Sequence[Row[Any]]) -> list[Row[Any]]:
    """The first facts about runtime hooks of a pod on each of its nodes, from its placement on."""
    found: list[Row[Any]] = []
    for row in episodes:
        if not row.node:
            continue
        until = min(moment.position, row.to_seq or moment.position)
        since = row.placed_seq or row.from_seq
        asked = {"uid": uid, "token": name_token(row.node), "since": since, "until": until, "count": _HOOKS}
        found.extend((await connection.execute(_HOOKED, asked)).all())
    return list({row.seq: row for row in found}.values())


async def _usage(connection: AsyncConnection, moment: Moment, pod: PodItem) -> list[PodUsagePoint]:
    """Its usage in the newest 120 reports of its node, oldest first."""
    asked = {"token": name_token(pod.node), "until_ns": moment.until_ns, "count": SHOWN_REPORTS}
    points: list[PodUsagePoint] = []
    for row in (await connection.execute(_REPORTS, asked)).all():
        report = _decode_report(zlib.decompress(row.body))
        points.extend(
            PodUsagePoint(row.reported_at, each.usage.cpu_milli, each.usage.memory_bytes)
            for each in report.pods
            if each.uid == pod.uid
        )
    return points[::-1]
