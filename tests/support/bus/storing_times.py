"""When the streams of a test store what they are told: the days of tests are fixed, and a server's clock is not."""

from collections.abc import Mapping
from typing import Final

from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import HEADER_OCCURRED_AT
from koordcore.values.timestamps import unix_seconds

LATEST_NS: Final = 2**63 - 1
"""A server counts the nanoseconds since 1970 in 64 bits with a sign: it stores nothing after the year 2262."""


def stored_when_told(*logs: MemoryLog) -> None:
    """Let streams store each message when its writer says that it occurred, because the days of tests are fixed."""
    for log in logs:
        log.time_of_storing = _occurred_ns


def _occurred_ns(headers: Mapping[str, str]) -> int:
    return min(int(unix_seconds(headers.get(HEADER_OCCURRED_AT, "")) * 1e6) * 1000, LATEST_NS)
