"""The log and the scheduler as processes of the embedded stack, and a client that creates objects and counts.

    async with running_cluster() as cluster:
        await cluster.create(nodes); await cluster.create(pods); await cluster.placed(...)

Objects are written straight into the log, in atomic batches, as the manager writes them: scheduler_perf, too, creates
objects by a client of its own. The client writes as the principal `manager`; nothing else of the stack runs.
"""

import asyncio
import contextlib
import os
import pstats
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
from bench.scheduler_perf.objects import node_of_placement
from koordcore.bus.factory import Bus, BusSettings, open_bus
from koordcore.bus.setup.principals import seed_file
from koordcore.embedded.process import ChildProcess, ProcessSpec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, name_token
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.events.pod import PodPlaced
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Node, Pod
from koordctl.access.log import key_folder
from koordctl.stack.processes import StackOptions, specs, wipe

PER_BATCH = 250
BATCHES_AT_ONCE = 4
LOOK_SECONDS = 0.05
PROFILED_LINES = 25
COMPILED = Path("var/bench/compiled")
PATIENCE_SECONDS = 60.0
LEAST_PODS_PER_SECOND = 30
"""A run that is slower has no result."""

_METRIC = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class NotPlaced(Exception):
    """Pods that should have been placed were not, in the time that they had."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement as the log has it. stored_at_ns: the stream's time."""

    uid: str
    node: str
    stored_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What had been spent at one moment.

    cpu_seconds, log_cpu_seconds   of the scheduler's and of the log server's process
    asking_seconds                 of the scheduler's process, for the answer to this question, which is no load
    decided, deciding_seconds      placements decided, and the time of their decisions
    """

    cpu_seconds: float
    asking_seconds: float
    log_cpu_seconds: float
    decided: float
    deciding_seconds: float


@dataclass(kw_only=True)
class Cluster:
    """Both processes and the client's connection. seqs: sequence of the last event of an object's aggregate."""

    bus: Bus
    log: ChildProcess
    scheduler: ChildProcess
    var: Path
    seqs: dict[AggregateRef, int] = field(default_factory=dict[AggregateRef, int])

    async def create(self, events: Sequence[NewEvent]) -> None:
        """Store events of different aggregates, several batches at once."""
        gate = asyncio.Semaphore(BATCHES_AT_ONCE)

        async def store(batch: Sequence[NewEvent]) -> None:
            async with gate:
                outcome = await self.bus.events.append(batch)
            assert isinstance(outcome, Appended), outcome
            self.seqs.update((event.ref, seq) for event, seq in zip(batch, outcome.seqs, strict=True))

        batches = (events[first : first + PER_BATCH] for first in range(0, len(events), PER_BATCH))
        await asyncio.gather(*(store(batch) for batch in batches))

    async def change(self, ref: AggregateRef, event: Event) -> None:
        """Store one more event about an object that the client created."""
        new = sealed(ref, event, expected_last=self.seqs[ref])
        outcome = await self.bus.events.append([new])
        assert isinstance(outcome, Appended), outcome
        self.seqs[ref] = outcome.last_seq

    async def placed(self, uids: Sequence[str], *, after: int) -> list[Placement]:
        """Waits until pods are placed, looking at the last one only, then reads the placements from the log.

        uids      in the order in which they were created
        after     position of the log before the first of them was created
        raises    NotPlaced
        """
        wanted = set(uids)
        patience = PATIENCE_SECONDS + len(uids) / LEAST_PODS_PER_SECOND
        end = time.monotonic() + patience
        last = AggregateRef("pod", uids[-1])
        while await self.bus.events.last_of(last) is None:
            if time.monotonic() >= end or not self.scheduler.is_running:
                break
            await asyncio.sleep(LOOK_SECONDS)
        found: dict[str, Placement] = {}
        while True:
            head = (await self.bus.events.head()).last_seq
            found.update((each.uid, each) for each in await self._placements(after, head) if each.uid in wanted)
            after = head
            if len(found) == len(wanted):
                return list(found.values())
            if not self.scheduler.is_running:
                raise NotPlaced(f"the scheduler ended with exit code {self.scheduler.exit_code}")
            if time.monotonic() >= end:
                raise NotPlaced(f"{len(found)} of {len(wanted)} pods were placed after {patience:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def _placements(self, after: int, upto: int) -> list[Placement]:
        return [
            Placement(stored.ref.id, node_of_placement(stored.body).node, stored.stored_at_ns)
            async for batch in self.bus.events.history(after, upto, kinds=("pod",))
            for stored in batch
            if stored.type == "PodPlaced"
        ]

    async def took_from_reservation(self, uid: str) -> bool:
        """Whether the pod's placement says that it took amounts from a Reservation."""
        last = await self.bus.events.last_of(AggregateRef("pod", uid))
        event = None if last is None else CATALOGUE.read(last)
        return isinstance(event, PodPlaced) and bool(
            event.allocation.reservation and event.allocation.reservation.amounts
        )

    async def count(self, kind: str, *, after: int = 0) -> int:
        """Events of a kind of aggregate in the log."""
        head = (await self.bus.events.head()).last_seq
        return sum([len(batch) async for batch in self.bus.events.history(after, head, kinds=(kind,))])

    async def effort(self) -> Effort:
        """What has been spent before this question."""
        cpu_seconds, log_cpu_seconds = _cpu_seconds(self.scheduler.pid), _cpu_seconds(self.log.pid)
        values = await self.metrics()
        name = "scheduler_scheduling_attempt_duration_seconds"
        return Effort(
            cpu_seconds=cpu_seconds,
            asking_seconds=_cpu_seconds(self.scheduler.pid) - cpu_seconds,
            log_cpu_seconds=log_cpu_seconds,
            decided=_sum_of(values, f"{name}_count", "scheduled"),
            deciding_seconds=_sum_of(values, f"{name}_sum", "scheduled"),
        )

    async def metrics(self) -> dict[tuple[str, str], float]:
        """(metric, labels) of the scheduler -> value."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            page = (await client.get(f"{self.scheduler.spec.urls['http']}/metrics")).text
        return {(name, labels): float(value) for name, labels, value in _METRIC.findall(page)}

    def resident_mib(self) -> float:
        """Memory of the scheduler."""
        status = Path(f"/proc/{self.scheduler.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextlib.asynccontextmanager
async def running_cluster(*, profile: bool = False) -> AsyncGenerator[Cluster]:
    """A fresh log with its streams and a scheduler that leads, as `koord up` starts them; gone afterwards.

    profile   run the scheduler under cProfile and print where its time went
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        options = StackOptions(var=Path(folder) / "var", log_level="warning")
        by_name = {spec.name: spec for spec in specs(options)}
        profiled = Path(folder) / "scheduler.prof" if profile else None
        log = ChildProcess(by_name["nats"])
        scheduler = ChildProcess(_profiled(_as_installed(by_name["scheduler"]), profiled))
        settings = BusSettings(
            urls=(by_name["nats"].urls["client"],),
            cluster=options.cluster,
            user="manager",
            nkey_seed_file=seed_file(key_folder(options.var), "manager"),
        )
        try:
            await log.start()
            async with open_bus(settings) as bus:
                await scheduler.start()
                yield Cluster(bus=bus, log=log, scheduler=scheduler, var=options.var)
        finally:
            await scheduler.stop()
            await log.kill()
            if profiled is not None:
                pstats.Stats(str(profiled)).sort_stats("tottime").print_stats(PROFILED_LINES)
            wipe(options)


def sealed(ref: AggregateRef, event: Event, *, expected_last: int = 0) -> NewEvent:
    """An event of the client, ready to be stored."""
    origin = Origin(
        causation_id=f"bench/{ref}/{expected_last}",
        correlation_id=ref.id,
        actor="manager/bench",
        occurred_at=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        traceparent=_TRACE,
    )
    return CATALOGUE.seal([Draft(ref, event, expected_last)], origin)[0]


def node_events(nodes: Iterable[Node]) -> list[NewEvent]:
    """Nodes register."""
    return [sealed(AggregateRef("nodespec", name_token(one.metadata.name)), NodeSpecAdded(object=one)) for one in nodes]


def pod_events(pods: Iterable[Pod]) -> list[NewEvent]:
    """Pods are submitted."""
    return [sealed(AggregateRef("podspec", pod.metadata.uid), PodSpecAdded(object=pod)) for pod in pods]


def _as_installed(spec: ProcessSpec) -> ProcessSpec:
    """With compiled modules, as an installation has them, wherever this machine keeps or does not keep them."""
    cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(COMPILED.absolute())}
    return replace(spec, env={**spec.env, **cache})


def _profiled(spec: ProcessSpec, output: Path | None) -> ProcessSpec:
    if output is None:
        return spec
    python, *rest = spec.argv
    return replace(spec, argv=(python, "-m", "cProfile", "-o", str(output), *rest), stop_seconds=30.0)


def _cpu_seconds(pid: int | None) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _sum_of(values: dict[tuple[str, str], float], name: str, result: str) -> float:
    label = f'result="{result}"'
    return sum(value for (metric, labels), value in values.items() if metric == name and label in labels)
