"""The query parameter `at`: a position and its time.

A position is taken as it is. A time means: everything up to the newest fact that had happened by then, by the facts'
own times (`occurred_at <= t`); among facts of the same time the last one in the log.
"""

from datetime import datetime

import msgspec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

END_OF_TIME = "~"
"""Greater than any time's text."""

_POSITION = text("SELECT position FROM projection WHERE stream = 'ev'")
_AT_POSITION = text("SELECT seq, occurred_at FROM events WHERE seq <= :seq ORDER BY seq DESC LIMIT 1")
_AT_TIME = text(
    """
    SELECT seq, occurred_at FROM events WHERE left(occurred_at, 27) <= :time
     ORDER BY left(occurred_at, 27) DESC, seq DESC LIMIT 1
    """
)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of the cluster.

    Attributes:
        position: Newest fact that is part of it; 0: before the first.
        occurred_at: Its own time, "" at 0.
        live: The present, not a moment that was asked for.
    """

    position: int
    occurred_at: str
    live: bool

    @property
    def until(self) -> str:
        """Time up to which observations belong to the moment."""
        return END_OF_TIME if self.live else self.occurred_at


async def resolve(connection: AsyncConnection, at: str | None) -> Moment:
    """Return the moment that the query names; None or "": the present, as far as it is folded.

    Raises:
        InvalidInput: What is neither a position of the log so far nor an RFC 3339 time with its zone.
    """
    position = (await connection.execute(_POSITION)).scalar() or 0
    if not at:
        row = (await connection.execute(_AT_POSITION, {"seq": position})).first()
        return Moment(position=position, occurred_at=row.occurred_at if row else "", live=True)
    if at.isascii() and at.isdigit():
        seq = int(at) if len(at) < 19 else position + 1
        if seq > position:
            raise InvalidInput(f"a position up to {position}, or an RFC 3339 time", at, "at")
        row = (await connection.execute(_AT_POSITION, {"seq": seq})).first()
        return Moment(position=seq, occurred_at=row.occurred_at if row else "", live=False)
    row = (await connection.execute(_AT_TIME, {"time": _normal_time(at)})).first()
    return Moment(position=row.seq if row else 0, occurred_at=row.occurred_at if row else "", live=False)


def _normal_time(at: str) -> str:
    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError
        return rfc3339(moment)
    except (ValueError, OverflowError):
        raise InvalidInput("a position (digits) or an RFC 3339 time with its zone", at, "at") from None
