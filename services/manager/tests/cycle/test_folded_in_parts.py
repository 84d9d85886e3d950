"""A burst of facts is folded in parts: whoever else runs in the loop, admission first of all, gets its turns."""

import asyncio
import contextlib
import itertools

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.folding import FOLDED_AT_ONCE, view_runner
from koordcore.bus.factory import memory_bus
from koordcore.bus.folds.foldable import Folded
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.objects import NamespaceObserved
from koordcore.protocol.objects import Namespace, ObjectMeta


async def test_others_get_a_turn_every_hundred_events() -> None:
    bus, view, told = memory_bus(), ManagerView(), list[int]()
    for number in range(1000):
        name = f"team-{number}"
        ref = AggregateRef("namespace", name)
        origin = Origin(causation_id=name, correlation_id=name, actor="t", occurred_at="2026-01-01T00:00:00.000000Z")
        event = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=name)))
        await bus.events.append(CATALOGUE.seal([Draft(ref, event, 0)], origin))

    async def news(events: list[Folded]) -> None:
        told.append(len(events))

    runner = view_runner(view, bus, news)
    folding = asyncio.create_task(runner.run())
    seen = [0]
    while seen[-1] < 1000:
        seen.append(view.state.position)
        await asyncio.sleep(0)
    folding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await folding

    assert max(after - before for before, after in itertools.pairwise(seen)) <= FOLDED_AT_ONCE
    assert sum(told) == 1000
