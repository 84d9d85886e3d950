"""Search over everything: pods, nodes, other objects and facts whose name, uid, id or position matches a text."""

from typing import Annotated, Any, Final

import msgspec
from koordcore.events.envelope import name_from_token, name_token
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.events import SCANNED, EventItem, event_item
from koord_projector.read.moments import Moment, living_then
from koord_projector.read.pods import PodItem, PodsQuery, list_pods

SEARCHED_KINDS: Final = (
    "customspec", "config", "quotaprofile", "recommendation", "namespace", "priorityclass", "workloadspec", "migration",
    "drain", "draingroup",
)  # fmt: skip
"""Kinds of aggregates that are searched by their ids, besides pods and nodes."""

_NODES: Final = text(
    """
    SELECT n.token FROM node_names AS n
     CROSS JOIN LATERAL (
           SELECT "exists" FROM node_versions WHERE token = n.token AND seq <= :position ORDER BY seq DESC LIMIT 1
     ) AS v
     WHERE v."exists" AND position(:token in n.token) > 0 ORDER BY n.token LIMIT :limit
    """
)
_OBJECTS_NOW: Final = text(
    """
    SELECT kind, id FROM aggregates WHERE kind = ANY(:kinds) AND position(:token in id) > 0
     ORDER BY kind, id LIMIT :limit
    """
)
_OBJECTS_THEN: Final = text(
    f"""
    SELECT kind, id FROM ({living_then("kind = ANY(:kinds) AND position(:token in id) > 0")}) AS q
     ORDER BY kind, id LIMIT :limit
    """  # noqa: S608  constants
)
_FACTS: Final = text(
    """
    SELECT * FROM events WHERE seq = :seq AND seq <= :position
    UNION ALL (
    SELECT * FROM events
     WHERE seq > :since AND seq <= :position AND seq <> :seq
       AND (event_id = :text OR correlation_id = :text OR type = :text
            OR (length(:text) = 32 AND position(:text in traceparent) > 0))
     ORDER BY seq DESC LIMIT :limit
    ) ORDER BY seq DESC LIMIT :limit
    """
)


class SearchQuery(Query, frozen=True, kw_only=True):
    text: Annotated[Text, about("A part of a name, a uid, a position, or the id of a fact or trace.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100), about("Results of each kind.")] = 20
    at: At = ""


class FoundObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that matches a search.

    Attributes:
        kind: Kind of its aggregate.
        id: Id of its aggregate.
        resource: Plural of a custom resource, such as `reservations`; otherwise `kind`.
        namespace: Its namespace; "" if it has none.
        name: Its name.
    """

    kind: str
    id: str
    resource: str
    namespace: str
    name: str


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that match a text at one moment. Each list has the same largest number of results.

    Attributes:
        pods: Pods whose `namespace/name` contains the text or whose uid is the text, newest submission first.
        pods_total: Number of all such pods.
        nodes: Names of nodes that contain the text.
        objects: Other objects whose namespace, name or resource contains the text.
        facts: Facts up to the moment, newest first: the fact at the position that the text states, and those of the
            newest 200,000 whose id, trace, correlation or type is the text.
    """

    moment: Moment
    pods: list[PodItem]
    pods_total: int
    nodes: list[str]
    objects: list[FoundObject]
    facts: list[EventItem]


async def search_everything(reading: Reading, query: SearchQuery) -> SearchAnswer:
    """Nothing is found for an empty text."""
    connection, moment, limit, wanted = reading.connection, reading.moment, query.limit, query.text.strip()
    if not wanted:
        return SearchAnswer(moment=moment, pods=[], pods_total=0, nodes=[], objects=[], facts=[])
    pods = await list_pods(reading, PodsQuery(text=wanted, limit=limit))
    asked: dict[str, Any] = {
        # An object's name is lower case; "shop/web" names an object as its id does: "shop=web".
        "token": name_token(wanted.lower()).replace("/", "="),
        "kinds": list(SEARCHED_KINDS),
        "position": moment.position,
        "limit": limit,
    }
    nodes = await connection.execute(_NODES, asked)
    objects = await connection.execute(_OBJECTS_NOW if moment.live else _OBJECTS_THEN, asked)
    return SearchAnswer(
        moment=moment,
        pods=pods.pods,
        pods_total=pods.total,
        nodes=[name_from_token(row.token) for row in nodes],
        objects=[_object(row.kind, row.id) for row in objects],
        facts=await _facts(connection, moment, wanted, limit),
    )


async def _facts(connection: AsyncConnection, moment: Moment, wanted: str, limit: int) -> list[EventItem]:
    is_position = wanted.isascii() and wanted.isdigit() and len(wanted) < 19
    asked = {
        "seq": int(wanted) if is_position else 0,
        "since": max(0, moment.position - SCANNED),
        "position": moment.position,
        "text": wanted,
        "limit": limit,
    }
    return [event_item(row, with_body=False) for row in await connection.execute(_FACTS, asked)]


def _object(kind: str, id_: str) -> FoundObject:
    """The id of an aggregate is `[<plural>=][<namespace>=]<name>` with tokens for names."""
    *before, name = id_.split("=")
    resource = before.pop(0) if kind == "customspec" and before else kind
    namespace = before[0] if before else ""
    return FoundObject(
        kind=kind, id=id_, resource=resource, namespace=name_from_token(namespace), name=name_from_token(name)
    )
