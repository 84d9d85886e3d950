"""The agent as a service over a bus: from desired state to facts and reports, and when it is ready."""

from pathlib import Path

import pytest
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koordcore.bus.factory import BusSettings, bootstrap_bus, memory_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.nodestate import AgentStarted, BeCpuSuppressed, PodsStarted, PodsStopped
from koordcore.events.observation import NodeUsageReported
from support.agent.agent_world import LEDGER, NODE, REF, World, desired, pod
from support.manual_clock import ManualClock
from support.until import until


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


async def test_a_pod_that_cannot_have_a_directory_is_refused_and_the_others_run(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(
            desired(pod("../../etc", "LS", 100), pod("a-b", "LS", 100), pod("a_b", "LS", 100), pod("ok", "LS", 100))
        )
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round(2)
        assert (await world.facts())[1] == PodsStarted(pods=["a-b", "ok"])


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
