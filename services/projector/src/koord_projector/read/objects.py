"""Aggregates of the log as of a moment: the state of one, and pages of those of one kind."""

from typing import Annotated, Any

import msgspec
from koordcore.state.registry import STATE_TYPES
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from sqlalchemy import text

from koord_projector.read.endpoint import At, Query, Reading, Text, about
from koord_projector.read.moments import Moment, living_then, state_at, states_at

# The column `id` is ordered by code points: with a prefix, ids end before the prefix and the greatest code point.
_WANTED = "kind = :kind AND id > :after AND id >= :prefix AND id < :end"
_IDS_NOW = text(f"SELECT id, state FROM aggregates WHERE {_WANTED} ORDER BY id LIMIT :limit")  # noqa: S608  constants
_IDS_THEN = text(f"SELECT id FROM ({living_then(_WANTED)}) AS q ORDER BY id LIMIT :limit")  # noqa: S608  constants
_GREATEST = chr(0x10FFFF)


class ObjectQuery(Query, frozen=True, kw_only=True):
    kind: Annotated[Text, about("Kind of the aggregate.")]
    id: Annotated[Text, about("Its id as in the subject.")]
    at: At = ""


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one aggregate at one moment. `state` is null if the aggregate did not exist."""

    moment: Moment
    kind: str
    id: str
    state: dict[str, Any] | None


async def read_object(reading: Reading, query: ObjectQuery) -> ObjectAnswer:
    _require_kind(query.kind)
    state = await state_at(reading.connection, reading.moment, query.kind, query.id)
    return ObjectAnswer(moment=reading.moment, kind=query.kind, id=query.id, state=state)


class ObjectsQuery(Query, frozen=True, kw_only=True):
    kind: Annotated[Text, about("Kind of the aggregates.")]
    after: Annotated[Text, about("Only ids after this one.")] = ""
    prefix: Annotated[Text, about("Only ids that begin with this text, such as elasticquotas=.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000), about("Objects per page.")] = 100
    at: At = ""


class ObjectsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of aggregates of one kind at one moment, by id.

    Attributes:
        after: Value of the parameter `after` for the next page; null on the last one.
    """

    moment: Moment
    kind: str
    objects: list[ObjectAnswer]
    after: str | None


async def list_objects(reading: Reading, query: ObjectsQuery) -> ObjectsAnswer:
    """Aggregates that do not exist at the moment are left out."""
    kind, moment = _require_kind(query.kind), reading.moment
    asked = {
        "kind": kind,
        "after": query.after,
        "prefix": query.prefix,
        "end": query.prefix + _GREATEST,
        "limit": query.limit,
        "position": moment.position,
    }
    rows = (await reading.connection.execute(_IDS_NOW if moment.live else _IDS_THEN, asked)).all()
    ids = [row.id for row in rows]
    if moment.live:
        found: dict[str, Any] = {row.id: msgspec.json.decode(row.state) for row in rows}
    else:
        states = await states_at(reading.connection, moment, kind, ids)
        found = {id_: msgspec.json.decode(codec.encode_canonical(state)) for id_, state in states.items()}
    return ObjectsAnswer(
        moment=moment,
        kind=kind,
        objects=[ObjectAnswer(moment=moment, kind=kind, id=id_, state=found[id_]) for id_ in ids if id_ in found],
        after=ids[-1] if len(ids) == query.limit else None,
    )


def _require_kind(kind: str) -> str:
    if kind not in STATE_TYPES:
        raise InvalidInput(f"one of {', '.join(sorted(STATE_TYPES))}", kind, "kind")
    return kind
