"""Reports how full the stream of facts is. A full stream refuses appends, so an alert must fire before.

Source:
    event-bus spec, 7
"""

import asyncio
import contextlib
from typing import Final

import msgspec

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, api

_PAUSE_SECONDS: Final = 30.0


class _State(msgspec.Struct):
    bytes: int


class _Config(msgspec.Struct):
    max_bytes: int


class _Info(msgspec.Struct):
    state: _State
    config: _Config


async def report_log_size(
    connection: BusConnection, names: BusNames, metrics: BusMetrics, *, pause: float = _PAUSE_SECONDS
) -> None:
    """Report the size of the stream of facts and its limit again and again, until cancelled.

    If the server does not answer, the last figures stay.

    Args:
        connection: Connection of a user that may read the settings of the stream.
        names: Names of the cluster.
        metrics: Receives the figures.
        pause: Real seconds between two looks.
    """
    while True:
        with contextlib.suppress(NoAnswer, NotConnected, ApiError):
            answer = await api(connection, f"$JS.API.STREAM.INFO.{names.ev}", b"")
            info = msgspec.json.decode(answer, type=_Info)
            metrics.log_size(info.state.bytes, info.config.max_bytes)
        await asyncio.sleep(pause)
