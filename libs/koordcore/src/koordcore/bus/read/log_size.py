"""Watch how full the stream of facts is: an alert fires at 70 %, new work waits from 90 %, a full stream refuses facts.

The last tenth is for facts that follow from earlier work: releases, evictions, what agents report, mirrored objects.

Source: event-bus spec, 7.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

import msgspec

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, api

SHORT_FROM: Final = 0.9  # Part of the largest size from which no new work is accepted
_PAUSE_SECONDS: Final = 30.0


@dataclass(slots=True, kw_only=True)
class LogRoom:
    """The size of the stream of facts at the last look. `watch_log_size` sets it."""

    used: int = 0  # Size in bytes
    limit: int = 0  # Largest size in bytes; 0 if it is not known yet, -1 if there is none

    def trouble(self) -> str | None:
        """Return why new work has to wait, one sentence; None if there is room."""
        if self.limit <= 0 or self.used < SHORT_FROM * self.limit:
            return None
        return (
            f"the log has used {self.used / self.limit:.0%} of its {self.limit:,} bytes; new work waits from"
            f" {SHORT_FROM:.0%} on, until an operator enlarges it (koord bus bootstrap --log-size)"
        )


class _State(msgspec.Struct):
    bytes: int


class _Config(msgspec.Struct):
    max_bytes: int


class _Info(msgspec.Struct):
    state: _State
    config: _Config


async def watch_log_size(
    connection: BusConnection, names: BusNames, metrics: BusMetrics, room: LogRoom, *, pause: float = _PAUSE_SECONDS
) -> None:
    """Look at the size of the stream of facts and its limit again and again, until cancelled. If the server does not
    answer, the last figures stay.

    Args:
        connection: Connection of a user that may read the settings of the stream.
        room: Is set to the figures.
        pause: Real seconds between two looks.
    """
    while True:
        with contextlib.suppress(NoAnswer, NotConnected, ApiError):
            answer = await api(connection, f"$JS.API.STREAM.INFO.{names.ev}", b"")
            info = msgspec.json.decode(answer, type=_Info)
            room.used, room.limit = info.state.bytes, info.config.max_bytes
            metrics.log_size(room.used, room.limit)
        await asyncio.sleep(pause)
