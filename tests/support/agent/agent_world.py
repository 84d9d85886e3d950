"""A world of one agent process on a bus, whose rounds the test makes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
from koord_agent.compose import assemble
from koord_agent.cycle import Cycle
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.simulator.host import SimulatedHost
from koordcore.bus.factory import Bus
from koordcore.bus.write.own_facts import OwnFactLog, OwnFacts
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.ports.desired import DesiredNode, Push, PushFeed
from koordcore.ports.eventlog import Appended, AppendOutcome, Unavailable
from koordcore.service.health import Health
from koordcore.service.lifecycle import Service
from koordcore.service.run import Shell
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import FinishedSpan, Tracer
from koordcore.service.web.http import HttpServer
from support.manual_clock import ManualClock
from support.until import until

GIB = 1 << 30
BE_ROOT = "kubepods.slice/kubepods-besteffort.slice"
NODE = "node-1.example"
REF = AggregateRef("nodestate", name_token(NODE))
LEDGER = AggregateRef("node", name_token(NODE))
TRACEPARENT = f"00-{7:032x}-{9:016x}-01"
SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
}


def pod(uid: str, qos: str, cpu_milli: int, usage: str = '{"profile":"constant","mean":1.0}') -> PodOnNode:
    """A pod as the ledger of its node has it. By default it uses all that it requests."""
    batch = qos == "BE"
    names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory") if batch else ("cpu", "memory")
    return PodOnNode(
        uid=uid,
        namespace="default",
        name=uid,
        requests={names[0]: cpu_milli, names[1]: GIB},
        qos=qos,
        kube_qos="BestEffort" if batch else "Burstable",
        priority_class="koord-batch" if batch else "koord-prod",
        usage_profile=usage,
    )


def desired(*pods: PodOnNode, node: str = NODE) -> DesiredNode:
    """What the manager writes for a node of 10 cores."""
    amounts = {"cpu": 10_000, "memory": 64 * GIB}
    return DesiredNode(node=node, pods=list(pods), slo=SLO, capacity=amounts, allocatable=amounts)


def at(seq: int, *pods: PodOnNode) -> DesiredNode:
    """What the manager writes once it has folded the ledger up to a sequence."""
    return msgspec.structs.replace(desired(*pods), as_of={"node": seq})


class Spans:
    """Finished spans."""

    def __init__(self) -> None:
        self.written: list[FinishedSpan] = []

    def write(self, span: FinishedSpan) -> None:
        self.written.append(span)

    def close(self) -> None:
        return


class AwayLog:
    """A log whose server can be away: then nothing is stored and the outcome is unknown."""

    def __init__(self, log: OwnFacts) -> None:
        self.log = log
        self.away = False

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        return Unavailable("not connected") if self.away else await self.log.append(events, deadline=deadline)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        return await self.log.last_of(ref)


class LossyFeed:
    """Pushes of which some never arrive, as at a slow consumer."""

    def __init__(self, feed: PushFeed) -> None:
        self.feed = feed
        self.losing = False
        self.lost = 0

    async def pushes(
        self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")
    ) -> AsyncIterator[Push | None]:
        async for push in self.feed.pushes(nodes, kinds):
            if self.losing and push is not None:
                self.lost += 1
            else:
                yield push


class World:
    """One agent process on a bus, whose rounds the test makes."""

    def __init__(
        self,
        bus: Bus,
        clock: ManualClock,
        folder: Path,
        *,
        nodes: Sequence[str] = (NODE,),
        log: AwayLog | None = None,
        **flags: str,
    ):
        file = folder / "nodes.jsonl"
        file.write_text("".join(f'{{"node":"{n}","cpu_milli":10000,"memory_bytes":{64 * GIB}}}\n' for n in nodes))
        words = [f"--simulated-nodes-file={file}", f"--state-dir={folder / 'state'}", "--cycle-seconds=5s"]
        words += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        settings = AgentSettings.load(words, {})
        self.bus, self.clock = bus, clock
        self.health, metrics = Health(), Metrics("agent")
        self.service = Service("agent", health=self.health)
        self.spans = Spans()
        self.log = log or AwayLog(bus.events)
        self.feed = LossyFeed(bus.pushes)
        self.link = BusLink(
            Ports(facts=self.log, reports=bus.observations, desired=bus.desired, pushes=self.feed)
            if bus.connection is None
            else Ports(
                facts=OwnFactLog(bus.connection, bus.names),
                reports=bus.observations,
                desired=bus.desired,
                pushes=self.feed,
            )
        )
        self.cycle: Cycle = assemble(
            Shell(
                settings=settings,
                clock=clock,
                service=self.service,
                health=self.health,
                metrics=metrics,
                tracer=Tracer("agent", sinks=[self.spans]),
                http=HttpServer(settings, service=self.service, health=self.health, metrics=metrics, clock=clock),
                log=logger("agent"),
            ),
            self.link,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> "AsyncGenerator[World]":
        """Its feeds and its outbox run; rounds are made by `round`."""
        self.cycle.begin()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.cycle.states.run()), group.create_task(self.cycle.facts.outbox.run())]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                self.cycle.saver.store.close()

    async def round(self, times: int = 1) -> None:
        """Let 5 s pass, then make a round; so many times."""
        for _ in range(times):
            self.clock.jump(5)
            await self.cycle.run_cycle()

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)

    async def facts(self) -> list[Event]:
        """What the log holds of the node, once the outbox is empty."""
        await self.cycle.facts.outbox.flush(10)
        found = [CATALOGUE.read(stored) for stored in await self.bus.events.read_aggregate(REF)]
        return [event for event in found if event is not None]

    async def place(self, *pods: PodOnNode) -> StoredEvent:
        """The scheduler takes room for pods on the node."""
        return await self._ledger(NodeResourcesTaken(pods=list(pods)))

    async def release(self, *uids: str) -> StoredEvent:
        """The scheduler gives the room of pods back."""
        return await self._ledger(NodeResourcesReturned(pods=list(uids)))

    async def _ledger(self, event: Event) -> StoredEvent:
        last = await self.bus.events.last_of(LEDGER)
        last_seq = last.seq if last else 0
        origin = Origin(
            causation_id=f"decision-{last_seq}",
            correlation_id="uid-of-the-pod",
            actor="scheduler",
            occurred_at="2026-01-01T00:00:00.000000Z",
            traceparent=TRACEPARENT,
        )
        outcome = await self.bus.events.append(CATALOGUE.seal([Draft(LEDGER, event, last_seq)], origin))
        assert isinstance(outcome, Appended)
        stored = await self.bus.events.last_of(LEDGER)
        assert stored is not None
        return stored

    def quota(self, node: str = NODE) -> str:
        """The best-effort quota in force."""
        host = self.cycle.agents[node].host
        assert isinstance(host, SimulatedHost)
        return (host.read(CgroupFile(BE_ROOT, "cpu.cfs_quota_us")) or "").strip()
