"""The whole service over the log in memory: follower, cycle, publisher, pages; two of them racing."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from koord_scheduler.configuration import load_configuration
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import Bus, memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.explanations import DecisionAbandoned, PodUnschedulable
from koordcore.events.gang import GangPlaced, gang_ref
from koordcore.events.log import EventSkipped
from koordcore.events.objects import (
    CustomObjectObserved,
    NodeSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.ports.eventlog import MOST_AT_ONCE, AppendOutcome, EventLog, Unavailable
from koordcore.protocol import keys
from koordcore.service.telemetry.tracing import parse_traceparent
from koordcore.values import codec
from support.scheduler.one_service import (
    PARENT,
    Running,
    members_of_gang,
    one_node_each,
    say,
    scheduler,
    submit,
    where,
)
from support.scheduler.scheduling import node, pod, with_metadata
from support.until import until

pytestmark = pytest.mark.slow


async def test_pods_are_placed_with_headers_that_tell_why() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("n"))
    async with scheduler(bus) as running:
        await submit(bus.events, pod("p", {"cpu": "1"}))
        await until(lambda: where(shared) == {"p": "n"})
        [placed] = shared.of(AggregateRef("pod", "p"), 0)
        [taken] = shared.of(AggregateRef("node", "n"), 0)
        [spec] = shared.of(AggregateRef("podspec", "p"), 0)
        assert (placed.causation_id, placed.correlation_id) == (spec.event_id, "p")
        assert (taken.causation_id, taken.correlation_id) == (placed.event_id, "p")
        assert placed.based_on == spec.seq
        context, parent = parse_traceparent(placed.traceparent), parse_traceparent(PARENT)
        assert context is not None
        assert parent is not None
        assert context.trace_id == parent.trace_id
        seen = (await running.get("/apis/v1/nodes/n")).json()
        assert (seen["pods"], seen["remaining"]["cpu"]) == (["default/p"], 3000)
        assert (await running.get("/apis/v1/nodes/m")).status_code == 404
        metrics = (await running.get("/metrics")).text
        assert 'scheduler_schedule_attempts_total{profile="koord-scheduler",result="scheduled"} 1.0' in metrics


async def test_verdict_says_why_and_later_the_pod_is_placed() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("small", cpu="1"), pod("p", {"cpu": "2"}))
    async with scheduler(bus, None, "--pod-initial-backoff=10ms") as running:
        queue = running.cycle.state.queue
        await until(lambda: any(place.name == "UNSCHEDULABLE" and count for place, count in queue.counts().items()))
        [stored] = await bus.explanations.latest([AggregateRef("pod", "p")])
        explanation = CATALOGUE.read(stored)
        assert isinstance(explanation, PodUnschedulable)
        assert explanation.message == (
            "0/1 nodes are available: 1 Insufficient cpu. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert (await running.get("/queue")).json()["unschedulable"] == 1
        added = await say(bus.events, "nodespec", "wide", NodeSpecAdded(object=node("wide")))
        await until(lambda: where(shared) == {"p": "wide"})
        [placed] = shared.of(AggregateRef("pod", "p"), 0)
        assert placed.causation_id == added.event_id


async def test_refusal_is_not_told_later_than_the_nomination_that_it_led_to() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("n", cpu="1"), pod("low", {"cpu": "1"}))
    async with scheduler(bus):
        await until(lambda: where(shared) == {"low": "n"})
        await submit(bus.events, pod("high", {"cpu": "1"}, priority=10))
        await until(lambda: shared.of(AggregateRef("pod", "high"), 0))
        [nominated] = shared.of(AggregateRef("pod", "high"), 0)
        [refused] = await bus.explanations.latest([AggregateRef("pod", "high")])
        assert (nominated.type, refused.type) == ("PodNominated", "PodUnschedulable")
        assert refused.occurred_at <= nominated.occurred_at


async def test_deleted_pod_is_released() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    async with scheduler(bus):
        await submit(bus.events, node("n"), pod("p"))
        await until(lambda: where(shared) == {"p": "n"})
        await say(bus.events, "podspec", "p", PodSpecDeleted(namespace="default", name="p"))
        await until(lambda: where(shared) == {})


async def test_restarted_scheduler_goes_on_where_the_log_stands() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("n"), *(pod(f"p{number}", {"cpu": "1"}) for number in range(3)))
    async with scheduler(bus):
        await until(lambda: len(where(shared)) == 3)
    await submit(bus.events, *(pod(f"q{number}", {"cpu": "1"}) for number in range(3)))
    async with scheduler(bus) as running:
        await until(lambda: len(where(shared)) == 4)
        row = running.cycle.state.nodes.row("n")
        assert row is not None
        assert running.cycle.state.nodes.free[1, row] == 0


class Overtaken:
    """A log that takes what a scheduler decides only when another one has stored something, or all pods are placed."""

    def __init__(self, log: EventLog, shared: MemoryLog, pods: int) -> None:
        self._log = log
        self._shared = shared
        self._pods = pods

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        seen = self._shared.last_seq
        await until(lambda: self._shared.last_seq > seen or len(where(self._shared)) == self._pods)
        return await self._log.append(events)


async def test_two_schedulers_never_place_twice_nor_overfill() -> None:
    assert await refusals_of_a_race() > 0


def has_folded_its_answers(running: Running, log: MemoryLog) -> bool:
    """Whether a scheduler has sent all its decisions, has all answers, and has folded the log to its end."""
    cycle = running.cycle
    is_answered = len(cycle.state.assumed.outbox) == 0 and cycle.publisher.in_flight == 0
    return is_answered and cycle.state.log.position == log.last_seq


async def refusals_of_a_race() -> float:
    """Two schedulers fill the same nodes; gives how many decisions the log refused."""
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    nodes, pods = 8, 400
    await submit(bus.events, *(node(f"n{number}", cpu="20") for number in range(nodes)))
    room = nodes * 40
    # Equal schedulers that see the same decide the same, which is no conflict; the overtaken one sees something else.
    overtaken = Overtaken(bus.events, shared, room)
    async with scheduler(bus) as one, scheduler(bus, overtaken) as other:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  everything else is the log's own
        await submit(bus.events, *(pod(f"p{number}", {"cpu": "500m"}) for number in range(pods)))
        await until(lambda: len(where(shared)) == room)
        for running in (one, other):
            await until(lambda running=running: has_folded_its_answers(running, shared))
            free = running.cycle.state.nodes.free[1, :nodes]
            assert (free == 0).all()
        refused = one.shell.metrics.registry.get_sample_value("scheduler_refused_decisions_total")
        also = other.shell.metrics.registry.get_sample_value("scheduler_refused_decisions_total")
    return (refused or 0) + (also or 0)


class Unsteady:
    """A log that now and then stores without saying so, and is away, before it answers."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.calls = 0
        self.lost = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.calls += 1
        match self.calls % 3:
            case 0:
                return Unavailable("away")
            case 1:
                await self._log.append(events)
                self.lost += 1
                return Unavailable("the answer was lost")
            case _:
                return await self._log.append(events)


async def test_lost_answers_place_nobody_twice() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    unsteady = Unsteady(bus.events)
    await submit(bus.events, *(node(f"n{number}") for number in range(3)))
    async with scheduler(bus, unsteady):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  everything else is the log's own
        for number in range(9):
            await submit(bus.events, pod(f"p{number}", {"cpu": "1"}))
        await until(lambda: len(where(shared)) == 9)
    assert unsteady.lost > 1


async def test_full_log_stops_decisions_and_leaves_no_assumption() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("n"), pod("p", {"cpu": "1"}))
    shared.max_events = 2
    async with scheduler(bus) as running:
        await until(lambda: running.cycle.publisher.is_full)
        row = running.cycle.state.nodes.row("n")
        assert row is not None
        assert running.cycle.state.nodes.requested[1, row] == 0
        assert (await running.get("/readyz")).status_code == 200
        assert where(shared) == {}


async def test_nearly_full_log_stops_placements_but_not_releases() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, node("n"), pod("early", {"cpu": "1"}))
    async with scheduler(bus) as running:
        await until(lambda: where(shared) == {"early": "n"})
        running.cycle.room.used, running.cycle.room.limit = 90, 100
        await submit(bus.events, pod("late", {"cpu": "1"}))
        await say(bus.events, "podspec", "early", PodSpecDeleted(namespace="default", name="early"))
        await until(lambda: where(shared) == {})
        running.cycle.room.limit = 1000
        await until(lambda: where(shared) == {"late": "n"})


async def test_gang_of_hundreds_is_placed_whole_though_its_turn_takes_many_bursts() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(300))
    async with scheduler(bus):
        await submit(bus.events, *members_of_gang(300))
        await until(lambda: shared.of(AggregateRef("gang", "default=g"), 0))
        assert len(where(shared)) == 300


async def test_gang_of_more_events_than_the_log_takes_at_once_is_told_so_and_harms_nobody() -> None:
    shared = MemoryLog(max_batch=MOST_AT_ONCE)
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(MOST_AT_ONCE // 2))
    async with scheduler(bus) as running:
        await submit(bus.events, *members_of_gang(MOST_AT_ONCE // 2))
        said = await abandoned(bus, "m0")
        assert said.reason == "placing gang default/g takes 1001 events at once, and the log stores at most 1000"
        assert where(shared) == {}
        await submit(bus.events, node("more", cpu="1"), pod("alone", {"cpu": "1"}))
        await until(lambda: "alone" in where(shared))
        assert running.shell.health.is_ready()


async def test_gang_of_more_than_a_thousand_events_is_placed_whole() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(600))
    async with scheduler(bus):
        await submit(bus.events, *members_of_gang(600))
        await until(lambda: len(where(shared)) == 600)
        [placed] = shared.of(gang_ref("default", "g"), 0)
        event = CATALOGUE.read(placed)
        assert isinstance(event, GangPlaced)
        assert (len(event.members), event.count) == (600, 0)
        first, last = placed.seq - 1200, placed.seq
        assert {stored.ref.kind for stored in shared.between(first - 1, last - 1, None, 2000)} == {"pod", "node"}


async def test_gang_of_more_than_a_thousand_members_is_placed_whole_and_its_fact_counts_them() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, *(node(f"n{number}", cpu="101", pods="101") for number in range(11)))
    async with scheduler(bus):
        await submit(bus.events, *members_of_gang(1001))
        await until(lambda: len(where(shared)) == 1001)
        [placed] = shared.of(gang_ref("default", "g"), 0)
        event = CATALOGUE.read(placed)
        assert isinstance(event, GangPlaced)
        assert (len(event.members), event.count) == (1000, 1001)


async def test_decisions_that_share_an_append_go_alone_if_the_log_takes_fewer_at_once() -> None:
    shared = MemoryLog(max_batch=5)
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(40), *(pod(f"p{number}", {"cpu": "1"}) for number in range(40)))
    async with scheduler(bus) as running:
        await until(lambda: len(where(shared)) == 40)
        assert running.shell.health.is_ready()


@pytest.mark.parametrize("name", ["my gang", "a*b", "größe", "two\nlines", "x" * 600, "y" * 5000])
async def test_gang_that_an_annotation_names_by_any_text_is_placed(name: str) -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(2))
    async with scheduler(bus) as running:
        await submit(bus.events, *members_of_gang(2, name))
        await until(lambda: len(where(shared)) == 2)
        [placed] = shared.of(gang_ref("default", name), 0)
        assert len(placed.ref.id) < 300, "servers and indexes take no longer names"
        event = CATALOGUE.read(placed)
        assert isinstance(event, GangPlaced)
        assert event.name == name
        assert running.shell.health.is_ready()


QUICK = ("--pod-initial-backoff=100ms", "--pod-max-backoff=500ms")


@pytest.mark.parametrize("nodes", [1, 3])
async def test_decision_that_is_too_large_for_the_log_is_told_and_harms_nobody(nodes: int) -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    large = "x" * 500  # what is said of it takes more room
    hosts = [node(f"n{number}", cpu=str(6 // nodes)) for number in range(nodes)]
    await submit(bus.events, *hosts, *(pod(uid, {"cpu": "2"}) for uid in (large, "p", "q")))
    shared.max_payload = 2048
    async with scheduler(bus, None, *QUICK) as running:
        await until(lambda: set(where(shared)) == {"p", "q"})
        assert (await abandoned(bus, large)).reason.startswith(f"the decision cannot be stored: pod.{large}: an event")
        shared.max_payload = 1024**2
        await until(lambda: large in where(shared))
        assert running.shell.health.is_ready()


async def test_pods_of_one_node_that_are_too_much_for_one_event_go_one_after_the_other() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    uids = [letter * 100 for letter in "abcdef"]
    await submit(bus.events, node("n", cpu="6"), *(pod(uid, {"cpu": "1"}) for uid in uids))
    shared.max_payload = 2200  # enough for what is said of two or three of them
    async with scheduler(bus, None, *QUICK):
        await until(lambda: set(where(shared)) == set(uids))


async def test_gang_that_is_too_large_for_one_event_is_told_so_whole() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    await submit(bus.events, *one_node_each(40), *members_of_gang(40))
    shared.max_payload = 2048
    async with scheduler(bus, None, *QUICK):
        said = [(await abandoned(bus, f"m{number}")).reason for number in range(40)]
        assert all(reason.startswith("the decision cannot be stored: gang.default=g: an event") for reason in said)
        assert where(shared) == {}
        shared.max_payload = 1024**2
        await until(lambda: len(where(shared)) == 40)


async def test_fact_that_is_too_large_for_the_log_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    many = {f"example.com/resource-{number}": "4" for number in range(100)}
    labels = {keys.QUOTA_ALLOW_LENT_RESOURCE: "false"}
    quota = {"metadata": {"namespace": "team", "name": "a", "labels": labels}, "spec": {"min": many, "max": many}}
    ref = custom_ref("elasticquotas", "team", "a")
    await say(bus.events, ref.kind, ref.id, CustomObjectObserved(object=quota))
    await submit(bus.events, node("n", more=many))
    shared.max_payload = 2048
    said: list[str] = []

    def is_told() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any("fact_too_large" in line and "quota.a" in line for line in said)

    async with scheduler(bus) as running:
        await until(is_told)
        published = running.cycle.state.books.quota.published
        await until(lambda: not published, "nobody got the status, so it does not count as published")
        await submit(bus.events, pod("p", {"cpu": "1"}))
        await until(lambda: "p" in where(shared))
        assert running.shell.health.is_ready()
        shared.max_payload = 1024**2
        await submit(bus.events, with_metadata(pod("q", {"cpu": "1"}), labels={keys.QUOTA_NAME: "a"}))
        await until(lambda: "a" in published, "a status that has changed is tried again")
    is_told()
    assert sum("fact_too_large" in line for line in said) == 1


async def test_preemption_that_is_too_large_for_the_log_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    low, high = pod("x" * 500, {"cpu": "4"}, priority=1, nodeName="n"), pod("high", {"cpu": "4"}, priority=9)
    await submit(bus.events, node("n"), low, high)
    shared.max_payload = 1500
    said: list[str] = []

    def is_told() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any("fact_too_large" in line and "pod.high" in line for line in said)

    async with scheduler(bus, None, *QUICK) as running:
        nominator = running.cycle.state.nominator
        await until(is_told)
        await until(lambda: not len(nominator) and not nominator.evictions, "nobody was told of them")
        shared.max_payload = 1024**2
        higher = pod("high", {"cpu": "4"}, priority=10)
        await say(bus.events, "podspec", "high", PodSpecChanged(object=higher))
        await until(lambda: "x" * 500 in nominator.evictions and not nominator.unsaid)
    is_told()
    assert sum("fact_too_large" in line for line in said) == 1


async def abandoned(bus: Bus, uid: str) -> DecisionAbandoned:
    """Return what a pod is told whose decision was given up."""

    async def told() -> DecisionAbandoned | None:
        latest = await bus.explanations.latest([AggregateRef("pod", uid)])
        said = CATALOGUE.read(latest[0]) if latest else None
        return said if isinstance(said, DecisionAbandoned) else None

    return await until(told)


async def test_unreadable_event_halts_until_an_operator_says_skip() -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    async with scheduler(bus) as running:
        await submit(bus.events, node("n"))
        seq = shared.store(AggregateRef("podspec", "bad"), {"Koord-Type": "PodSpecAdded", "Koord-Schema": "1"}, b"{")
        await until(lambda: running.cycle.fold.halted is not None)
        answer = await running.get("/readyz")
        assert answer.status_code == 503
        await submit(bus.events, pod("p"))
        await say(bus.events, "fold", "scheduler", EventSkipped(seq=seq, reason="test", operator="me"))
        await until(lambda: where(shared) == {"p": "n"})
        assert (await running.get("/readyz")).status_code == 200


@pytest.mark.parametrize("is_on", [True, False])
async def test_profiles_of_the_process_are_served_unless_the_configuration_says_no(is_on: bool, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    shown = {**load_configuration(None).as_json(), "enableProfiling": is_on}
    file.write_bytes(codec.encode(shown))
    async with scheduler(memory_bus(), None, f"--config={file}") as running:
        page = await running.get("/debug/pprof/stacks")
        assert (page.status_code, "koord_scheduler/cycle.py" in page.text) == ((200, True) if is_on else (404, False))
        assert (await running.get("/configz")).json()["kubescheduler.config.k8s.io"]["enableProfiling"] is is_on
