"""RFC 3339 times of events: UTC with microseconds, always 27 characters, so that text order is time order."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(moment: datetime) -> str:
    """Format a time (with time zone) as RFC 3339 in UTC with microseconds: `2026-11-21T08:00:00.000000Z`.

    Source: event-bus spec, 3.1.
    """
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def unix_seconds(text: str) -> float:
    """Parse an RFC 3339 time into unix seconds; 0.0 if the text is not a valid time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def unix_nanos(moment: datetime) -> int:
    """Return the last nanosecond of the microsecond of a time (with time zone), since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + 999
