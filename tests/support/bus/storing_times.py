"""When the streams of a test store what they are told: the days of tests are fixed, and a server's clock is not."""

from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import HEADER_OCCURRED_AT
from koordcore.values.timestamps import unix_seconds


def stored_when_told(*logs: MemoryLog) -> None:
    """Let streams store each message when its writer says that it occurred, because the days of tests are fixed."""
    for log in logs:
        log.time_of_storing = lambda headers: int(unix_seconds(headers.get(HEADER_OCCURRED_AT, "")) * 1e6) * 1000
