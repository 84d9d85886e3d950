"""A running recorder of Kubernetes events and conditions, for tests of the gateway."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.shell.gateway.event_recorder import EventRecorder
from koordcore.bus.factory import memory_bus
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import logger


@contextlib.asynccontextmanager
async def recording(
    api: Any,
    pending: PendingWrites,
    view: ManagerView | None = None,
    explanations: ObservationLog | None = None,
    *,
    true_reasons: bool = True,
) -> AsyncGenerator[EventRecorder]:
    """Run a recorder until the context ends."""
    explanations, clock, log = explanations or memory_bus().explanations, SystemClock(), logger("t")
    view = view or ManagerView()
    recorder = EventRecorder(api, view, pending, explanations, clock, log, "t", true_reasons=true_reasons)
    running = [asyncio.create_task(recorder.say()), asyncio.create_task(recorder.listen())]
    try:
        yield recorder
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
