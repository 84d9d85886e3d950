"""Whoever leads next decides as the leader before: detectors, unfinished rounds and the time of the next one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_descheduler.domain.plugins.low_node_load.anomaly import AnomalyCondition, Detectors, UsageKind
from koord_descheduler.domain.rounds.memory import decision, detector_changes, detectors_of, seconds_until_next
from koordcore.events.descheduling import ROUNDS, RoundCarriedOut, RoundDecided
from koordcore.events.envelope import Draft, name_from_token
from koordcore.state import ClusterState
from koordcore.state.descheduling import RoundsState
from koordcore.values import codec
from support.depth import examples
from support.descheduler.jobs import configuration as with_jobs
from support.descheduler.kill import Kill
from support.descheduler.world import World
from support.histories.recording import stored
from support.until import until

BEGIN = datetime(2026, 11, 25, 8, tzinfo=UTC)
NODES = ("a", "b", "c")
CONDITION = AnomalyCondition(abnormalities=2, normalities=1, timeout=30.0)
ROUNDS_OF_HEAT = st.lists(
    st.tuples(st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)), st.integers(1, 40_000_000)), max_size=25
)


class Memory:
    """The fold of the facts of rounds."""

    def __init__(self) -> None:
        self.state = ClusterState()

    def tell(self, *events: Any) -> None:
        for event in events:
            self.state.apply(stored(self.state.position + 1, Draft(ROUNDS, event, 0)))

    @property
    def rounds(self) -> RoundsState | None:
        return self.state.of_kind(RoundsState).get(ROUNDS.id)


def play(detectors: Detectors, hot: set[str], acted_on: set[str], now: float) -> list[bool]:
    """Observe a round, and return which nodes may be acted on."""
    detectors.forget_older(now, 120.0)
    for kind in UsageKind:
        for node in sorted(hot):
            detectors.mark_abnormal(kind, node, now, CONDITION)
        for node in NODES:
            if node not in hot:
                detectors.reset_if_ok(kind, node)
    found = [detectors.is_anomalous(UsageKind.NODE, node, now, CONDITION) for node in NODES]
    for node in sorted(acted_on):
        detectors.mark_normal(UsageKind.NODE, node, now, CONDITION)
    return found


@settings(max_examples=examples(200))
@given(ROUNDS_OF_HEAT)
def test_detectors_read_from_the_log_decide_as_those_that_were_never_lost(
    rounds: Sequence[tuple[set[str], set[str], int]],
) -> None:
    memory, kept, now = Memory(), Detectors(), BEGIN
    for hot, acted_on, microseconds in rounds:
        now += timedelta(microseconds=microseconds)
        before = detectors_of(memory.rounds)
        restored = Detectors(dict(before))
        moment = now.timestamp()
        assert play(restored, hot, acted_on, moment) == play(kept, hot, acted_on, moment)
        assert restored.states == kept.states
        memory.tell(*decision(moment, [], [], detector_changes(before, restored.states), {}))
        assert detectors_of(memory.rounds) == kept.states


def test_next_round_is_due_an_interval_after_the_last_one_of_any_leader() -> None:
    memory, began = Memory(), BEGIN.timestamp()
    assert seconds_until_next(memory.rounds, 60.0, began) == 0.0
    memory.tell(*decision(began, [], ["n"], [], {}))
    assert seconds_until_next(memory.rounds, 60.0, began + 20) == 40.0
    assert seconds_until_next(memory.rounds, 60.0, began + 90) == 0.0
    assert seconds_until_next(memory.rounds, 60.0, began - 500) == 60.0, "a clock that was set back"


PODS = ("p", "q", "r", "s")
MOST = 2
DIRECT: dict[str, Any] = {
    "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
    "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
}


def configuration(plugins: dict[str, Any], interval: str, **more: Any) -> bytes:
    return codec.encode(
        {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "deschedulingInterval": interval,
            "profiles": [{"name": "p", "plugins": {**DIRECT, **plugins}, "pluginConfig": more.pop("args", [])}],
            **more,
        }
    )


TAINTS = {"deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]}}
EVICTING = configuration(TAINTS, "1h", maxNoOfPodsToEvictTotal=MOST)
MIGRATING = with_jobs(
    "EvictDirectly",
    interval="1h",
    most=MOST,
    maxMigratingPerNode=0,
    maxMigratingPerWorkload=MOST,
    maxUnavailablePerWorkload=MOST,
    objectLimiters={},
    evictQPS=1000,
    evictBurst=10,
)


async def decisions(world: World) -> list[RoundDecided]:
    return [each for each in await world.facts("descheduling") if isinstance(each, RoundDecided)]


async def is_carried_out(world: World) -> bool:
    """Return whether a round was carried out, and asked for as many evictions as it may."""
    done = [each for each in await world.facts("descheduling") if isinstance(each, RoundCarriedOut)]
    return bool(done) and len(await world.requests()) >= MOST


@pytest.fixture
async def world() -> World:
    """Return a cluster with more pods on a tainted node than a round may move."""
    world = World()
    await world.begin()
    await world.replicas(20)
    for name in PODS:
        await world.pod(name, "a")
    return world


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("text", [EVICTING, MIGRATING], ids=["evicting", "migrating"])
async def test_round_that_was_killed_at_any_effect_is_finished_once_by_the_next_leader(
    world: World, text: bytes, number: int, is_done: bool
) -> None:
    """A round moves two of four pods, and the next one is due in an hour. No kill makes it two others, or more."""
    kill = Kill(number, is_done)
    async with world.service(text, kill):

        async def is_dead_or_done() -> bool:
            return kill.is_reached or await is_carried_out(world)

        await until(is_dead_or_done)
    async with world.service(text) as (_, rounds):
        await until(lambda: is_carried_out(world))
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
    (decided,) = await decisions(world)
    assert [move.name for move in decided.moves] == ["p", "q"]
    assert {request.name for request in await world.requests()} == {"p", "q"}
    assert len(await world.requests()) == MOST
    assert world.objects("PodMigrationJob").keys() == {move.job for move in decided.moves if move.job}


async def test_node_that_was_hot_before_a_restart_counts_its_rounds_on() -> None:
    """A node acts after it was hot in 13 rounds in a row, however often the leader changes meanwhile."""
    abnormalities = 12
    world = World()
    await world.begin()
    await world.replicas(20)
    for name in ("x", "y"):
        await world.pod(name, "a")
    args = {
        "nodeFit": False,
        "lowThresholds": {"cpu": 20},
        "highThresholds": {"cpu": 50},
        "anomalyCondition": {"consecutiveAbnormalities": abnormalities, "timeout": "1h"},
        "detectorCacheTimeout": "1h",
    }
    load = {"balance": {"enabled": [{"name": "LowNodeLoad"}]}}
    text = configuration(load, "20ms", args=[{"name": "LowNodeLoad", "args": args}])
    await world.usage("a", x=2000, y=1500)
    await world.usage("b")
    while not any(each.moves for each in await decisions(world)):
        before = len(await decisions(world))
        async with world.service(text):

            async def is_further(count: int = before) -> bool:
                return len(await decisions(world)) > count

            await until(is_further)
    found = await decisions(world)
    first = next(index for index, each in enumerate(found) if each.moves)
    newest = {name_from_token(each.ref.id): each.seq for each in await anext(aiter(world.bus.observations.follow(0)))}
    (again,) = decision(0.0, found[first].moves, [], [], newest)
    assert isinstance(again, RoundDecided)
    assert again.reports == found[first].reports, "whoever reads the stream of reports finds those of the round"
    assert again.reports is not None
    assert (again.reports.nodes, again.reports.positions) == (2, {"a": newest["a"]})
    (other,) = decision(0.0, found[first].moves, [], [], {**newest, "b": newest["b"] + 1})
    assert isinstance(other, RoundDecided)
    assert other.reports != again.reports, "another report of a node without moves changes the digest"
    assert first == abnormalities
    (usage,) = found[first].moves[0].inputs.values()
    assert usage.limit == 50
    assert usage.value > 50
    counts = [group.state.abnormal for each in found[:first] for group in each.detectors if group.state is not None]
    assert counts == list(range(1, abnormalities + 1))
    assert [request.name for request in await world.requests()][:1] == ["y"], "the pod that just covers the excess"
