"""A dry run begins with what the next round begins with: detectors, jobs in flight, counted evictions."""

from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.framework.eviction import Result
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.player import RoundPlayer, start_of_round
from koordcore.events.migration import MigrationArbitrated, MigrationEnded
from koordcore.values import codec
from support.descheduler.jobs import configuration, is_told, job, leave
from support.descheduler.world import World
from support.until import until

HOT_ROUNDS = 3


async def test_node_that_is_hot_for_long_moves_a_pod_in_the_first_round() -> None:
    world = World()
    await world.begin()
    await world.replicas(20)
    for name in ("x", "y"):
        await world.pod(name, "a")
    load_args = {
        "nodeFit": False,
        "lowThresholds": {"cpu": 20},
        "highThresholds": {"cpu": 50},
        "anomalyCondition": {"consecutiveAbnormalities": HOT_ROUNDS, "timeout": "1h"},
        "detectorCacheTimeout": "1h",
    }
    profile = {
        "name": "p",
        "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
        "pluginConfig": [{"name": "LowNodeLoad", "args": load_args}],
    }
    text = codec.encode(
        {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "deschedulingInterval": "1h",
            "profiles": [profile],
        }
    )
    await world.usage("a", x=2000, y=1500)
    await world.usage("b")

    async with world.service(text) as (_, rounds):
        await until(lambda: rounds.done == 1)
        while rounds.done < HOT_ROUNDS:
            await rounds.run_now()
        now, tried = rounds.clock.now().timestamp(), load(text, BUILT_IN)
        start = start_of_round(rounds.builder, now, tried, BUILT_IN)
        fresh = RoundPlayer(tried, BUILT_IN, SharedState(), start.jobs).play(start.cluster)
        begun = RoundPlayer(tried, BUILT_IN, start.shared, start.jobs).play(start.cluster)
    assert [attempt.pod.name for attempt in fresh.attempts] == []
    assert [attempt.pod.name for attempt in begun.attempts] == ["y"]


async def test_workload_whose_pod_migrates_is_at_its_limit() -> None:
    world = World()
    await world.begin()
    for name in ("p", "q"):
        await world.pod(name, "a")
    await world.pod("r", "b")
    await world.workload(3)
    await world.custom("PodMigrationJob", job("j", "p"))
    async with world.service(configuration(plugins=False)) as (_, rounds):
        await is_told(world, MigrationArbitrated)
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        tried = load(configuration(), BUILT_IN)
        start = start_of_round(rounds.builder, rounds.clock.now().timestamp(), tried, BUILT_IN)
        player = RoundPlayer(tried, BUILT_IN, start.shared, start.jobs)
        outcome = player.play(start.cluster)
    assert outcome.attempts == []
    assert player.refused.at_limit == {"ReplicaSet d/r"}


async def test_workload_that_lost_a_pod_a_short_time_ago_is_at_its_limit() -> None:
    world = World()
    await world.begin()
    for name in ("p", "q", "r"):
        await world.pod(name, "a")
    await world.workload(3)
    limiters = {"workload": {"duration": "1h", "maxMigrating": 1}}
    text = configuration("EvictDirectly", objectLimiters=limiters)

    async def is_asked() -> bool:
        return bool(await world.requests())

    async with world.service(text) as (_, rounds):
        await until(is_asked)
        (request,) = await world.requests()
        await leave(world, request.name)
        await world.pod("successor", "b")
        await is_told(world, MigrationEnded)
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        tried = load(text, BUILT_IN)
        start = start_of_round(rounds.builder, rounds.clock.now().timestamp(), tried, BUILT_IN)
        player = RoundPlayer(tried, BUILT_IN, start.shared, start.jobs)
        outcome = player.play(start.cluster)
    assert {attempt.result for attempt in outcome.attempts} == {Result.ERROR}
    assert player.refused.at_limit == {"ReplicaSet d/r"}
