"""Where a moment lies in the log. Times are those of the events themselves: the run's clock, scaled or not."""

from datetime import UTC, datetime

from koordctl.access.log import OpenLog
from koordctl.render.output import fail

LOOK_AHEAD = 50


def given_position(option: str, text: str, last: int) -> int | None:
    """The position that a text is; None when it is no number. Ends the command for one that the log does not have yet:
    the question is understood, and there is nothing to answer.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) > last:
        fail(f"{option} {text}: the log ends at {last}")
    return int(text)


def parse_moment(text: str) -> datetime:
    """An RFC 3339 text; without an offset it is UTC.

    raises    ValueError
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def first_at(log: OpenLog, text: str) -> int:
    """The first position whose event happened at or after a time; one past the end when there is none.

    Events of several writers may be out of order by the time that an append takes, which moves the answer by as many
    positions: found by halving, not by reading everything.
    raises    ValueError when the text is no time
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
    """When the first readable event from `seq` on happened; None when none is found nearby."""
    for position in range(seq, min(seq + LOOK_AHEAD, below)):
        stored = await log.facts.at(position)
        if stored is not None and stored.occurred_at:
            return parse_moment(stored.occurred_at)
    return None
