"""Positions of the log for times and option values. Times are those of the events: the run's clock, scaled or not."""

from datetime import UTC, datetime

from koordctl.access.log import OpenLog
from koordctl.render.output import fail

LOOK_AHEAD = 50


def given_position(option: str, text: str, last: int) -> int | None:
    """Return the position that `text` names, or None if `text` is not a number.

    If the log does not have the position yet, end the command with exit status 1.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) > last:
        fail(f"{option} {text}: the log ends at {last}")
    return int(text)


def parse_moment(text: str) -> datetime:
    """Return the time of an RFC 3339 text; without an offset it is UTC.

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def first_at(log: OpenLog, text: str) -> int:
    """Return the first position whose event happened at or after a time; one past the end if there is none.

    The search halves the log. Events of several writers may be out of order by the duration of an append, so the answer
    may be off by that many positions.

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    wanted = parse_moment(text)
    head = await log.bus.events.head()
    low, high = head.first_seq, head.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        at = await _happened(log, middle, high)
        if at is not None and at < wanted:
            low = middle + 1
        else:
            high = middle
    return low


async def _happened(log: OpenLog, seq: int, below: int) -> datetime | None:
    """Return when the first readable event from `seq` on happened, or None if there is none within `LOOK_AHEAD`."""
    for position in range(seq, min(seq + LOOK_AHEAD, below)):
        stored = await log.facts.at(position)
        if stored is not None and stored.occurred_at:
            return parse_moment(stored.occurred_at)
    return None
