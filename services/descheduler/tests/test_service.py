"""The whole service over a log in memory: rounds become evictions on the log."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from koord_descheduler.compose import assemble, load_configuration
from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.effects import unsupported
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.settings import DeschedulerSettings
from koordcore.bus.factory import Bus, memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects.mirror import NodeSpecAdded, PodSpecAdded, PodSpecDeleted
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.service.leader.sole_leader import SoleLeader
from koordcore.service.run import Shell
from koordcore.values import codec
from support.running_service import running_service
from support.until import until

AT = "2026-01-01T00:00:00.000000Z"
TAINT = {"key": "gone", "effect": "NoSchedule"}


def configuration(interval: str = "20ms", **more: Any) -> bytes:
    plugins = {
        "deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]},
        "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
    }
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": interval,
        "profiles": [{"name": "p", "plugins": plugins}],
        **more,
    }
    return codec.encode(document)


class World:
    """A log in memory with two nodes, of which one has a taint, and writers for further facts."""

    def __init__(self) -> None:
        self.bus: Bus = memory_bus()
        self._last: dict[AggregateRef, int] = {}

    async def write(self, ref: AggregateRef, event: Event) -> None:
        origin = Origin(
            causation_id=f"t/{ref}/{len(self._last)}/{self._last.get(ref, 0)}",
            correlation_id="",
            actor="t",
            occurred_at=AT,
        )
        outcome = await self.bus.events.append(CATALOGUE.seal([Draft(ref, event, self._last.get(ref, 0))], origin))
        assert isinstance(outcome, Appended), outcome
        self._last[ref] = outcome.last_seq

    async def begin(self) -> None:
        for name, taints in (("a", [TAINT]), ("b", [])):
            raw = {"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"allocatable": {"cpu": "4"}}}
            await self.write(AggregateRef("nodespec", name), NodeSpecAdded(object=node_from_json(raw)))

    async def pod(self, name: str, node: str) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        meta = {"name": name, "namespace": "d", "uid": f"u-{name}", "ownerReferences": [owner]}
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        pod = pod_from_json({"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
        await self.write(AggregateRef("podspec", f"u-{name}"), PodSpecAdded(object=pod))

    async def answer(self, name: str, event: Event) -> None:
        ref = AggregateRef("eviction", f"u-{name}")
        self._last[ref] = await self.last(ref)
        await self.write(ref, event)

    async def last(self, ref: AggregateRef) -> int:
        found = [each.seq for each in await self._all() if each.ref == ref]
        return max(found, default=0)

    async def requests(self) -> list[PodEvictionRequested]:
        events = [CATALOGUE.read(stored) for stored in await self._all() if stored.ref.kind == "eviction"]
        return [event for event in events if isinstance(event, PodEvictionRequested)]

    async def _all(self) -> list[Any]:
        head = (await self.bus.events.head()).last_seq
        found: list[Any] = []
        async for batch in self.bus.events.follow(0):
            found += batch
            if found[-1].seq >= head:
                return found
        return found

    @contextlib.asynccontextmanager
    async def service(self, text: bytes) -> AsyncGenerator[tuple[Shell[DeschedulerSettings], Rounds]]:
        built: list[Rounds] = []

        async def compose(shell: Shell[DeschedulerSettings]) -> None:
            built.append(assemble(shell, self.bus, SoleLeader("t"), load(text, BUILT_IN)))

        settings = DeschedulerSettings.load(["--log-level=error"], {})
        async with running_service(settings, compose) as shell:
            yield shell, built[0]


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def rounds_done(rounds: Rounds, more: int = 3) -> None:
    wanted = rounds.done + more
    await until(lambda: rounds.done >= wanted)


async def test_violating_pod_is_asked_to_leave_once(world: World) -> None:
    await world.pod("p", "a")
    await world.pod("q", "b")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
    (request,) = await world.requests()
    assert (request.name, request.node, request.initiator, request.method) == ("p", "a", "descheduler", "evict")
    assert "RemovePodsViolatingNodeTaints" in request.message


async def test_restarted_service_does_not_ask_again(world: World) -> None:
    await world.pod("p", "a")
    for _ in range(2):
        async with world.service(configuration()) as (_, rounds):
            await rounds_done(rounds)
    assert len(await world.requests()) == 1


async def test_pod_whose_eviction_failed_is_asked_again(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
        await world.answer("p", PodEvictionFailed(reason="BudgetExceeded"))
        await until(lambda: _is(world.requests, 2))
    assert [request.name for request in await world.requests()] == ["p", "p"]


async def test_pod_that_left_is_forgotten_and_a_new_one_is_seen(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
        await world.answer("p", PodEvicted())
        await world.write(AggregateRef("podspec", "u-p"), PodSpecDeleted(namespace="d", name="p"))
        await world.pod("n", "a")
        await until(lambda: _is(world.requests, 2))
    assert [request.name for request in await world.requests()] == ["p", "n"]


async def test_dry_run_writes_nothing(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration(dryRun=True)) as (_, rounds):
        await rounds_done(rounds)
    assert await world.requests() == []


async def test_interval_zero_is_one_round(world: World) -> None:
    async with world.service(configuration("0s")) as (_, rounds):
        await until(lambda: rounds.done == 1)
        await world.pod("p", "a")
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        assert rounds.done == 1
    assert await world.requests() == []


async def test_effective_configuration_and_metrics_are_served(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (shell, rounds):
        await rounds_done(rounds)
        async with httpx.AsyncClient(base_url=shell.http.url, trust_env=False) as client:
            shown = (await client.get("/configz")).json()
            metrics = (await client.get("/metrics")).text
    assert shown["profiles"][0]["plugins"]["evict"]["enabled"] == [{"name": "DefaultEvictor"}]
    assert 'strategy="RemovePodsViolatingNodeTaints"' in metrics


def test_job_with_a_reservation_is_refused_at_start() -> None:
    text = configuration(profiles=[{"plugins": {"balance": {"enabled": [{"name": "RemoveDuplicates"}]}}}])
    (problem,) = unsupported(load(text, BUILT_IN), BUILT_IN)
    assert problem.path == "profiles[0].pluginConfig[MigrationController].args.defaultJobMode"


def test_leader_election_of_the_file_gives_way_to_given_flags(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(configuration(leaderElection={"leaseDuration": "30s", "renewDeadline": "20s"}))
    settings = DeschedulerSettings.load([f"--config={file}", "--leader-elect-renew-deadline=9s"], {})
    merged = settings.with_leader_election(load_configuration(file, BUILT_IN))
    assert (merged.lease_duration, merged.lease_renew_deadline) == (30.0, 9.0)


async def _is(requests: Callable[[], Any], count: int) -> bool:
    return len(await requests()) == count
