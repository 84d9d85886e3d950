"""A recorded hour with another configuration of the descheduler: moves, hot-node minutes, slowdown, evictions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.bus.adapters.memory import MemoryLog, MemorySnapshotStore
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, memory_bus, open_bus
from koordcore.bus.read.stream_reader import api
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent
from koordcore.events.migration import MigrationEnded
from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent
from koordcore.events.objects import NodeSpecAdded, NodeSpecDeleted
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.protocol.objects import OwnerReference
from koordcore.values.timestamps import rfc3339
from koordctl.replay.descheduler import played
from koordctl.replay.descheduler_rerun import DescheduleComparison, DeschedulerRerun
from koordctl.replay.usage_reports import ReportArchive, reports_of
from koordctl.scheduler import scheduler_configuration
from support.bus.read_log import ReadLog
from support.bus.snapshots import of_a_scheduler, of_the_cluster
from support.descheduler.jobs import configuration, is_told, leave
from support.descheduler.world import World
from support.projector.service import serving
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod
from support.until import until

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(minutes=10)
CONFIGURATION = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 1m
profiles:
- name: test
  prove: true
  plugins:
    balance: {{enabled: [{{name: LowNodeLoad}}]}}
    evict: {{enabled: [{{name: DefaultEvictor}}], disabled: [{{name: "*"}}]}}
    filter: {{enabled: [{{name: DefaultEvictor}}], disabled: [{{name: "*"}}]}}
  pluginConfig:
  - name: LowNodeLoad
    args:
      lowThresholds: {{cpu: 30}}
      highThresholds: {{cpu: {high}}}
      anomalyCondition: {{consecutiveAbnormalities: 2}}
"""


def owned(name: str, cpu: str) -> Any:
    """A pod of a ReplicaSet, so that it may be evicted."""
    made = pod(name, {"cpu": cpu})
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=[owner]))


def stored(event: Event, ref: AggregateRef, at: datetime, seq: int) -> StoredEvent:
    origin = Origin(causation_id=f"{ref}/{seq}", correlation_id="", actor="test", occurred_at=rfc3339(at))
    (sealed,) = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body)


def report(name: str, pods: dict[str, int], minute: int, slowdown: float) -> StoredEvent:
    event = NodeUsageReported(
        updated_at=rfc3339(BEGIN + timedelta(minutes=minute)),
        report_interval_seconds=60,
        aggregate_duration_seconds=60,
        node_usage=Usage(sum(pods.values()), 0),
        system_usage=Usage(0, 0),
        pods=[
            PodUsage(uid=uid, namespace="default", name=uid, priority_class="koord-prod", qos="LS", usage=Usage(cpu, 0))
            for uid, cpu in pods.items()
        ],
        signals={"lsSlowdown": slowdown},
    )
    return stored(event, AggregateRef("node", name), BEGIN + timedelta(minutes=minute), minute)


def recorded_hour() -> tuple[list[StoredEvent], list[StoredEvent]]:
    """Facts and reports of one hour with a hot node of three busy pods, a cool one, and a closed warm one.

    At its end, an agent evicts a pod of the hot node.
    """
    log = SmallLog()
    log.add_node(node("hot", cpu="4"))
    scheduler = Scheduler(log)
    for name in "xyz":
        log.add_pod(owned(name, "1"))
    scheduler.run()
    log.add_node(node("cool", cpu="4"))
    log.add_node(node("warm", cpu="4", unschedulable=True))
    reports = [
        each
        for minute in range(60)
        for each in (
            report("hot", dict.fromkeys("xyz", 1100), minute, 180.0),
            report("cool", {"other": 200}, minute, 100.0),
            report("warm", {"another": 2200}, minute, 105.0),
        )
    ]
    evicted = PodsEvictedByAgent(
        feature="CPUEvict", pods=[EvictedPod(uid="z", namespace="default", name="z")], reason=""
    )
    end = stored(evicted, AggregateRef("nodestate", "hot"), BEGIN + timedelta(hours=1), len(log.events) + 1)
    return [*log.events, end], reports


def hour(high: int) -> DescheduleComparison:
    """The recorded hour with another threshold of hot nodes."""
    text = CONFIGURATION.format(high=high).encode()
    rerun = DeschedulerRerun(load(text, BUILT_IN), SchedulerState(frameworks()), interval=60.0, begin=0)
    events, reports = recorded_hour()
    return rerun.run(events, reports_of(reports), lambda _: None)


def test_hot_node_is_relieved_and_later_the_eviction_by_the_agent_does_not_happen() -> None:
    found = hour(60)
    (move,) = [move for _, move in found.moves]
    assert (move.pod.node, move.target, found.rerun.evictions, found.recorded.evictions) == ("hot", "cool", 1, 0)
    assert found.recorded.hot_minutes >= 59
    assert found.rerun.hot_minutes <= 4  # three rounds in a row
    assert (found.recorded.agent_evictions, found.rerun.agent_evictions) == (1, 0)
    # Recorded: (1.8 + 1 + 1.05) / 3. Relieved, the hot node is as slow as the warm one, which has the same load.
    assert found.recorded.slowdown == pytest.approx(1.283, abs=0.001)
    assert found.rerun.slowdown == pytest.approx(1.05, abs=0.04)


def test_configuration_that_moves_nothing_gives_the_recorded_figures() -> None:
    found = hour(95)
    assert (found.moves, found.recorded, found.rounds) == ([], found.rerun, 60)


async def publish(bus: Bus, reports: Sequence[StoredEvent]) -> None:
    for each in reports:
        event, at = CATALOGUE.read(each), each.occurred_at
        assert event is not None
        origin = Origin(causation_id=at, correlation_id="", actor="test", occurred_at=at)
        await bus.observations.publish(each.ref, event, origin)


@pytest.mark.deep
async def test_a_window_starts_at_snapshots_before_it_and_gives_the_same_comparison() -> None:
    log, (events, reports) = MemoryLog(), recorded_hour()
    for each in events:
        log.store(each.ref, dict(each.headers), each.body)
    whole_bus, tried = memory_bus(log=log), load(CONFIGURATION.format(high=60).encode(), BUILT_IN)
    await publish(whole_bus, reports)
    begin = len(events) - 2
    whole = await played(whole_bus, tried, begin, len(events), ReportArchive(None))
    assert len(whole.moves) == 1
    for of_both in ((begin, begin), (begin, 3), (3, begin), (begin + 1, begin)):
        events_read = ReadLog(log)
        bus = replace(whole_bus, events=events_read, snapshots=MemorySnapshotStore())
        await bus.snapshots.save(of_the_cluster(events, of_both[0]))
        await bus.snapshots.save(of_a_scheduler(scheduler_configuration(None), events, of_both[1]))
        found = await played(bus, tried, begin, len(events), ReportArchive(None))
        start = 0 if of_both[0] > begin else min(of_both)
        assert asdict(found) == {**asdict(whole), "started": start}  # two views of one pod are never equal
        assert events_read.read_from == [start]


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.postgres
async def test_reports_that_left_their_stream_come_from_the_archive(nats_server: NatsServer, postgres_dsn: str) -> None:
    settings, tried = BusSettings(urls=(nats_server.url,), cluster="archived"), CONFIGURATION.format(high=60).encode()
    await bootstrap_bus(
        settings, sizes=StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    )
    events, reports = recorded_hour()

    async def rerun(archive: ReportArchive) -> DescheduleComparison:
        async with open_bus(settings) as bus:
            return await played(bus, load(tried, BUILT_IN), 0, len(events), archive)

    async def judged(url: str | None) -> tuple[dict[str, Any], int, str]:
        """The comparison with the times and pods of the moves, how many reports were archived, and the trouble."""
        archive = ReportArchive(url)
        found = await asyncio.to_thread(asyncio.run, rerun(archive))
        moves = [(at, move.pod.key, move.target, move.reason) for at, move in found.moves]
        return {**asdict(replace(found, archived=0, moves=[])), "moves": moves}, found.archived, archive.trouble

    async with open_bus(settings) as bus:
        last: dict[AggregateRef, int] = {}
        for each in events:
            await bus.events.append([NewEvent(each.ref, dict(each.headers), each.body, last.get(each.ref, 0))])
            last[each.ref] = each.seq
        await publish(bus, reports)

        async def has_all() -> bool:
            return (await bus.observations.head()).last_seq == len(reports)

        await until(has_all)
        assert bus.connection is not None
        async with serving(postgres_dsn, bus) as url:
            before, archived, trouble = await judged(url)
            assert (len(before["moves"]), before["reports"], archived, trouble) == (1, len(reports), 0, "")
            for kept in (70, 1, 0):
                purge = json.dumps({"keep": kept} if kept else {}).encode()
                await api(bus.connection, f"$JS.API.STREAM.PURGE.{bus.names.obs}", purge)
                assert await judged(url) == (before, len(reports) - kept, "")
            without, archived, trouble = await judged(None)
            assert (without["reports"], without["moves"], archived) == (0, [], 0)
            assert without["recorded"]["hot_minutes"] == 0
            assert trouble == "no projector was found"
        assert (await judged(url))[2].startswith("the projector does not answer")


async def test_object_limiter_allows_the_rerun_as_many_moves_as_the_service_made() -> None:
    world = World()
    await world.begin()
    for name in ("p", "q", "r"):
        await world.pod(name, "a")
    await world.workload(3)
    await world.write(AggregateRef("nodespec", "c"), NodeSpecAdded(object=node("c")))
    text = configuration("EvictDirectly", objectLimiters={"workload": {"duration": "1h", "maxMigrating": 1}})
    begin = (await world.bus.events.head()).last_seq

    async def is_asked() -> bool:
        return bool(await world.requests())

    async with world.service(text) as (_, rounds):
        await until(is_asked)
        (request,) = await world.requests()
        await leave(world, request.name)
        await world.pod("successor", "b")
        await is_told(world, MigrationEnded)
        done = rounds.done
        await until(lambda: rounds.done >= done + 3)
        head = (await world.bus.events.head()).last_seq
    events = [each async for batch in world.bus.events.history(0, head, batch=1000) for each in batch]
    at = rounds.clock.now() + WINDOW
    end = stored(NodeSpecDeleted(name="c"), AggregateRef("nodespec", "c"), at, head + 1)
    rerun = DeschedulerRerun(load(text, BUILT_IN), SchedulerState(frameworks()), interval=60.0, begin=begin)
    found = rerun.run([*events, end], [], lambda _: None)
    assert found.rounds > len("pqr")
    assert (found.recorded.evictions, found.rerun.evictions) == (1, 1)
    later = DeschedulerRerun(load(text, BUILT_IN), SchedulerState(frameworks()), interval=60.0, begin=head)
    assert later.run([*events, end], [], lambda _: None).rerun.evictions == 0, "the recorded eviction counts"
