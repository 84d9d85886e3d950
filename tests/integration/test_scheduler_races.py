"""Two schedulers decide for the last GPU or Reservation at the same moment, on one real server and on three: one wins.

Each scheduler owns the pods with its name. Both decide on the same facts, because their appends wait for each other.
The log stores one placement and refuses the other; the loser folds the winner's placement and decides anew.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from koord_scheduler.compose import assemble
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, PodSpecAdded, custom_ref
from koordcore.events.pod import PodPlaced
from koordcore.ports.eventlog import Appended, AppendOutcome, EventLog
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordcore.values.allocation import is_reservation
from koordctl.demo.invariants import Audit
from support.bus.nats_cluster import NatsCluster
from support.running_service import running_service
from support.scheduler.devices import asking, device, gpu
from support.scheduler.processes import SMALL
from support.scheduler.reservations import reservation
from support.scheduler.scheduling import node, pod, with_metadata
from support.until import until

pytestmark = pytest.mark.nats
ROUNDS = 5
NAMES = ("one", "two")


class Together:
    """The first placement of each scheduler's pod in a round is appended only when the other one has decided, too."""

    def __init__(self) -> None:
        self._barrier = asyncio.Barrier(len(NAMES))
        self._awaited: set[str] = set()

    def begin(self, rivals: Iterable[str]) -> None:
        """Begin the next round with the pods that have these uids, one of each scheduler."""
        self._awaited = set(rivals)

    async def arrive(self, placed: set[str]) -> None:
        """Wait for the other scheduler if this is the first placement of such a pod."""
        if placed & self._awaited:
            self._awaited -= placed
            await self._barrier.wait()


class Waiting:
    """A log whose placements wait for those of the other scheduler."""

    def __init__(self, log: EventLog, together: Together) -> None:
        self._log = log
        self._together = together

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append the events; see `EventLog.append`."""
        await self._together.arrive({event.ref.id for event in events if event.headers["Koord-Type"] == "PodPlaced"})
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
            log = cast("EventLog", Waiting(bus.events, together))
            assemble(shell, replace(bus, events=log), SoleLeader(name))

        settings = SchedulerSettings.load(["--log-level=warning", f"--config={configuration}"], {})
        async with running_service(settings, compose) as shell:
            await until(lambda: shell.health.is_ready())
            yield shell


class Facts:
    """The facts of the log, audited as they arrive.

    Attributes:
        audit: The audit of these facts.
        owners: Uid of a Reservation -> number of placements of pods that use it.
    """

    def __init__(self, bus: Bus) -> None:
        self.audit = Audit()
        self.owners: Counter[str] = Counter()
        self._bus = bus
        self._position = 0

    async def say(self, kind: str, id_: str, event: Event) -> None:
        """Append a fact of somebody else."""
        origin = Origin(
            causation_id=f"{kind}/{id_}", correlation_id=id_, actor="test", occurred_at="2026-01-01T00:00:00.000000Z"
        )
        outcome = await self._bus.events.append(CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin))
        assert isinstance(outcome, Appended)

    async def placed(self) -> set[str]:
        """Return the uids of the pods that are placed now."""
        head = await self._bus.events.head()
        async for batch in self._bus.events.history(self._position, head.last_seq):
            for stored in batch:
                event = CATALOGUE.read(stored)
                assert event is not None
                self.audit.see(stored, event)
                self._position = stored.seq
                if isinstance(event, PodPlaced) and not is_reservation(stored.ref.id, event.allocation):
                    self.owners.update([used.uid] if (used := event.allocation.reservation) else [])
        return {uid for uid in self.audit.live_pods() if self.audit.is_placed(uid)}


class Prize(Protocol):
    """What the pods of a round fight for: one of it has room for one pod.

    Attributes:
        comes_first: Whether it is added before the pods.
    """

    comes_first: bool

    def rival(self, uid: str, scheduler: str, number: int) -> Pod:
        """Return the pod of a scheduler in a round."""
        ...

    async def add(self, facts: Facts, name: str, number: int) -> None:
        """Add one prize for the pods of a round."""
        ...

    async def check(self, facts: Facts) -> None:
        """Check after all rounds that nothing was given twice."""
        ...


class LastGpu:
    """A node with one GPU."""

    comes_first = False

    def rival(self, uid: str, scheduler: str, number: int) -> Pod:
        """See `Prize.rival`."""
        requests = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
        more: Any = {"schedulerName": scheduler}
        return asking(uid, requests, **more)

    async def add(self, facts: Facts, name: str, number: int) -> None:
        """See `Prize.add`."""
        more = {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory-ratio": "100",
            "koordinator.sh/gpu-memory": "80Gi",
        }
        await facts.say("customspec", f"devices={name}", CustomObjectObserved(object=device(name, [gpu(0)])))
        await facts.say("nodespec", name, NodeSpecAdded(object=node(name, more=more)))

    async def check(self, facts: Facts) -> None:
        """See `Prize.check`."""
        given = [[device.id for device in each.devices] for each in facts.audit.allocations()]
        assert given == [["GPU-0"]] * (2 * ROUNDS)


class LastReservation:
    """A Reservation with `allocateOnce`, which both pods require. The first scheduler places it."""

    comes_first = True

    def rival(self, uid: str, scheduler: str, number: int) -> Pod:
        """See `Prize.rival`."""
        made = pod(uid, {"cpu": "1"}, schedulerName=scheduler)
        affinity = {keys.RESERVATION_AFFINITY: json.dumps({"reservationSelector": {"round": str(number)}})}
        return with_metadata(made, labels={"app": "web"}, annotations=affinity)

    async def add(self, facts: Facts, name: str, number: int) -> None:
        """See `Prize.add`."""
        if not number and name.startswith("last"):
            await facts.say("nodespec", f"node-{name}", NodeSpecAdded(object=node(f"node-{name}", cpu="64")))
        template = {"schedulerName": NAMES[0]}
        made = reservation(name, {"cpu": "1"}, labels={"round": str(number)}, template=template, ttl="0s")
        ref = custom_ref("reservations", "", name)
        await facts.say(ref.kind, ref.id, CustomObjectObserved(object=made))

        async def is_available() -> bool:
            await facts.placed()
            return facts.audit.is_placed(f"uid-{name}")

        await until(is_available)

    async def check(self, facts: Facts) -> None:
        """See `Prize.check`."""
        assert sorted(facts.owners.values()) == [1] * (2 * ROUNDS)


async def race(urls: tuple[str, ...], replicas: int, folder: Path, prize: Prize) -> None:
    settings = BusSettings(urls=urls, cluster=f"{type(prize).__name__}{replicas}")
    await bootstrap_bus(settings, replicas=replicas, sizes=SMALL)
    together = Together()
    async with (
        open_bus(settings) as bus,
        scheduler(settings, "one", together, folder) as one,
        scheduler(settings, "two", together, folder) as two,
    ):
        facts = Facts(bus)
        for number in range(ROUNDS):
            rivals = {f"{name}-{number}" for name in NAMES}
            together.begin(rivals)
            if prize.comes_first:
                await prize.add(facts, f"last-{number}", number)
            for name in NAMES:
                uid = f"{name}-{number}"
                await facts.say("podspec", uid, PodSpecAdded(object=prize.rival(uid, name, number)))
            if not prize.comes_first:
                await prize.add(facts, f"last-{number}", number)

            async def has_winner(rivals: set[str] = rivals) -> bool:
                return bool(await facts.placed() & rivals)

            await until(has_winner)
            (winner,) = await facts.placed() & rivals

            async def is_refused(refused: int = number + 1) -> bool:
                return sum(_refused(shell) for shell in (one, two)) >= refused

            await until(is_refused)
            assert await facts.placed() & rivals == {winner}, "it was given twice"
            await prize.add(facts, f"next-{number}", number)

            async def has_both(rivals: set[str] = rivals) -> bool:
                return rivals <= await facts.placed()

            await until(has_both)
        findings = facts.audit.findings(())
        assert not findings.sentences()
        await prize.check(facts)


def _refused(shell: Shell[SchedulerSettings]) -> int:
    return int(shell.metrics.registry.get_sample_value("scheduler_refused_decisions_total") or 0)


@pytest.mark.deep
@pytest.mark.parametrize("prize", [LastGpu, LastReservation])
async def test_one_of_two_schedulers_gets_the_last_one_on_a_single_server(
    nats_server: NatsServer, tmp_path: Path, prize: Callable[[], Prize]
) -> None:
    await race((nats_server.url,), 1, tmp_path, prize())


@pytest.mark.parametrize("prize", [LastGpu, LastReservation])
@pytest.mark.deep
async def test_one_of_two_schedulers_gets_the_last_one_on_three_servers(
    nats_cluster: NatsCluster, tmp_path: Path, prize: Callable[[], Prize]
) -> None:
    await race(nats_cluster.urls, 3, tmp_path, prize())
