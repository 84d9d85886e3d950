"""An attempt to connect ends when it is given up, also if the client loses the cancellation."""

import asyncio
import contextlib

import pytest
from koordcore import ending
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import open_connection


async def test_an_attempt_ends_although_the_client_loses_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """nats-py waits with `asyncio.wait_for`, which may lose it until Python 3.12, and then tries the next server."""
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    settings = ConnectionSettings(urls=("nats://127.0.0.1:1",), connect_seconds=None)
    connection, waits = BusConnection(settings), asyncio.Event()

    async def tries_for_ever(*_: object, **__: object) -> None:
        waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(connection.client, "connect", tries_for_ever)
    opening = asyncio.create_task(open_connection(connection))
    await waits.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(opening, 10)
    assert connection.client.is_closed
