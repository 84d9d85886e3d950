"""Real processes on a real server: killed at named places and at any time, nobody is lost and nobody placed twice."""

import asyncio
import signal
import sys
from collections import Counter

import httpx
import pytest
from koordcore.bus.factory import Bus
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.ports import free_ports
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.node_ledger import NodeResourcesTaken
from koordcore.events.objects import PodSpecAdded
from koordcore.events.pod import PodPlaced
from koordcore.ports.eventlog import Appended
from support.depth import first_of
from support.scheduler.processes import LEASE, cluster, end, say, send, start
from support.scheduler.scheduling import node, pod
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

PODS = 60
PODS_OF_A_NODE = 20
MANY = 1000


async def submit(bus: Bus, first: int, until: int) -> None:
    for number in range(first, until):
        await say(bus, "podspec", f"p{number}", PodSpecAdded(object=pod(f"p{number}", {"cpu": "500m"})))


async def where(bus: Bus) -> dict[str, str]:
    """Pod -> node; asserts that nobody is placed twice, pods and ledgers agree, and no node holds more than it has.

    The head may be that of a batch which is being stored: then its end is looked for again.
    """

    async def agreed() -> tuple[dict[str, str], dict[str, str]] | None:
        found = await _read(bus)
        return found if found[0] == found[1] else None

    placed, held = await until(agreed)
    assert all(pods <= PODS_OF_A_NODE for pods in Counter(held.values()).values())
    return placed


async def _read(bus: Bus) -> tuple[dict[str, str], dict[str, str]]:
    """Pod -> node, as pods' and as nodes' events say."""
    placed: dict[str, str] = {}
    held: dict[str, str] = {}
    head = await bus.events.head()
    async for batch in bus.events.history(0, head.last_seq, kinds=("pod", "node")):
        for stored in batch:
            match CATALOGUE.read(stored):
                case PodPlaced(node=name):
                    assert stored.ref.id not in placed
                    placed[stored.ref.id] = name
                case NodeResourcesTaken(pods=pods):
                    for item in pods:
                        assert item.uid not in held
                        held[item.uid] = stored.ref.id
                case _:
                    pass
    return placed, held


@pytest.mark.parametrize(
    "passage",
    first_of(["after_reserve_before_seal:2", "before_append:1", "before_append:2", "after_append_before_confirm:1"]),
)
async def test_killed_at_a_failpoint_the_next_one_goes_on(nats_server: NatsServer, passage: str) -> None:
    name = f"sched-{passage.replace('_', '-').replace(':', '-')}"
    async with cluster(nats_server, name) as bus:
        first = await start(nats_server, name, "--leader-elect=false", failpoint=passage)
        submitted = 0
        while first.returncode is None:  # a batch at a time, so that every passage is reached
            assert submitted < PODS // 2
            await submit(bus, submitted, submitted + 5)
            submitted += 5
            await until(lambda submitted=submitted: _placed_or_ended(bus, submitted, first))
        assert first.returncode == -signal.SIGKILL
        await where(bus)
        second = await start(nats_server, name, "--leader-elect=false")
        await submit(bus, submitted, PODS)
        await until(lambda: _all_placed(bus))
        assert await end(second) == 0


@pytest.mark.deep
async def test_killed_after_the_log_refused_its_placement_the_other_goes_on(nats_server: NatsServer) -> None:
    name = "sched-refold"
    room = [node(f"n{number}", cpu="10") for number in range(MANY // PODS_OF_A_NODE)]
    async with cluster(nats_server, name, room) as bus:
        victim = await start(nats_server, name, "--leader-elect=false", failpoint="after_refold_before_redecide:1")
        other = await start(nats_server, name, "--leader-elect=false")
        submitted = 0
        while victim.returncode is None:  # both decide the same pods, so the log refuses one of them sooner or later
            assert submitted < MANY
            await submit(bus, submitted, submitted + 5)
            submitted += 5
            await until(lambda submitted=submitted: _placed_or_ended(bus, submitted, victim))
        assert victim.returncode == -signal.SIGKILL
        await submit(bus, submitted, submitted + 5)
        await until(lambda: _placed(bus, submitted + 5))
        assert await end(other) == 0


@pytest.mark.deep
async def test_other_instance_takes_over_from_a_killed_leader(nats_server: NatsServer) -> None:
    name = "sched-takeover"
    async with cluster(nats_server, name) as bus:
        leader = await start(nats_server, name, *LEASE)
        await submit(bus, 0, 10)
        await until(lambda: _placed(bus, 10))
        standby = await start(nats_server, name, *LEASE)
        send(leader, signal.SIGKILL)
        await leader.wait()
        await submit(bus, 10, PODS)
        await until(lambda: _all_placed(bus))
        [placed] = await bus.events.read_aggregate(AggregateRef("pod", f"p{PODS - 1}"))
        [earlier] = await bus.events.read_aggregate(AggregateRef("pod", "p0"))
        assert int(placed.headers["Koord-Epoch"]) > int(earlier.headers["Koord-Epoch"]) > 0
        assert await end(standby) == 0


@pytest.mark.deep
async def test_two_deciding_at_once_never_overfill(nats_server: NatsServer) -> None:
    name = "sched-race"
    async with cluster(nats_server, name) as bus:
        both = [await start(nats_server, name, "--leader-elect=false") for _ in range(2)]
        await submit(bus, 0, PODS + 20)  # more than fits
        await until(lambda: _placed(bus, PODS))
        assert [await end(one) for one in both] == [0, 0]
        assert len(await where(bus)) == PODS


@pytest.mark.deep
async def test_two_that_race_for_every_pod_place_each_once(nats_server: NatsServer) -> None:
    name = "sched-share"
    async with cluster(nats_server, name) as bus:
        ports = list(free_ports(2))
        flags = [["--leader-elect=false", f"--http-port={port}", f"--instance=s{port}"] for port in ports]
        both = await asyncio.gather(*(start(nats_server, name, *own) for own in flags))
        await submit_at_once(bus, PODS)  # both find all of them in their queues
        await until(lambda: _all_placed(bus))
        await until(lambda: _nothing_is_left(ports))
        refused = [await figure(port, "scheduler_refused_decisions_total") for port in ports]
        scheduled = [await figure(port, SCHEDULED) for port in ports]
        assert [await end(one) for one in both] == [0, 0]
        assert len(await where(bus)) == PODS
        assert sum(scheduled) >= PODS, "who decides the same as the other is told that it is stored"
        sys.stdout.write(f"placed {scheduled}, refused by the log {refused}\n")


SCHEDULED = 'scheduler_schedule_attempts_total{profile="koord-scheduler",result="scheduled"}'


async def submit_at_once(bus: Bus, count: int) -> None:
    """Pods in one append."""
    drafts = [
        Draft(AggregateRef("podspec", f"p{number}"), PodSpecAdded(object=pod(f"p{number}", {"cpu": "500m"})), 0)
        for number in range(count)
    ]
    origin = Origin(causation_id="all", correlation_id="all", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    assert isinstance(await bus.events.append(CATALOGUE.seal(drafts, origin)), Appended)


async def figure(port: int, name: str) -> float:
    """A figure of a scheduler; 0.0 while it has none."""
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} ")), 0.0)


async def _nothing_is_left(ports: list[int]) -> bool:
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        pages = [(await client.get(f"http://127.0.0.1:{port}/queue")).json() for port in ports]
    return not any(page["outbox"] or page["active"] or page["in_flight"] for page in pages)


@pytest.mark.deep
async def test_server_that_goes_and_comes_back_loses_nobody(fresh_nats_server: NatsServer) -> None:
    name = "sched-outage"
    async with cluster(fresh_nats_server, name) as bus:
        scheduler = await start(fresh_nats_server, name, "--leader-elect=false")
        await submit(bus, 0, PODS // 2)
        await until(lambda: _placed(bus, 1))
        await fresh_nats_server.kill()
        await fresh_nats_server.start()
        await submit(bus, PODS // 2, PODS)
        await until(lambda: _all_placed(bus))
        assert await end(scheduler) == 0


async def _placed(bus: Bus, count: int) -> bool:
    return len(await where(bus)) >= count


async def _placed_or_ended(bus: Bus, count: int, process: asyncio.subprocess.Process) -> bool:
    return process.returncode is not None or await _placed(bus, count)


async def _all_placed(bus: Bus) -> bool:
    return await _placed(bus, PODS)
