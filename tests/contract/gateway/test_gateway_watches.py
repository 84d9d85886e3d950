"""Lists and watches that expire, break off, fall silent or are refused: the mirror stays true."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from koord_manager.domain.gateway.resources import NODES, PODS
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.gateway.listwatch import ListWatch, Sighting
from koord_manager.shell.gateway.reading import ResourceDecoder
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import logger
from koordcore.state.aggregates import PodSpecState
from structlog.testing import capture_logs
from support.kubernetes.apiserver import ApiServer
from support.kubernetes.faults import Fault
from support.kubernetes.gateway_world import facts_of, gateway_settings, gateway_world, node, pod
from support.until import until


@pytest.mark.parametrize("with_status", [True, False], ids=["http-410", "error-event-410"])
async def test_an_expired_watch_is_relisted_and_deletions_that_nobody_saw_are_found(
    tmp_path: Path, with_status: bool
) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.expire_with_status = with_status
        for name in ("stays", "goes"):
            await world.server.apply(pod(name))
        gone, kept = await world.mirrored("goes"), await world.mirrored("stays")
        fault = world.server.faults.add(Fault("GET", "/api/v1/pods", 503, times=3))
        await world.drop_watches("pods")
        await world.until(lambda: fault.times < 3)
        await world.server.delete("pods", "default", "goes")
        await world.server.apply(pod("new"))
        world.server.store.compact()

        await world.mirrored("new")
        await world.until(lambda: world.spec(gone) is None)
        assert world.spec(kept) is not None
        assert await facts_of(world, gone) == ["PodSpecAdded", "PodSpecDeleted"]


async def test_an_unreadable_object_hides_no_deletion_of_another_one(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        for name in ("broken", "goes"):
            await world.server.apply(pod(name))
        gone, broken = await world.mirrored("goes"), await world.mirrored("broken")
        await world.stop()
        found = world.server.object("pods", "default", "broken")
        assert found is not None
        found["spec"]["priority"] = "high"
        await world.server.delete("pods", "default", "goes")
        await world.begin()

        async def is_deleted() -> bool:
            return await facts_of(world, gone) == ["PodSpecAdded", "PodSpecDeleted"]

        await until(is_deleted)
        assert world.spec(broken) is not None

        await world.server.delete("pods", "default", "broken")
        await world.until(lambda: world.spec(broken) is None)


class Delays(Backoff):
    """Nominal delays, for which nobody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def wait(self, at_least: float | None = None) -> None:
        self.asked.append(self._next)
        self.seconds(at_least)
        await asyncio.sleep(0)


async def test_a_server_that_forgets_at_once_is_listed_less_and_less_often(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        world.server.faults.answer("GET", "/api/v1/nodes", 410, times=4, watch=True)
        api = await connect_api(world.server.kubeconfig(tmp_path / "kubeconfig"), qps=0, burst=1)
        queue: asyncio.Queue[Sighting] = asyncio.Queue()
        delays = Delays()
        watch = ListWatch(api, NODES, queue, logger("test"), backoff=delays)
        running = asyncio.create_task(watch.run())
        await until(lambda: watch.figures.watches == 5)
        assert watch.figures.lists == 5
        assert delays.asked == [0.2, 0.4, 0.8, 1.6]

        await world.server.apply(node("a"))
        await until(lambda: not watch.figures.problem)
        world.server.store.compact()
        world.server.faults.answer("GET", "/api/v1/nodes", 410, watch=True)
        await until(lambda: world.server.watching["nodes"])
        world.server.faults.drop_watches()
        await until(lambda: watch.figures.lists == 6)
        assert delays.asked[4:] in ([], [0.2]), "one pause at most, after the watch that broke off, and a short one"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()


async def test_a_dropped_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(pod("a"))
        await world.mirrored("a")
        lists = world.server.requests.count(("GET", "/api/v1/pods"))
        for name in ("b", "c", "d"):
            await world.drop_watches("pods")
            await world.server.apply(pod(name))
            await world.mirrored(name)

        assert world.server.requests.count(("GET", "/api/v1/pods")) == lists
        uid = world.uid("a")
        assert await facts_of(world, uid) == ["PodSpecAdded"]


async def test_bookmarks_move_a_quiet_watch_past_the_history_that_is_forgotten(tmp_path: Path) -> None:
    server = ApiServer(bookmark_seconds=0.05)
    async with gateway_world(tmp_path, server=server) as world:
        await world.server.apply(node("quiet"))
        await world.until(lambda: world.view.node("quiet"))
        for number in range(5):
            await world.server.apply(pod(f"busy-{number}"))
        last = await world.mirrored("busy-4")
        before = server.requests.count(("GET", "/api/v1/nodes"))
        await world.until(lambda: server.bookmarked["nodes"] >= server.store.version)
        server.store.compact()
        await world.drop_watches("nodes")
        await server.apply(node("another"))
        await world.until(lambda: world.view.node("another"))

        assert world.spec(last) is not None
        assert server.requests.count(("GET", "/api/v1/nodes")) == before


async def test_a_list_whose_pages_expire_begins_anew(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        for number in range(1200):
            await world.server.apply(pod(f"p-{number}"))
        asked = 0

        async def expire_pages() -> None:
            nonlocal asked
            while asked < 2:
                if ("GET", "/api/v1/pods") in world.server.requests:
                    world.server.store.compact()
                    asked += 1
                    world.server.requests.clear()
                await asyncio.sleep(0)

        expiring = asyncio.create_task(expire_pages())
        await world.begin()
        await world.until(lambda: len(world.view.state.of_kind(PodSpecState)) == 1200)
        expiring.cancel()


async def test_a_slow_server_and_a_silent_watch_are_survived(tmp_path: Path) -> None:
    settings = gateway_settings(idle_seconds=2.0)
    async with gateway_world(tmp_path, server=ApiServer(bookmark_seconds=60), settings=settings) as world:
        world.server.faults.add(Fault("GET", "/api/v1/nodes", seconds=1.0, watch=False))
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        watches = len(world.server.requests)
        await world.until(lambda: len(world.server.requests) > watches + 20)  # each silent watch is taken up again
        await world.server.apply(pod("a"))
        await world.mirrored("a")


async def test_an_overloaded_server_is_asked_again_after_what_it_asks_for(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        world.server.faults.answer("GET", "/api/v1/nodes", 429, retry_after=1)
        await world.server.apply(node("node-1"))
        began = asyncio.get_running_loop().time()
        await world.begin()
        await world.until(lambda: world.view.node("node-1"))

        assert asyncio.get_running_loop().time() - began >= 1.0


async def test_first_list_tells_the_pods_on_nodes_before_those_that_wait_for_one(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node-1"}}
        await world.server.apply(node("node-1"))
        names = [f"{'bound' if number % 2 else 'a'}-{number:02}" for number in range(40)]
        for name in names:
            await world.server.apply(pod(name))
            if name.startswith("bound"):
                await world.server.verbs.bind(("default", name), binding, "another", dry_run=False)
        await world.begin()
        uids = [await world.mirrored(name) for name in names]
        specs = world.view.state.of_kind(PodSpecState)
        on_nodes = [specs[uid].added_seq for uid in uids if specs[uid].object.spec.node_name]
        unbound = [specs[uid].added_seq for uid in uids if not specs[uid].object.spec.node_name]
        assert len(on_nodes) == len(unbound) == 20
        assert max(on_nodes) < min(unbound)


async def test_a_first_import_says_how_far_it_is(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        for number in range(3):
            await world.server.apply(pod(f"pod-{number}", nodeName="node-1"))
        await world.server.apply(node("node-1"))
        fault = world.server.faults.add(Fault("GET", "/api/v1/nodes", 503, times=1_000_000))
        other = world.server.faults.add(Fault("GET", "/apis/apps/v1/replicasets", 503, times=1_000_000))
        with capture_logs() as lines:
            await world.begin()
            await world.until(lambda: any(line["event"] == "gateway_lists" for line in lines))
            assert world.gateway.importing is not None
            assert re.fullmatch(
                r"\d+ of \d+ objects of the API server are imported, not listed yet: .*nodes.*",
                world.gateway.importing,
            )
            fault.times = 0
            await world.until(lambda: world.gateway.importing is None)
            assert len(world.view.state.of_kind(PodSpecState)) == 3
            assert not world.gateway.is_idle, "ReplicaSets are not listed, and nothing waits for them"
            other.times = 0
            await world.until(lambda: world.gateway.is_idle)
        await world.stop()
        imported = world.pages_of_imports
        assert imported >= 2, "one of pods, one of nodes"

        fault.times = 1_000_000
        await world.begin()
        await world.until(lambda: world.gateway.queue is not None)
        assert world.gateway.importing is None, "the log has nodes and pods: decisions go on"
        fault.times = 0
        await world.until(lambda: world.gateway.is_idle)
        assert world.pages_of_imports == imported, "a second list is no first import"


def test_a_page_says_how_many_objects_follow() -> None:
    decoder = ResourceDecoder(PODS)
    for meta, expected in (({"remainingItemCount": 7}, 7), ({}, 0), ({"remainingItemCount": None}, 0)):
        assert decoder.page(json.dumps({"metadata": meta, "items": []}).encode()).remaining == expected
