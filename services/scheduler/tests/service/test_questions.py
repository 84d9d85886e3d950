"""Capacity questions to real processes on a real server: who answers, and what a fork that fails does not disturb."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.factory import Bus
from koordcore.bus.work.requests import RequestFailed, ask
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.events.pod import PodPlaced
from koordcore.requests.catalogue import SCHEDULER_FIT, SCHEDULER_STATE_HASH, StateHashRequest
from koordcore.requests.endpoint import ErrorCode
from koordcore.requests.fit import FitAnswer, FitRequest, PodSet
from support.scheduler.processes import LEASE, cluster, end, say, send, start
from support.scheduler.scheduling import frameworks, node, pod
from support.until import until

pytestmark = pytest.mark.nats

WEB = FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "500m"}), replicas=3)])
LONG = FitRequest(pods=[PodSet(pod=pod("long"), replicas=10_000)])
"""Takes seconds, because the large node has room for all of the pods."""


async def fit(bus: Bus, request: FitRequest, *, seconds: float = 60.0) -> FitAnswer:
    assert bus.connection is not None
    return await ask(bus.connection, bus.names, SCHEDULER_FIT, request, seconds=seconds)


@pytest.mark.deep
async def test_standby_answers_and_the_leader_does_after_its_end(nats_server: NatsServer) -> None:
    name = "fit-roles"
    async with cluster(nats_server, name) as bus:
        running = {
            "first": await start(nats_server, name, *LEASE, "--instance=first"),
            "second": await start(nats_server, name, *LEASE, "--instance=second"),
        }
        before = (await bus.events.head()).last_seq
        answer = await until(lambda: _answered_by(bus, standby=True))
        assert answer.fits
        standby = running.pop(answer.answered_by)
        send(standby, signal.SIGKILL)
        await standby.wait()
        ((left, leader),) = running.items()
        answer = await until(lambda: _answered_by(bus, standby=False))
        assert answer.answered_by == left
        assert (await bus.events.head()).last_seq == before
        nodes = {full.rpartition("/")[2]: each.node for each in answer.nodes for full in each.pods}
        for uid in sorted(nodes):
            await say(bus, "podspec", uid, PodSpecAdded(object=pod(uid, {"cpu": "500m"})))
        await until(lambda: _are_placed(bus, nodes))
        assert await end(leader) == 0


@pytest.mark.deep
async def test_killed_and_hanging_forks_disturb_nobody(nats_server: NatsServer) -> None:
    name = "fit-forks"
    async with cluster(nats_server, name) as bus:
        large = node("large", cpu="100000", memory="9000Ti", pods="20000")
        await say(bus, "nodespec", "large", NodeSpecAdded(object=large))
        leader = await start(nats_server, name, "--leader-elect=false")
        assert (await fit(bus, WEB)).fits
        for signal_number in (signal.SIGKILL, signal.SIGSTOP):
            asked, child = await _asked_and_forked(bus, leader.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal_number)
            await say(bus, "podspec", f"p{signal_number}", PodSpecAdded(object=pod(f"p{signal_number}", {"cpu": "1"})))
            await until(lambda uid=f"p{signal_number}": _is_placed(bus, uid))
            with pytest.raises((RequestFailed, NoAnswer)):
                await asked
            await until(lambda gone=child: not os.path.exists(f"/proc/{gone}"))  # noqa: PTH110
        assert (await fit(bus, WEB)).fits
        assert await end(leader) == 0


@pytest.mark.deep
async def test_fork_ends_with_its_scheduler(nats_server: NatsServer) -> None:
    name = "fit-orphan"
    async with cluster(nats_server, name) as bus:
        await say(bus, "nodespec", "large", NodeSpecAdded(object=node("large", cpu="100000", pods="20000")))
        leader = await start(nats_server, name, "--leader-elect=false")
        asked, child = await _asked_and_forked(bus, leader.pid)
        send(leader, signal.SIGKILL)
        await leader.wait()
        await until(lambda: not os.path.exists(f"/proc/{child}"))  # noqa: PTH110
        with pytest.raises((RequestFailed, NoAnswer)):
            await asked


async def test_invalid_question_is_refused_with_field_rule_and_value(nats_server: NatsServer) -> None:
    name = "fit-invalid"
    async with cluster(nats_server, name) as bus:
        scheduler = await start(nats_server, name, "--leader-elect=false")
        with pytest.raises(RequestFailed, match=r"pods\[0\].replicas: must be .* 1 to 10000, got 0") as found:
            await fit(bus, FitRequest(pods=[PodSet(pod=pod("p"), replicas=0)]))
        assert found.value.code == ErrorCode.INVALID
        assert await end(scheduler) == 0


@pytest.mark.deep
async def test_leader_tells_its_state_at_one_position_while_it_places_pods(nats_server: NatsServer) -> None:
    name = "hash"
    async with cluster(nats_server, name) as bus:
        scheduler = await start(nats_server, name, "--leader-elect=false")
        for number in range(40):
            await say(bus, "podspec", f"p{number}", PodSpecAdded(object=pod(f"p{number}", {"cpu": "50m"})))
            if number % 8 == 0:
                await _hash_is_that_of_the_log(bus)
        await until(lambda: _is_placed(bus, "p39"))
        await _hash_is_that_of_the_log(bus)
        assert await end(scheduler) == 0


async def _hash_is_that_of_the_log(bus: Bus) -> None:
    assert bus.connection is not None
    told = await ask(bus.connection, bus.names, SCHEDULER_STATE_HASH, StateHashRequest(), seconds=60.0)
    folded = SchedulerState(frameworks())
    async for batch in bus.events.history(0, told.position):
        for stored in batch:
            fold(folded, stored)
    assert state_hash(folded) == told.hash


async def _answered_by(bus: Bus, *, standby: bool) -> FitAnswer | None:
    """An answer, if it comes from an instance in this role."""
    answer = await fit(bus, WEB)
    return answer if answer.by_standby == standby else None


async def _asked_and_forked(bus: Bus, pid: int) -> tuple["asyncio.Task[FitAnswer]", int]:
    """Ask with a deadline of three seconds, until the scheduler forks in time. Return the question and the fork."""
    while True:
        await until(lambda: _has_no_child(pid))
        asked = asyncio.create_task(fit(bus, LONG, seconds=3.0))

        async def child_or_end(asked: "asyncio.Task[FitAnswer]" = asked) -> int | bool:
            return await _child_of(pid) or asked.done()

        child = await until(child_or_end)
        if child is not True:
            return asked, child
        with pytest.raises((RequestFailed, NoAnswer)):
            await asked


async def _has_no_child(pid: int) -> bool:
    return await _child_of(pid) is None


async def _child_of(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()  # noqa: ASYNC240 - not a disk
    return int(children[0]) if children else None


async def _is_placed(bus: Bus, uid: str) -> bool:
    return await bus.events.last_of(AggregateRef("pod", uid)) is not None


async def _are_placed(bus: Bus, nodes: dict[str, str]) -> bool:
    stored = [await bus.events.last_of(AggregateRef("pod", uid)) for uid in nodes]
    events = [CATALOGUE.read(each) for each in stored if each is not None]
    return {each.name: each.node for each in events if isinstance(each, PodPlaced)} == nodes
