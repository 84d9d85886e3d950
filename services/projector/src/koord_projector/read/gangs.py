"""Gangs as of a moment: the phases of their members, their minimum, and what they wait for."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import msgspec
from koordcore.events.explanations import GangProgress
from koordcore.events.gang import gang_ref
from koordcore.events.objects import custom_ref
from koordcore.protocol.annotations.gang import parse_gang_min_num
from koordcore.state.aggregates import CustomObjectState, GangState, PodSpecState
from koordcore.state.fold import AggregateState
from koordcore.stories.pending import gang_sentence
from koordcore.values.invalid import InvalidInput
from sqlalchemy import Row, text

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import Moment, states_at
from koord_projector.read.pods import HELD_PODS, WHY_PENDING

_GANGS: Final = """
    SELECT g.*, w.body AS explanation FROM (
           SELECT namespace, gang, min(uid) AS member, min(submitted_at) AS submitted_at,
                  max(placed_at) AS placed_at, count(*) AS pods,
                  count(*) FILTER (WHERE phase = 'pending') AS pending,
                  count(*) FILTER (WHERE phase = 'placed') AS placed,
                  count(*) FILTER (WHERE phase = 'running') AS running,
                  min(uid) FILTER (WHERE phase = 'pending') AS pending_member
             FROM ({pods}) AS p
            WHERE gang <> '' AND (namespace COLLATE "C", gang COLLATE "C") > (:after_namespace, :after_gang)
            GROUP BY namespace, gang ORDER BY namespace COLLATE "C", gang COLLATE "C" LIMIT :limit
    ) AS g
      LEFT JOIN LATERAL (
           SELECT body FROM explanations WHERE uid = g.pending_member AND based_on <= :based_until AND {why_pending}
            ORDER BY occurred_at DESC LIMIT 1
      ) AS w ON true
     ORDER BY g.namespace COLLATE "C", g.gang COLLATE "C"
"""


class GangsQuery(Query, frozen=True, kw_only=True):
    after: Annotated[Text, about("Only gangs after this one, as namespace/name.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Gangs per page.")] = 200
    at: At = ""


class GangItem(msgspec.Struct, frozen=True, kw_only=True):
    """One gang in a list.

    Attributes:
        phase: Phase of its PodGroup as the scheduler published it last; "" if there is none.
        pods: Number of its pods: `pending`, `placed` (not running yet), `running`, and those that are deleted and have
            not left their node.
        min_member: Number of pods that must be placed together; 0 if it is invalid.
        pod_group: Whether a PodGroup declares it. Otherwise labels or annotations of its pods do.
        submitted_at: RFC 3339 time of its first pod.
        placed_at: RFC 3339 time of its last placement; "" without one.
        message: Message of the last explanation of one of its pending pods; "" without one.
        why: How many members are placed and exist, as one sentence; "" if enough exist: then `message` says why they
            wait.
    """

    namespace: str
    name: str
    phase: str
    pods: int
    pending: int
    placed: int
    running: int
    min_member: int
    pod_group: bool
    submitted_at: str
    placed_at: str
    message: str
    why: str


class GangsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of gangs that have pods at one moment, by namespace and name.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    gangs: list[GangItem]
    after: str | None


async def read_gangs(reading: Reading, query: GangsQuery) -> GangsAnswer:
    connection, moment, limit = reading.connection, reading.moment, query.limit
    namespace, _, gang = query.after.partition("/")
    asked = {
        "position": moment.position,
        "based_until": moment.based_until,
        "after_namespace": namespace,
        "after_gang": gang,
        "limit": limit,
    }
    statement = text(_GANGS.format(pods=HELD_PODS[moment.live], why_pending=WHY_PENDING))
    rows = (await connection.execute(statement, asked)).all()
    ids = [gang_ref(row.namespace, row.gang).id for row in rows]
    groups = [custom_ref("podgroups", row.namespace, row.gang).id for row in rows]
    gangs = await states_at(connection, moment, "gang", ids)
    documents = await states_at(connection, moment, "customspec", groups)
    members = await states_at(connection, moment, "podspec", [row.member for row in rows])
    return GangsAnswer(
        moment=moment,
        gangs=[
            _item(row, gangs.get(id_), documents.get(group), members.get(row.member))
            for row, id_, group in zip(rows, ids, groups, strict=True)
        ],
        after=f"{rows[-1].namespace}/{rows[-1].gang}" if len(rows) == limit else None,
    )


def _item(
    row: Row[Any], gang: AggregateState | None, group: AggregateState | None, member: AggregateState | None
) -> GangItem:
    document = group.object if isinstance(group, CustomObjectState) else None
    status = gang.status if isinstance(gang, GangState) else None
    least = _min_of_pod(member) if document is None else _min_of_group(document)
    name, placed = f"{row.namespace}/{row.gang}", row.placed + row.running
    exist = row.pending + placed
    return GangItem(
        namespace=row.namespace,
        name=row.gang,
        phase="" if status is None else status.phase,
        pods=row.pods,
        pending=row.pending,
        placed=row.placed,
        running=row.running,
        min_member=least,
        pod_group=document is not None,
        submitted_at=row.submitted_at,
        placed_at=row.placed_at,
        message="" if row.explanation is None else _message_of(row.explanation),
        why=gang_sentence(GangProgress(gang=name, needs=least, exist=exist, placed=placed)) if exist < least else "",
    )


def _min_of_group(document: Mapping[str, Any]) -> int:
    spec = document.get("spec")
    found = cast("Mapping[str, object]", spec).get("minMember") if isinstance(spec, Mapping) else None
    return found if isinstance(found, int) else 0


def _min_of_pod(state: AggregateState | None) -> int:
    if not isinstance(state, PodSpecState):
        return 0
    try:
        return parse_gang_min_num(state.object.metadata.labels, state.object.metadata.annotations)
    except InvalidInput:
        return 0


def _message_of(body: str) -> str:
    found: dict[str, Any] = msgspec.json.decode(body)
    return str(found.get("message") or found.get("reason") or "")
