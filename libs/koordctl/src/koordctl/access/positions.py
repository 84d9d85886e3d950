"""Translation between positions of the log and times.

The times are those in the events, so they follow the clock of the run, which may be faster than the host's clock.
"""

from datetime import UTC, datetime

from koordctl.access.log import OpenLog
from koordctl.render.output import fail

LOOK_AHEAD = 50


def given_position(option: str, text: str, last: int) -> int | None:
    """Return the value of an option as a position of the log, or None if it is not a number.

    If the log does not have the position yet, end the command with exit status 1.

    Args:
        option: Name of the option, for the error.
        text: Its value.
        last: Last position of the log.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) > last:
        fail(f"{option} {text}: the log ends at {last}")
    return int(text)


def parse_moment(text: str) -> datetime:
    """Convert an RFC 3339 text to a time; a text without an offset is UTC.

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def first_at(log: OpenLog, text: str, *, from_first: bool = False) -> int:
    """Return the position of the first event that happened at or after a time.

    The result is one past the end of the log if there is no such event. It is found by binary search. Events of
    several writers may be out of order by the duration of an append, so the result may be off by that many positions.

    Args:
        log: The log.
        text: RFC 3339 time, by the clock of the events. It differs from the host's clock if the stack runs with
            `--speed`. A time without an offset is UTC.
        from_first: Whether the first fact of the log may be the result although earlier ones were dropped. Otherwise,
            the command ends with an error.

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
    if low == head.first_seq > 1 and not from_first:
        fail(f"{text}: the log begins at position {head.first_seq}; earlier facts are in the archive, name a position")
    return low


async def _happened(log: OpenLog, seq: int, below: int) -> datetime | None:
    """Return the time of the first event from position `seq` on, or None if none of the next positions has one.

    At most `LOOK_AHEAD` positions are tried, and none from `below` on.
    """
    for position in range(seq, min(seq + LOOK_AHEAD, below)):
        stored = await log.facts.at(position)
        if stored is not None and stored.occurred_at:
            return parse_moment(stored.occurred_at)
    return None
