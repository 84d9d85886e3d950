"""RFC 3339 texts of events: UTC, microseconds, always 27 characters, so that text order is time order."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """`2026-11-21T08:00:00.000000Z` of an aware time.

    Source:
        event-bus spec, 3.1
    """
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def unix_seconds(text: str) -> float:
    """Return unix seconds of an RFC 3339 time; 0.0 for a text that is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
