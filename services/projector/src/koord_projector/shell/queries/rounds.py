"""Rounds of the descheduler as of a moment: the newest one in full, and the rounds before it in short."""

from typing import Final

import msgspec
from koordcore.events.descheduling import RoundAttempt, RoundEnded
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.domain.explanations import ROUND
from koord_projector.shell.queries.moments import Moment

_ROUNDS: Final = text(
    "SELECT occurred_at, actor, based_on, body FROM explanations"
    " WHERE uid = :uid AND occurred_at <= :until ORDER BY occurred_at DESC LIMIT :count"
)
_decode = msgspec.json.Decoder(RoundEnded).decode


class RoundItem(msgspec.Struct, frozen=True, kw_only=True):
    """One round of the descheduler in a list.

    Attributes:
        occurred_at: RFC 3339 time of its end.
        actor: Instance that ran it.
        based_on: Position of the log on which it was based.
        seconds: Duration of its decisions, in seconds of the host.
        under: Number of nodes that could take pods.
        over: Number of nodes that used too much.
        results: Result of an attempt -> number of pods.
        attempts: Pods that plugins chose.
    """

    occurred_at: str
    actor: str
    based_on: int
    seconds: float
    under: int
    over: int
    results: dict[str, int]
    attempts: list[RoundAttempt]


class RoundsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of the descheduler up to one moment.

    Attributes:
        round: The newest round in full; null if there was none.
        rounds: The newest rounds, newest first.
    """

    moment: Moment
    round: RoundEnded | None
    rounds: list[RoundItem]


async def list_rounds(connection: AsyncConnection, moment: Moment, *, limit: int) -> RoundsAnswer:
    """Return the newest rounds.

    Args:
        connection: Read transaction.
        moment: Rounds after it are left out.
        limit: Largest number of rounds.
    """
    rows = (await connection.execute(_ROUNDS, {"uid": ROUND, "until": moment.until, "count": limit})).all()
    rounds = [_decode(row.body) for row in rows]
    return RoundsAnswer(
        moment=moment,
        round=rounds[0] if rounds else None,
        rounds=[
            RoundItem(
                occurred_at=row.occurred_at,
                actor=row.actor,
                based_on=row.based_on,
                seconds=each.seconds,
                under=sum(len(pool.under) for pool in each.classified),
                over=sum(len(pool.over) for pool in each.classified),
                results=each.results,
                attempts=each.attempts,
            )
            for row, each in zip(rows, rounds, strict=True)
        ],
    )
