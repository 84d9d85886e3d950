"""Marks of the time axis: changes of configuration, evictions and disturbances, which explain what follows them."""

from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.descheduling import DeschedulerConfigured
from koordcore.events.gateway import PodEvicted
from koordcore.events.nodestate import InterferenceDetected, PodsEvictedByAgent
from koordcore.events.objects import ConfigAccepted, ConfigDeleted, ConfigRejected
from koordcore.stories.sentences import summarize
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.endpoint import Query, Reading, about
from koord_projector.read.moments import Moment, resolve

# `seq + 0`: the planner must not read the table backwards by `seq`, because few facts are of these kinds.
_OF_KIND: Final = text(
    """
    SELECT seq, kind, id, type, occurred_at, body FROM events
     WHERE kind = :kind AND type = ANY(:types) ORDER BY seq + 0 DESC LIMIT :limit
    """
)
# The type is a constant of the statement, so that the planner sees that the index `disturbances` has these facts.
_OF_AGENTS: Final = """
    SELECT seq, kind, id, type, occurred_at, body FROM events WHERE type = '{type}' ORDER BY seq DESC LIMIT :limit
"""


class MarkKind(StrEnum):
    CONFIGURATION = "configuration"
    EVICTION = "eviction"
    DISTURBANCE = "disturbance"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that is marked on the time axis. `summary`: the fact in one line."""

    seq: int
    kind: MarkKind
    type: str
    occurred_at: str
    summary: str


class MarksQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Marks of each kind of fact.")] = 300


class MarksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The newest marks of each kind of fact, oldest first."""

    moment: Moment
    marks: list[Mark]


_KINDS: Final = (
    ("config", MarkKind.CONFIGURATION, (ConfigAccepted, ConfigRejected, ConfigDeleted)),
    ("descheduler", MarkKind.CONFIGURATION, (DeschedulerConfigured,)),
    ("eviction", MarkKind.EVICTION, (PodEvicted,)),
)
_AGENTS: Final = ((MarkKind.EVICTION, PodsEvictedByAgent), (MarkKind.DISTURBANCE, InterferenceDetected))


async def read_marks(reading: Reading, query: MarksQuery) -> MarksAnswer:
    connection, limit = reading.connection, query.limit
    marks: list[Mark] = []
    for kind, mark, types in _KINDS:
        asked = {"kind": kind, "types": [each.__name__ for each in types], "limit": limit}
        marks += await _marks(connection, _OF_KIND, asked, mark)
    for mark, type_ in _AGENTS:
        marks += await _marks(connection, text(_OF_AGENTS.format(type=type_.__name__)), {"limit": limit}, mark)
    return MarksAnswer(moment=await resolve(connection, None), marks=sorted(marks, key=lambda each: each.seq))


async def _marks(connection: AsyncConnection, statement: Any, asked: dict[str, Any], kind: MarkKind) -> list[Mark]:
    return [
        Mark(
            seq=row.seq,
            kind=kind,
            type=row.type,
            occurred_at=row.occurred_at,
            summary=summarize(row.type, row.kind, row.id, msgspec.json.decode(row.body)),
        )
        for row in await connection.execute(statement, asked)
    ]
