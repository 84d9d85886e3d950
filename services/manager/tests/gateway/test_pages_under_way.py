"""Several pages of lists wait for the log at once; all else is stored one after the other."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from koord_manager.domain.cluster.mirrored_kinds import object_of
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.change_budget import ChangeBudget
from koord_manager.domain.gateway.mirror import Seen
from koord_manager.domain.gateway.resources import Mirrored, mirrored_resources
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender, NotLeading
from koord_manager.shell.gateway.ingest import Ingest
from koord_manager.shell.gateway.listwatch import Complete, Listed, Sighting
from koord_manager.shell.gateway.pages_under_way import MOST_AT_ONCE, PagesUnderWay
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.gateway import PodBound
from koordcore.events.observation import NodeUsageReported
from koordcore.ports.eventlog import AppendOutcome, EventLog, Misconfigured
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from support.bus.bus_worlds import sealed
from support.until import until

PODS: Mirrored = next(
    each for each in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False) if each.kind == "Pod"
)


class SlowLog(MemoryEventLog):
    """Stores an append when the test lets it."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.asked: list[set[str]] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.error: Exception | None = None

    def let(self, name: str) -> None:
        self.doors.setdefault(name, asyncio.Event()).set()

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.asked.append({event.ref.id for event in events})
        for event in events:
            await self.doors.setdefault(event.ref.id, asyncio.Event()).wait()
        if self.error is not None:
            raise self.error
        return await super().append(events, deadline=deadline)

    @property
    def names(self) -> set[str]:
        return {name for names in self.asked for name in names}


class World:
    """An ingest over a slow log, whose facts are folded as soon as they are stored."""

    def __init__(self) -> None:
        self.memory = MemoryLog()
        self.log = SlowLog(self.memory)
        self.view = ManagerView()
        self.queue: asyncio.Queue[Sighting] = asyncio.Queue()
        self.stored_pages = 0
        tracer = make_tracer("t", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=0.0)
        log = cast("EventLog", self.log)
        leader = SoleLeader("t")
        clock = SystemClock()
        facts = FactAppender(self.view, log, leader, clock, tracer, logger("t"), self.folded, "manager/t")
        self.ingest = Ingest(
            facts,
            self.queue,
            report=self._report,
            changed=lambda _plural, _name: None,
            errors=ErrorBoundary("t", logger("t")),
            budget=ChangeBudget(),
            delayed=lambda: None,
            logger=logger("t"),
            page_stored=self._page_stored,
        )

    def page(self, *names: str) -> None:
        self.queue.put_nowait(Listed(PODS, [Seen(PODS, pod(name)) for name in names], is_page=True))

    def told(self, *pods: Pod, gone: bool = False) -> None:
        """Changes of a watch, or the pods without a node at the end of a list."""
        self.queue.put_nowait(Listed(PODS, [Seen(PODS, each, gone) for each in pods]))

    def end(self, *names: str) -> None:
        self.queue.put_nowait(Complete(PODS, frozenset(AggregateRef("podspec", name) for name in names)))

    async def folded(self, position: int) -> None:
        for stored in self.memory.between(self.view.state.position, position, None, 1000):
            self.view.fold(stored)

    async def _report(self, node: str, report: NodeUsageReported) -> None:
        raise AssertionError(f"no NodeMetric is observed, got {node}")

    def _page_stored(self) -> None:
        self.stored_pages += 1

    async def settled(self) -> None:
        """Wait until no task has anything to do before a door opens."""
        for _ in range(50):
            await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncGenerator[World]:
    world = World()
    task = asyncio.create_task(world.ingest.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pod(uid: str, node: str = "n", label: str = "") -> Pod:
    meta = {"name": uid, "namespace": "default", "uid": uid, "labels": {"app": label} if label else {}}
    return pod_from_json({"metadata": meta, "spec": {"nodeName": node}})


async def test_a_page_does_not_wait_until_the_one_before_it_is_stored() -> None:
    async with running() as world:
        world.page("a")
        await until(lambda: "a" in world.log.names)
        world.page("b")
        await until(lambda: "b" in world.log.names)
        world.log.let("b")
        await until(lambda: world.stored_pages == 1)
        assert world.memory.last_seq == 1
        world.log.let("a")
        await until(lambda: world.stored_pages == 2)
        assert world.ingest.facts == 2


async def test_only_so_many_pages_wait_for_the_log() -> None:
    async with running() as world:
        names = [f"pod-{number}" for number in range(MOST_AT_ONCE + 1)]
        for name in names:
            world.page(name)
            await world.settled()
        assert world.log.names == set(names[:-1])
        world.log.let(names[1])
        await until(lambda: names[-1] in world.log.names)


async def test_a_page_waits_for_one_with_the_same_object() -> None:
    async with running() as world:
        world.page("a", "b")
        await until(lambda: world.log.names == {"a", "b"})
        world.page("b", "c")
        await world.settled()
        assert "c" not in world.log.names
        world.log.let("a")
        world.log.let("b")
        await until(lambda: "c" in world.log.names)
        world.log.let("c")
        await until(lambda: world.memory.last_seq == 3)  # the object that came again needed no second fact
        assert world.stored_pages == 2


async def test_what_a_watch_tells_waits_for_all_pages_and_they_for_it() -> None:
    async with running() as world:
        world.page("a")
        await until(lambda: "a" in world.log.names)
        world.told(pod("waiting", node=""))
        await world.settled()
        world.page("b")
        await world.settled()
        assert world.log.names == {"a"}
        world.log.let("a")
        await until(lambda: world.log.names == {"a", "waiting"})
        await world.settled()
        assert "b" not in world.log.names
        world.log.let("waiting")
        await until(lambda: "b" in world.log.names)


async def test_a_list_is_complete_when_its_last_page_is_stored() -> None:
    async with running() as world:
        world.page("a", "b")
        await until(lambda: world.log.names == {"a", "b"})
        world.end("a", "b")
        await world.settled()
        assert not world.ingest.reached
        for name in "ab":
            world.log.let(name)
        await until(lambda: "pods" in world.ingest.reached)
        assert world.memory.last_seq == 2, "no page that was not stored yet counted as deleted"


@pytest.mark.parametrize("error", [NotLeading(), Misconfigured("no permission")])
async def test_an_error_of_a_page_ends_the_ingest_although_nothing_more_is_observed(error: Exception) -> None:
    world = World()
    task = asyncio.create_task(world.ingest.run())
    world.page("a")
    world.page("b")
    await until(lambda: world.log.names)
    world.log.error = error
    world.log.let("a")
    world.log.let("b")
    with pytest.raises(type(error)):
        async with asyncio.timeout(5):
            await task


async def test_nothing_is_under_way_after_the_ingest_has_ended() -> None:
    async with running() as world:
        world.page("a")
        await until(lambda: "a" in world.log.names)
    world.log.let("a")
    await world.settled()
    assert world.memory.last_seq == 0


async def test_work_that_is_refused_is_closed() -> None:
    pages = PagesUnderWay()

    async def fails() -> None:
        raise NotLeading

    await pages.begin(set(), fails())
    await asyncio.wait({pages.failed})
    with pytest.raises(NotLeading):
        await pages.begin(set(), fails())
    with pytest.raises(NotLeading):
        await pages.all_ended()
    await pages.close()


def large(label: str, node: str) -> Pod:
    found = pod("large", node, label)
    found.metadata.annotations["a"] = "x" * 4000
    return found


def label_of(world: World) -> str:
    known = object_of(world.view.state.get(AggregateRef("podspec", "large")))
    assert isinstance(known, Pod)
    return known.metadata.labels.get("app", "")


class Clock:
    """The time by which budgets count, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(Ingest, "_now", staticmethod(lambda: self.now))


async def spent(world: World, label: str, node: str = "n") -> None:
    """Let changes of the large pod wait, the last one with this label."""
    world.ingest.budget = ChangeBudget(1000)  # bytes per minute, of which it may write eight times as many at once
    world.log.let("large")
    for number in range(4):
        world.told(large(f"first-{number}", node))
    world.told(large(label, node))
    await until(lambda: len(world.ingest.budget) == 1 and world.queue.empty())
    await world.settled()


async def test_a_version_that_waits_is_not_written_after_a_newer_one_of_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        clock = Clock(monkeypatch)
        await spent(world, "older")
        names = [f"pod-{number}" for number in range(MOST_AT_ONCE + 1)]
        for name in names[:-1]:
            world.page(name)
            await world.settled()
        others = [f"other-{number}" for number in range(500)]  # so many that the page is taken alone
        page = [large("newer", "n"), *map(pod, others)]
        world.queue.put_nowait(Listed(PODS, [Seen(PODS, each) for each in page], is_page=True))
        world.page(names[-1])
        await world.settled()
        clock.now = 3600.0  # the budget has room for both
        for name in (*names, *others):
            world.log.let(name)
        await until(lambda: label_of(world) == "newer" and names[-1] in world.log.names)
        world.end("large", *names, *others)
        await until(lambda: bool(world.ingest.reached))
        await until(lambda: len(world.ingest.budget) == 0)
        assert label_of(world) == "newer"


async def test_a_version_that_waits_does_not_unbind_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        clock = Clock(monkeypatch)
        await spent(world, "older", node="")
        ref = AggregateRef("podspec", "large")
        bound = PodBound(node="n", placement=1, bound_at="2026-01-01T00:00:00Z")
        await world.log.append([sealed(ref.kind, ref.id, bound, world.view.state.last_seq(ref))])
        await world.folded(world.memory.last_seq)
        clock.now = 3600.0
        world.told(pod("other"))
        world.log.let("other")
        await until(lambda: "other" in world.log.names and len(world.ingest.budget) == 0)
        known = object_of(world.view.state.get(ref))
        assert isinstance(known, Pod)
        assert known.spec.node_name == "n"
