"""The agent as a service over a bus: from desired state to facts and reports, without the bus, after a restart."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from koord_agent.compose import assemble
from koord_agent.cycle import Cycle
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.host.simulated_host import SimulatedHost
from koord_agent.shell.host.simulated_node import SimulatedNode
from koord_agent.shell.node.cycle_result import CycleResult, nothing_done
from koord_agent.wiring.nodes_file import read_nodes, shard_of
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.client.connection import Denied
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, memory_bus, open_bus
from koordcore.bus.write.own_facts import OwnFactLog, OwnFacts
from koordcore.embedded.nats import NatsServer
from koordcore.events.agents.nodestate import (
    AgentStarted,
    BeCpuSuppressed,
    EvictedPod,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent, name_token
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.ports.desired import DesiredNode, DesiredStore, Push, PushFeed
from koordcore.ports.eventlog import Appended, AppendOutcome, Unavailable
from koordcore.service.health import Health
from koordcore.service.lifecycle import Service
from koordcore.service.run import Shell
from koordcore.service.telemetry.finished_span import FinishedSpan
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer
from koordcore.service.web.http import HttpServer
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from structlog.testing import capture_logs
from support.manual_clock import ManualClock
from support.until import let_run, until

GIB = 1 << 30
BE_ROOT = "kubepods.slice/kubepods-besteffort.slice"
NODE = "node-1.example"
REF = AggregateRef("nodestate", name_token(NODE))
LEDGER = AggregateRef("node", name_token(NODE))
TRACEPARENT = f"00-{7:032x}-{9:016x}-01"
SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
}


def pod(uid: str, qos: str, cpu_milli: int) -> PodOnNode:
    """A pod that uses all that it requests."""
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
        usage_profile='{"profile":"constant","mean":1.0}',
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


class ClosedStore:
    """A bucket that the user of the agent may not read yet."""

    def __init__(self, store: DesiredStore) -> None:
        self.store = store
        self.is_open = False
        self.denied = 0

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        await self.store.put(desired, check)

    async def delete(self, node: str, check: Callable[[], None] | None = None) -> None:
        await self.store.delete(node, check)

    async def get(self, node: str) -> DesiredNode | None:
        if not self.is_open:
            self.denied += 1
            raise Denied(node)
        return await self.store.get(node)


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


async def test_one_pods_way_on_its_node(tmp_path: Path) -> None:
    """Desired state appears, a push places a pod, it starts within its trace, is reported, best effort gives way."""
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.round()
        assert [type(event) for event in await world.facts()] == [AgentStarted]

        await world.bus.desired.put(desired(pod("job", "BE", 9_000)))
        await world.until(lambda: NODE in world.cycle.states.views)  # looked for again without being told
        placed = await world.place(pod("web", "LS", 4_000))
        await world.until(lambda: len(world.cycle.states.views[NODE].pods) == 2)
        await world.round(3)

        facts = await world.facts()
        assert facts[1] == PodsStarted(pods=["job", "web"])
        (suppressed,) = [event for event in facts if isinstance(event, BeCpuSuppressed)]
        assert world.quota() == str(suppressed.new_quota_us)
        assert suppressed.old_quota_us == -1
        web = next(span for span in world.spans.written if span.attributes["pod_uid"] == "web")
        assert (web.name, web.trace_id, web.parent_id) == ("start pod", f"{7:032x}", f"{9:016x}")
        (report,) = await world.bus.observations.latest([LEDGER])
        told = CATALOGUE.read(report)
        assert isinstance(told, NodeUsageReported)
        assert told.node_usage is not None
        assert {metric.uid for metric in told.pods} == {"job", "web"}

        # a second pod of the same trace: its fact alone carries the headers of its placement
        placed = await world.place(pod("web-2", "LS", 500))
        await world.until(lambda: bool(world.cycle.changed))
        world.cycle.take_changes()
        assert (await world.facts())[-1] == PodsStarted(pods=["web-2"])
        started = await world.bus.events.last_of(REF)
        assert started is not None
        assert (started.causation_id, started.correlation_id) == (placed.event_id, "uid-of-the-pod")
        assert started.traceparent.split("-")[1] == f"{7:032x}"
        assert started.actor == f"agent/{NODE}"

        await world.release("web")
        await world.until(lambda: bool(world.cycle.changed))
        await world.round()
        assert PodsStopped(pods=["web"]) in await world.facts()


async def test_an_error_of_one_node_ends_neither_the_agent_nor_the_farewell_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    nodes = ("a", "b")
    async with World(memory_bus(), ManualClock(), tmp_path, nodes=nodes).running() as world:
        for node in nodes:
            await world.bus.desired.put(desired(pod("web", "LS", 4_000), node=node))
        await world.until(lambda: set(nodes) == set(world.cycle.states.views))
        monkeypatch.setattr(world.cycle.agents["a"].host, "start_pod", broken)
        monkeypatch.setattr(world.cycle.agents["a"], "report", broken)
        monkeypatch.setattr(world.cycle.agents["a"], "farewell", broken)
        closed: list[str] = []
        for node in nodes:

            def close(_: int, node: str = node) -> None:
                closed.append(node)

            monkeypatch.setattr(world.cycle.agents[node], "close", close)
        with capture_logs() as lines:
            await world.round(3)
            world.cycle.end()
        assert closed == ["a", "b"]
        assert world.cycle.agents["b"].running_pods == {"web"}
        told = [line["problem"].split(":")[0] for line in lines if line["event"] == "node_problem"]
        assert sorted(told) == ["no usage report", "pods were not started and ended", "the last facts are missing"]


async def test_a_pushed_pod_does_not_repeat_the_problems_that_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired(pod("web", "LS", 4_000), pod("../odd", "LS", 1_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        monkeypatch.setattr(world.cycle.agents[NODE].host, "tree", broken)
        monkeypatch.setattr(world.cycle.agents[NODE], "report", broken)
        with capture_logs() as lines:
            for _ in range(3):
                await world.round()
                world.cycle.changed.add(NODE)
                world.cycle.take_changes()
        told = [(line["source"], line["problem"].split(":")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [
            ("pods", "pod default/../odd"),
            ("cycle", "the cycle failed, what is set stays"),
            ("report", "no usage report"),
        ]
        monkeypatch.undo()
        with capture_logs() as lines:
            await world.round()
            monkeypatch.setattr(world.cycle.agents[NODE].host, "tree", broken)
            await world.round()
        told = [(line["source"], line["problem"].split(":")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [("cycle", "the cycle failed, what is set stays")]


async def test_what_the_last_cycle_did_is_told_although_the_process_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    victim = EvictedPod(uid="job", namespace="d", name="job", releases={}, ended=True)
    evicted = PodsEvictedByAgent(feature="BEMemoryEvict", pods=[victim], reason="memory", to_release={})

    def run_cycle(_: int) -> CycleResult:
        began.set()
        go_on.wait(60)
        return nothing_done("evicted", (evicted,))

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        monkeypatch.setattr(
            world.cycle.nodes, "is_simulated", False
        )  # as on a real machine, whose cycles run in a thread
        monkeypatch.setattr(world.cycle.agents[NODE], "run_cycle", run_cycle)
        cycle = asyncio.create_task(world.cycle.run_cycle())
        await until(began.is_set)
        cycle.cancel()
        await let_run()
        assert not cycle.done()
        go_on.set()
        await asyncio.wait((cycle,))
        assert cycle.cancelled()
        assert (await world.facts())[1:] == [evicted]


async def test_a_cycle_without_a_thread_is_a_problem_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired(pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        monkeypatch.setattr(world.cycle.nodes, "is_simulated", False)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # without a thread yet
        with monkeypatch.context() as patched, capture_logs() as lines:
            patched.setattr(threading.Thread, "start", no_room)
            await world.round()
        told = {(line["source"], line["problem"]) for line in lines if line["event"] == "node_problem"}
        assert ("cycle", "the cycle failed, what is set stays: RuntimeError: can't start new thread") in {
            (source, problem.partition(" (")[0]) for source, problem in told
        }
        with capture_logs() as lines:
            await world.round()
        assert [line for line in lines if line["event"] == "node_problem"] == []


async def test_what_fails_when_a_node_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError("no space left")

    def full(_: int) -> str:
        return "time series are not stored: disk full"

    async with World(memory_bus(), ManualClock(), tmp_path, nodes=("a", "b")).running() as world:
        monkeypatch.setattr(world.cycle.agents["a"], "close", broken)
        monkeypatch.setattr(world.cycle.agents["b"], "close", full)
        with capture_logs() as lines:
            world.cycle.end()
        told = [(line["node"], line["problem"].split(" (")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [
            ("a", "it is not closed: OSError: no space left"),
            ("b", "time series are not stored: disk full"),
        ]


async def test_with_the_log_away_it_enforces_and_delivers_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordcore.service.outbox.fact_queue.PAUSE_SECONDS", 0.01)
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        world.log.away = True
        await world.bus.desired.put(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round(3)
        assert world.quota() not in ("", "-1")
        assert (await world.bus.events.head()).last_seq == 0
        assert len(world.cycle.facts.outbox) == 3
        world.log.away = False
        kinds = [type(event) for event in await world.facts()]
        assert kinds == [AgentStarted, PodsStarted, BeCpuSuppressed]


async def test_an_agent_that_may_not_read_its_desired_state_goes_on_and_reads_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord_agent.shell.bus.desired_state.MISSING_SECONDS", (0.01, 0.01))
    bus = memory_bus()
    closed = ClosedStore(bus.desired)
    async with World(replace(bus, desired=closed), ManualClock(), tmp_path).running() as world:
        await bus.desired.put(desired(pod("web", "LS", 4_000)))
        await world.until(lambda: closed.denied >= 2)
        closed.is_open = True
        await world.until(lambda: NODE in world.cycle.states.views)


async def test_a_restart_without_the_bus_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    """Killed with facts in its outbox: the next process enforces what was wanted last and says each start once."""
    log, clock = MemoryLog(), ManualClock()
    first = World(memory_bus(log=log), clock, tmp_path)
    first.log.away = True
    async with first.running():
        await first.bus.desired.put(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000)))
        await first.until(lambda: NODE in first.cycle.states.views)
        await first.round(3)
    bus = memory_bus(log=log)
    second = World(bus, clock, tmp_path)  # its bucket is empty: what it knows, it knows from disk
    async with second.running():
        await second.round(3)
        assert second.quota() not in ("", "-1")
        assert second.cycle.agents[NODE].running_pods == {"web", "job"}
        facts = await second.facts()
        assert [event for event in facts if isinstance(event, PodsStarted)] == [PodsStarted(pods=["job", "web"])]
        assert sum(isinstance(event, AgentStarted) for event in facts) == 2


async def run_until_killed(world: World, *, leaves: bool = False) -> None:
    """Run an agent with the pod web until it is killed.

    leaves    whether the pod leaves before; the manager is gone by then, and the bucket keeps the pod
    """
    async with world.running():
        placed = await world.place(pod("web", "LS", 4_000))
        await world.bus.desired.put(at(placed.seq, pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round()
        if leaves:
            await world.release("web")
            await world.until(lambda: not world.cycle.states.views[NODE].pods)
            await world.round()


async def starts(world: World) -> list[Event]:
    """What the log holds about starts and ends of pods."""
    return [event for event in await world.facts() if isinstance(event, PodsStarted | PodsStopped)]


@pytest.mark.parametrize("leaves_before", [True, False], ids=["before the kill", "while it is down"])
async def test_a_pod_that_left_does_not_start_again_with_a_killed_agent_and_no_manager(
    tmp_path: Path, leaves_before: bool
) -> None:
    bus, clock = memory_bus(), ManualClock()
    first = World(bus, clock, tmp_path)
    await run_until_killed(first, leaves=leaves_before)
    if not leaves_before:
        await first.release("web")
    async with World(bus, clock, tmp_path).running() as second:
        await second.until(lambda: NODE in second.cycle.states.read_once)
        await second.round(2)
        assert second.cycle.agents[NODE].running_pods == set()
        assert await starts(second) == [PodsStarted(pods=["web"]), PodsStopped(pods=["web"])]


async def test_nothing_starts_from_a_bucket_that_misses_facts_until_it_is_written(tmp_path: Path) -> None:
    """The pod gone left before the agent saw it. Who ran before runs on, as containers do beside a kubelet."""
    bus, clock = memory_bus(), ManualClock()
    first = World(bus, clock, tmp_path)
    await run_until_killed(first)
    placed = await first.place(pod("gone", "LS", 100))
    await bus.desired.put(at(placed.seq, pod("web", "LS", 4_000), pod("gone", "LS", 100)))
    await first.release("gone")
    last = await first.place(pod("job", "BE", 500))
    async with World(bus, clock, tmp_path).running() as second:
        await second.until(lambda: NODE in second.cycle.states.read_once)
        await second.round(2)
        assert second.cycle.states.views[NODE].misses_facts
        assert second.cycle.agents[NODE].running_pods == {"web"}
        assert await starts(second) == [PodsStarted(pods=["web"])]

        await bus.desired.put(at(last.seq, pod("web", "LS", 4_000), pod("job", "BE", 500)))
        await second.until(lambda: not second.cycle.states.views[NODE].misses_facts)
        await second.round()
        assert second.cycle.agents[NODE].running_pods == {"web", "job"}
        assert await starts(second) == [PodsStarted(pods=["web"]), PodsStarted(pods=["job"])]


async def test_an_agent_that_may_not_read_its_ledger_believes_the_bucket(tmp_path: Path) -> None:
    """The users of the server were made for an older version."""

    class OldUser(AwayLog):
        async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
            if ref.kind == "node":
                raise Denied(str(ref))
            return await super().last_of(ref)

    bus = memory_bus()
    world = World(bus, ManualClock(), tmp_path, log=OldUser(bus.events))
    async with world.running():
        placed = await world.place(pod("web", "LS", 4_000))
        await bus.desired.put(at(placed.seq, pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round()
        assert world.cycle.agents[NODE].running_pods == {"web"}


async def test_a_kept_desired_state_that_is_too_old_or_damaged_is_not_used(tmp_path: Path) -> None:
    clock = ManualClock()
    async with World(memory_bus(), clock, tmp_path).running() as first:
        await first.bus.desired.put(desired(pod("web", "LS", 4_000)))
        await first.until(lambda: NODE in first.cycle.states.views)
        await first.round()
    clock.jump(3600)
    assert NODE in World(memory_bus(), clock, tmp_path).cycle.states.views
    assert NODE not in World(memory_bus(), clock, tmp_path, desired_max_age="1000s").cycle.states.views
    with sqlite3.connect(tmp_path / "state" / "agent.sqlite") as file:
        file.execute("update desired set body = replace(cast(body as text), 'web', 'wob')")
    file.close()
    assert NODE not in World(memory_bus(), clock, tmp_path).cycle.states.views
    (tmp_path / "state" / "agent.sqlite").write_bytes(b"not a database" * 1000)
    assert World(memory_bus(), clock, tmp_path).cycle.saver.store.set_aside == tmp_path / "state" / "agent.damaged"


async def test_a_missed_push_makes_it_read_the_bucket(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired())
        await world.until(lambda: NODE in world.cycle.states.views)
        world.feed.losing = True
        first = await world.place(pod("a", "LS", 100))
        await world.until(lambda: world.feed.lost == 1)
        world.feed.losing = False
        second = await world.place(pod("b", "LS", 100))
        await world.bus.desired.put(at(first.seq, pod("a", "LS", 100)))  # the manager has not folded the second yet
        await world.until(lambda: world.cycle.states.views[NODE].as_of.get("node") == second.seq)
        assert set(world.cycle.states.views[NODE].pods) == {"a", "b"}


async def test_a_pod_that_cannot_have_a_directory_is_refused_and_the_others_run(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(
            desired(pod("../../etc", "LS", 100), pod("a-b", "LS", 100), pod("a_b", "LS", 100), pod("ok", "LS", 100))
        )
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round(2)
        assert (await world.facts())[1] == PodsStarted(pods=["a-b", "ok"])


async def test_a_full_outbox_keeps_the_oldest_and_says_the_start_later(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path, outbox_facts="1").running() as world:
        world.cycle.states.restore({NODE: desired(pod("web", "LS", 4_000))})
        world.cycle.take_changes()  # its room is taken by AgentStarted
        assert world.cycle.facts.outbox.dropped == 1
        assert [type(event) for event in await world.facts()] == [AgentStarted]
        await world.round()
        assert (await world.facts())[1] == PodsStarted(pods=["web"])


async def test_facts_that_found_no_room_are_said_once_there_is_some(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path, outbox_facts="1").running() as world:
        world.log.away = True
        world.cycle.states.restore({NODE: desired(pod("job", "BE", 9_000), pod("web", "LS", 4_000))})
        await world.round(3)
        quota = int(world.quota())
        assert quota > 0
        world.log.away = False
        for _ in range(4):
            await world.facts()
            await world.round()
        facts = await world.facts()
        assert PodsStarted(pods=["job", "web"]) in facts
        suppressed = [event for event in facts if isinstance(event, BeCpuSuppressed)]
        assert suppressed[0].old_quota_us == -1


async def test_what_placed_pods_is_not_remembered_for_ever(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired())
        await world.until(lambda: NODE in world.cycle.states.views)
        last = 0
        for index in range(20):
            await world.place(pod(f"p{index}", "LS", 10))
            last = (await world.release(f"p{index}")).seq
        await world.until(lambda: world.cycle.states.views[NODE].as_of.get("node", 0) == last)
        assert not any(world.cycle.states.cause_of(NODE, f"p{index}") for index in range(20))


async def test_what_happens_to_pods_before_any_desired_state_is_known_stops_nothing(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        world.cycle.changed.add(NODE)  # a pod's cgroup appeared, or the kubelet listed its pods
        world.cycle.take_changes()
        await world.round()
        assert [type(event) for event in await world.facts()] == [AgentStarted]


async def test_it_is_not_ready_while_the_connection_is_lost() -> None:
    link = BusLink()
    assert link.trouble() == "not connected yet"
    link.refuse("wrong key")
    assert link.trouble() == "wrong key"
    connected = [True]
    bus = memory_bus()
    ports = Ports(facts=bus.events, reports=bus.observations, desired=bus.desired, pushes=bus.pushes)
    link.connect(ports, is_connected=lambda: connected[0])
    assert link.trouble() is None
    connected[0] = False
    assert link.trouble() == "the connection is lost; the last desired state stays in force"


async def test_another_writer_on_the_aggregate_costs_a_retry_only(tmp_path: Path) -> None:
    nodes = ("a", "b", NODE)
    async with World(memory_bus(), ManualClock(), tmp_path, nodes=nodes).running() as world:
        await world.facts()
        origin = Origin(causation_id="x", correlation_id="x", actor="other", occurred_at="2026-01-01T00:00:00.000000Z")
        last = await world.bus.events.last_of(REF)
        assert last is not None
        other = CATALOGUE.seal([Draft(REF, AgentStarted(host="linux", version="0"), last.seq)], origin)
        assert isinstance(await world.bus.events.append(other), Appended)
        world.cycle.states.restore({node: desired(pod(f"p-{node}", "LS", 100), node=node) for node in nodes})
        world.cycle.take_changes()
        assert (await world.facts())[-1] == PodsStarted(pods=[f"p-{NODE}"])
        assert isinstance(CATALOGUE.read(await _last(world, "a")), PodsStarted)


async def _last(world: World, node: str) -> StoredEvent:
    stored = await world.bus.events.last_of(AggregateRef("nodestate", node))
    assert stored is not None
    return stored


async def test_it_is_ready_once_every_node_was_looked_at(tmp_path: Path) -> None:
    world = World(memory_bus(), ManualClock(), tmp_path, nodes=("a", "b"))
    check = {result.name: result for result in world.health.readiness()}["desired"]
    assert (check.ok, check.reason) == (False, "the desired state of 0 of 2 nodes has been read")
    async with world.running():
        await world.until(lambda: {r.name: r.ok for r in world.health.readiness()}["desired"])


async def test_reports_of_many_nodes_are_spread_over_the_interval(tmp_path: Path) -> None:
    nodes = [f"n{index}" for index in range(60)]
    async with World(memory_bus(), ManualClock(), tmp_path, nodes=nodes).running() as world:
        world.cycle.states.restore({node: desired(node=node) for node in nodes})
        await world.round(2)  # everybody reports as soon as there is something to report
        before = (await world.bus.observations.head()).last_seq
        assert before == 60
        counts: list[int] = []
        for _ in range(12):  # one interval
            await world.round()
            after = (await world.bus.observations.head()).last_seq
            counts.append(after - before)
            before = after
        assert sum(counts) == 60
        assert max(counts) < 15


def test_nodes_files_of_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text(
        '{"apiVersion":"v1","kind":"List","items":[{"kind":"Node","metadata":{"name":"a"},'
        '"status":{"capacity":{"cpu":"1500m","memory":"2Gi"}}}]}'
    )
    (node,) = read_nodes(file)
    assert (node.name, node.cpu_milli, node.memory_bytes) == ("a", 1500, 2 * GIB)
    file.write_text('{"node":"a","cpu_milli":1,"memory_bytes":2}\n\n{"node":"b","cpu_milli":1,"memory_bytes":2}\n')
    nodes = read_nodes(file)
    assert [n.name for n in shard_of(nodes, "2/2")] == ["b"]
    file.write_text('{"node":"a"}\n')
    with pytest.raises(InvalidInput, match="cpu_milli"):
        read_nodes(file)
    with pytest.raises(InvalidInput):
        shard_of(nodes, "3/2")


def test_labels_of_a_node_name_its_simulated_devices(tmp_path: Path) -> None:
    file = tmp_path / "nodes"

    def nodes_with(**labels: str) -> list[SimulatedNode]:
        named = {f"koordstream.io/simulated-{name.replace('_', '-')}": text for name, text in labels.items()}
        capacity = {"cpu": "8", "memory": "2Gi"}
        item = {"kind": "Node", "metadata": {"name": "a", "labels": named}, "status": {"capacity": capacity}}
        file.write_bytes(codec.encode({"kind": "List", "items": [item]}))
        return read_nodes(file)

    [node] = nodes_with(gpus="3", rdma_functions="2")
    assert (node.gpus, node.rdma_functions) == (3, 2)
    assert nodes_with(rdma_functions="2")[0].rdma_functions == 0
    for text in ("8", "-1", "many"):
        with pytest.raises(InvalidInput, match="virtual functions up to 7"):
            nodes_with(gpus="3", rdma_functions=text)


@pytest.mark.nats
async def test_on_a_real_server_through_an_interruption(fresh_nats_server: NatsServer, tmp_path: Path) -> None:
    """The same way over JetStream; the server dies with facts unsaid and comes back."""
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="demo", user="agent")
    await bootstrap_bus(settings)
    async with (
        open_bus(settings) as bus,
        World(bus, ManualClock(), tmp_path).running() as world,
    ):
        await world.bus.desired.put(desired(pod("job", "BE", 9_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.place(pod("web", "LS", 4_000))
        await world.until(lambda: len(world.cycle.states.views[NODE].pods) == 2)
        await world.round()
        assert await world.facts() == [
            AgentStarted(host="simulated", version=world.cycle.version),
            PodsStarted(pods=["job", "web"]),
        ]
        await fresh_nats_server.kill()
        await world.round(3)
        assert world.quota() not in ("", "-1")
        assert len(world.cycle.facts.outbox) == 1
        await fresh_nats_server.start()
        await world.until(lambda: len(world.cycle.facts.outbox) == 0)
        assert isinstance((await world.facts())[-1], BeCpuSuppressed)
        await world.place(pod("late", "LS", 100))
        await world.until(lambda: "late" in world.cycle.states.views[NODE].pods)

        async def is_reported() -> bool:
            await world.round()  # a report into the dying connection may be lost
            return bool(await bus.observations.latest([LEDGER]))

        await until(is_reported)
