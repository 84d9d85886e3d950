"""Two schedulers decide for the last GPU at the same moment, on one real server and on three: one wins.

Each scheduler owns the pods with its name. Both decide on the same facts, because their appends wait for each other.
The log stores one placement and refuses the other; the loser folds the winner's placement and decides anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from koord_scheduler.compose import assemble
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin
from koordcore.events.objects.custom import CustomObjectObserved
from koordcore.events.objects.mirror import NodeSpecAdded, PodSpecAdded
from koordcore.ports.eventlog import Appended, AppendOutcome, EventLog
from koordcore.service.leader.sole_leader import SoleLeader
from koordcore.service.run import Shell
from koordctl.demo.invariants import Audit
from support.bus.nats_cluster import NatsCluster
from support.running_service import running_service
from support.scheduler.devices import asking, device, gpu
from support.scheduler.processes import SMALL
from support.scheduler.scheduling import node
from support.until import until

pytestmark = pytest.mark.nats
ROUNDS = 5
NAMES = ("one", "two")


class Together:
    """The first placement of each scheduler in a round is appended only when the other one has decided, too."""

    def __init__(self) -> None:
        self._barrier = asyncio.Barrier(len(NAMES))
        self._arrived: set[str] = set()

    def begin(self) -> None:
        """Begin the next round."""
        self._arrived.clear()

    async def arrive(self, name: str) -> None:
        """Wait for the other scheduler; no-op for later placements of the round."""
        if name not in self._arrived:
            self._arrived.add(name)
            await self._barrier.wait()


class Waiting:
    """A log whose placements wait for those of the other scheduler."""

    def __init__(self, log: EventLog, name: str, together: Together) -> None:
        self._log = log
        self._name = name
        self._together = together

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append the events; see `EventLog.append`."""
        if any(event.headers["Koord-Type"] == "PodPlaced" for event in events):
            await self._together.arrive(self._name)
        return await self._log.append(events)


@contextlib.asynccontextmanager
async def scheduler(
    bus_settings: BusSettings, name: str, together: Together, folder: Path
) -> AsyncGenerator[Shell[SchedulerSettings]]:
    """A scheduler with a connection of its own that owns the pods with its name."""
    configuration = folder / f"{name}.yaml"
    shipped = shipped_configuration().decode()
    assert shipped.count("schedulerName: koord-scheduler") == 1
    configuration.write_text(shipped.replace("schedulerName: koord-scheduler", f"schedulerName: {name}"))
    async with open_bus(bus_settings) as bus:

        async def compose(shell: Shell[SchedulerSettings]) -> None:
            log = cast("EventLog", Waiting(bus.events, name, together))
            assemble(shell, replace(bus, events=log), SoleLeader(name))

        settings = SchedulerSettings.load(["--log-level=warning", f"--config={configuration}"], {})
        async with running_service(settings, compose) as shell:
            await until(lambda: shell.health.is_ready())
            yield shell


class Facts:
    """The facts of the log, audited as they arrive."""

    def __init__(self, bus: Bus) -> None:
        self.audit = Audit()
        self._bus = bus
        self._position = 0

    async def say(self, kind: str, id_: str, event: Event) -> None:
        """Append a fact of somebody else."""
        origin = Origin(
            causation_id=f"{kind}/{id_}", correlation_id=id_, actor="test", occurred_at="2026-01-01T00:00:00.000000Z"
        )
        outcome = await self._bus.events.append(CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin))
        assert isinstance(outcome, Appended)

    async def add_gpu_node(self, name: str) -> None:
        """Add a node with one GPU."""
        more = {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory-ratio": "100",
            "koordinator.sh/gpu-memory": "80Gi",
        }
        await self.say("customspec", f"devices={name}", CustomObjectObserved(object=device(name, [gpu(0)])))
        await self.say("nodespec", name, NodeSpecAdded(object=node(name, more=more)))

    async def placed(self) -> set[str]:
        """Return the uids of the pods that are placed now."""
        head = await self._bus.events.head()
        async for batch in self._bus.events.history(self._position, head.last_seq):
            for stored in batch:
                event = CATALOGUE.read(stored)
                assert event is not None
                self.audit.see(stored, event)
                self._position = stored.seq
        return {uid for uid in self.audit.live_pods() if self.audit.is_placed(uid)}


async def race(urls: tuple[str, ...], replicas: int, folder: Path) -> None:
    settings = BusSettings(urls=urls, cluster=f"race{replicas}")
    await bootstrap_bus(settings, replicas=replicas, sizes=SMALL)
    together = Together()
    async with (
        open_bus(settings) as bus,
        scheduler(settings, "one", together, folder) as one,
        scheduler(settings, "two", together, folder) as two,
    ):
        facts = Facts(bus)
        for number in range(ROUNDS):
            together.begin()
            rivals = {f"{name}-{number}" for name in NAMES}
            for name in NAMES:
                uid = f"{name}-{number}"
                requests = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
                pod: Any = asking(uid, requests, schedulerName=name)
                await facts.say("podspec", uid, PodSpecAdded(object=pod))
            await facts.add_gpu_node(f"last-{number}")

            async def has_winner(rivals: set[str] = rivals) -> bool:
                return bool(await facts.placed() & rivals)

            await until(has_winner)
            (winner,) = await facts.placed() & rivals

            async def is_refused(refused: int = number + 1) -> bool:
                return sum(_refused(shell) for shell in (one, two)) >= refused

            await until(is_refused)
            assert await facts.placed() & rivals == {winner}, "the GPU was given twice"
            await facts.add_gpu_node(f"next-{number}")

            async def has_both(rivals: set[str] = rivals) -> bool:
                return rivals <= await facts.placed()

            await until(has_both)
        findings = facts.audit.findings(())
        assert findings.all_hold, findings.sentences()
        given = [[device.id for device in each.devices] for each in facts.audit.allocations()]
        assert given == [["GPU-0"]] * (2 * ROUNDS)


def _refused(shell: Shell[SchedulerSettings]) -> int:
    return int(shell.metrics.registry.get_sample_value("scheduler_refused_decisions_total") or 0)


async def test_one_of_two_schedulers_gets_the_last_gpu_of_a_single_server(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    await race((nats_server.url,), 1, tmp_path)


async def test_one_of_two_schedulers_gets_the_last_gpu_of_three_servers(
    nats_cluster: NatsCluster, tmp_path: Path
) -> None:
    await race(nats_cluster.urls, 3, tmp_path)
