"""Marks of the time axis: changes of configuration, evictions and disturbances, which explain what follows them."""

from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.descheduling import DeschedulerConfigured
from koordcore.events.envelope import Event
from koordcore.events.gateway import PodEvicted
from koordcore.events.nodestate import InterferenceDetected, PodsEvictedByAgent
from koordcore.events.objects import ConfigAccepted, ConfigDeleted, ConfigRejected
from koordcore.stories.sentences import summarize
from sqlalchemy import text

from koord_projector.read.endpoint import After, Before, Query, Reading, about
from koord_projector.read.moments import END_OF_TIME, Moment, resolve


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
    after: After = 0
    before: Before | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Marks of each kind of fact.")] = 300


class MarksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The newest marks of each kind of fact between two positions, oldest first.

    Attributes:
        complete_after: Position behind which no mark is missing. It is the parameter `after`, unless a kind of fact has
            more marks than `limit`.
    """

    moment: Moment
    marks: list[Mark]
    complete_after: int


# What the sentence of a type needs of the body; the other types need nothing. A ConfigMap may have 1 MiB. Postgres
# reads no JSON with a NUL character in it.
_BODIES: Final[dict[type[Event], str]] = {
    ConfigRejected: r"""
        CAST(json_build_object('reasons', CAST(replace(body, '\u0000', '\ufffd') AS json) -> 'reasons') AS text)
    """,
    PodEvicted: "body",
    PodsEvictedByAgent: "body",
    InterferenceDetected: "body",
}
# The type is a constant of the statement, so that the planner sees that a partial index has these facts.
_OF_TYPE: Final = """
    (SELECT seq, kind, id, type, occurred_at, {body} AS body FROM events
      WHERE type = '{type}' AND seq > :after AND seq < :before ORDER BY seq DESC LIMIT :limit)
"""


def newest_of(*types: type[Event]) -> str:
    """The statement for the newest facts of these types together."""
    each = (_OF_TYPE.format(type=type_.__name__, body=_BODIES.get(type_, "'{}'")) for type_ in types)
    return f"SELECT * FROM ({' UNION ALL '.join(each)}) AS q ORDER BY seq DESC LIMIT :limit"  # noqa: S608  constants


STATEMENTS: Final = (
    (MarkKind.CONFIGURATION, newest_of(ConfigAccepted, ConfigRejected, ConfigDeleted)),
    (MarkKind.CONFIGURATION, newest_of(DeschedulerConfigured)),
    (MarkKind.EVICTION, newest_of(PodEvicted)),
    (MarkKind.EVICTION, newest_of(PodsEvictedByAgent)),
    (MarkKind.DISTURBANCE, newest_of(InterferenceDetected)),
)
"""The facts of each kind that are marked."""


async def read_marks(reading: Reading, query: MarksQuery) -> MarksAnswer:
    before = END_OF_TIME if query.before is None else query.before
    asked: dict[str, Any] = {"after": query.after, "before": before, "limit": query.limit + 1}
    marks: list[Mark] = []
    complete_after = query.after
    for kind, statement in STATEMENTS:
        rows = list(await reading.connection.execute(text(statement), asked))
        if len(rows) > query.limit:
            complete_after = max(complete_after, rows.pop().seq)
        marks += [
            Mark(
                seq=row.seq,
                kind=kind,
                type=row.type,
                occurred_at=row.occurred_at,
                summary=summarize(row.type, row.kind, row.id, msgspec.json.decode(row.body)),
            )
            for row in rows
        ]
    return MarksAnswer(
        moment=await resolve(reading.connection, None),
        marks=sorted(marks, key=lambda each: each.seq),
        complete_after=complete_after,
    )
