"""A whole cluster is decided without blocking the other tasks of the event loop."""

import asyncio

from koord_manager.shell.reconcile import KEYS_AT_ONCE, reconcile
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects import NamespaceObserved
from koordcore.protocol.objects import Namespace, ObjectMeta
from support.manager.loops import Manager, running


async def test_other_tasks_run_in_between_and_every_key_is_decided_once_in_order() -> None:
    names = [f"n{number:03}" for number in range(5 * KEYS_AT_ONCE + 1)]
    manager, slices = Manager(MemoryLog()), 0

    async def admission() -> None:
        nonlocal slices
        while True:
            slices += 1
            await asyncio.sleep(0)

    seen: list[tuple[str, int]] = []

    def decide(name: str) -> list[list[Draft]]:
        seen.append((name, slices))
        event = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=name)))
        return [[Draft(AggregateRef("namespace", name), event, 0)]]

    other = asyncio.create_task(admission())
    async with running(manager):
        drafts = await reconcile(manager.context, "c", names, decide, manager.clock.now())
    other.cancel()
    assert [draft.ref.id for draft in drafts] == [name for name, _ in seen] == names
    assert seen[-1][1] - seen[0][1] >= 5


async def test_the_keys_of_a_controller_that_fails_stay_queued() -> None:
    manager = Manager(MemoryLog())

    def decide(_: str) -> list[list[Draft]]:
        raise asyncio.CancelledError

    try:
        await reconcile(manager.context, "c", ["a", "b"], decide, manager.clock.now())
    except asyncio.CancelledError:
        assert manager.view.queue.take("c") == ["a", "b"]


async def test_a_pod_whose_eviction_failed_once_can_be_evicted_later() -> None:
    manager, ref = Manager(MemoryLog()), AggregateRef("eviction", "u")
    request = PodEvictionRequested(namespace="d", name="p", initiator="agent", reason="Evicted")

    async def stored(event: Event) -> int:
        def decide(_: str) -> list[list[Draft]]:
            return [[Draft(ref, event, manager.view.state.last_seq(ref))]]

        return len(await reconcile(manager.context, "c", ["k"], decide, manager.clock.now()))

    async with running(manager):
        assert await stored(request)
        assert await stored(PodEvictionFailed(reason="Expired"))
        assert manager.view.state.last_seq(ref) == 0
        assert await stored(request)
    assert not manager.view.queue.take("c")
    assert manager.view.state.last_seq(ref)
