"""Kubernetes events are written beside nominated nodes and conditions, however many of these there are."""

import asyncio
import contextlib
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.domain.gateway.pod_status_writes import scheduled
from koord_manager.shell.gateway.api import ApiResponse
from koord_manager.shell.gateway.event_recorder import EventRecorder
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.mirror import PodSpecAdded
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import logger
from support.histories import stored
from support.until import until


class Api:
    """An API server that accepts everything. After each write of a nominated node, another one waits."""

    def __init__(self, pending: PendingWrites) -> None:
        self.pending = pending
        self.events = 0

    async def request(self, method: str, path: str, **_: Any) -> ApiResponse:
        await asyncio.sleep(0)
        if "/events" in path:
            self.events += 1
        else:
            self.pending.nominated["u"] = "n"
        return ApiResponse(200, b"{}")


async def test_events_do_not_wait_for_conditions_that_keep_coming() -> None:
    view, pending = ManagerView(), PendingWrites()
    pod = Pod(metadata=ObjectMeta(name="web", namespace="d", uid="u"))
    view.fold(stored(1, Draft(AggregateRef("podspec", "u"), PodSpecAdded(object=pod), 0)))
    pending.nominated["u"] = "n"
    pending.events.extend(scheduled(f"u{number}", "d", f"web-{number}", "n") for number in range(20))
    api = Api(pending)
    given: Any = api
    words = EventRecorder(given, view, pending, memory_bus().explanations, SystemClock(), logger("t"), "t")
    saying = asyncio.create_task(words.say())
    try:
        await until(lambda: api.events == 20)
        pending.events.append(scheduled("late", "d", "late", "n"))
        words.wake()
        await until(lambda: api.events == 21)
    finally:
        saying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await saying
