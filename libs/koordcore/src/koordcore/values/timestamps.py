"""RFC 3339 texts of events: UTC, microseconds, always 27 characters, so that text order is time order."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """`2026-11-21T08:00:00.000000Z` of an aware time.

    source    event-bus spec, 3.1
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
