"""The moves of a dry run are the evictions that the service asks for on the same state, in random clusters."""

from random import Random
from typing import Any

import pytest
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.dry_run import dry_run
from koord_descheduler.domain.rounds.player import RoundPlayer, start_of_round
from koord_descheduler.domain.view.building import ViewBuilder
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import RoundDecided
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.migration import MigrationEnded, MigrationHeld
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol.objects import pod_from_json
from koordcore.requests.fit import FitAnswer, FitRequest, NodeFit
from koordcore.values import codec
from koordcore.values.timestamps import unix_seconds
from support.depth import seeds
from support.descheduler.world import World
from support.until import until


def limits(random: Random) -> dict[str, Any]:
    """Random arguments of a MigrationController."""
    per_workload: tuple[dict[str, Any], ...] = ({"maxMigrating": 1}, {"maxMigrating": 2, "burst": 2}, {})
    limiters: dict[str, Any] = random.choice(
        ({}, *({"workload": {"duration": "10h", **each}} for each in per_workload))
    )
    if random.random() < 0.3:
        limiters = {**limiters, "namespace": {"duration": "10h", "maxMigrating": 3, "burst": random.randint(1, 4)}}
    return {
        "defaultJobMode": "EvictDirectly",
        "arbitrationArgs": {"interval": "10ms"},
        "evictQPS": 1000,
        "evictBurst": 1000,
        "maxMigratingPerNode": random.choice((0, 2, 4)),
        "maxMigratingGlobally": random.choice((0, 0, 3)),
        "maxMigratingPerWorkload": random.choice((1, 2, 3, "50%")),
        "maxUnavailablePerWorkload": random.choice((2, 3, "70%")),
        "objectLimiters": limiters,
    }


def profile(name: str, random: Random) -> dict[str, Any]:
    controller = {"name": "MigrationController", "args": limits(random)}
    taints = {
        "name": "RemovePodsViolatingNodeTaints",
        "args": {"labelSelector": {"matchLabels": {"profile": name}}},
    }
    enabled = {"deschedule": {"enabled": [{"name": taints["name"]}]}}
    return {"name": name, "plugins": enabled, "pluginConfig": [controller, taints]}


def configuration(random: Random) -> bytes:
    """Two profiles with limits of their own; the service arbitrates the jobs of both by the limits of the first."""
    profiles = [profile(name, random) for name in "pq"]
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", "deschedulingInterval": "10h"}
    return codec.encode({**head, "profiles": profiles})


def without_effects(text: bytes) -> bytes:
    """Return a configuration with the dry run of the configuration and of its MigrationControllers switched on."""
    document = codec.decode(text, dict[str, Any])
    for each in document["profiles"]:
        each["pluginConfig"][0]["args"]["dryRun"] = True
    return codec.encode({**document, "dryRun": True})


async def populate(world: World, random: Random) -> None:
    """Write workloads whose pods run on the node with the taint and on the other one; some pods are not ready."""
    await world.begin()
    for workload in [f"w{number}" for number in range(random.randint(1, 4))]:
        replicas = random.randint(2, 8)
        metadata = {"namespace": "d", "name": workload, "uid": workload}
        spec = {"replicas": replicas}
        await world.custom("ReplicaSet", {"kind": "ReplicaSet", "metadata": metadata, "spec": spec})
        labels, owner = {"profile": random.choice("pq")}, {"kind": "ReplicaSet", "name": workload, "uid": workload}
        for number in range(replicas):
            name, second = f"{workload}-{number}", random.randint(0, 59)
            document = {
                "metadata": {
                    "name": name, "namespace": "d", "uid": f"u-{name}", "labels": labels,
                    "creationTimestamp": f"2026-01-01T0{number}:{workload[1:]}0:{second:02}Z",
                    "ownerReferences": [{"apiVersion": "apps/v1", "controller": True, **owner}],
                },
                "spec": {
                    "nodeName": random.choice("aaab"), "schedulerName": "koord-scheduler",
                    "containers": [{"name": "c", "image": "i"}],
                },
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": str(random.random() > 0.1)}],
                },
            }  # fmt: skip
            await world.write(AggregateRef("podspec", f"u-{name}"), PodSpecAdded(object=pod_from_json(document)))


async def live_moves(world: World, text: bytes) -> set[str]:
    """Run the service for one round, until each of its jobs has asked for an eviction, waits or has failed."""

    async def are_settled() -> bool:
        facts = [each for each in await world.facts("migration") if isinstance(each, MigrationHeld | MigrationEnded)]
        settled = {each.job for each in facts}
        asked = {request.name for request in await world.requests()}
        jobs = world.objects("PodMigrationJob").items()
        return all(name in settled or job["spec"]["podRef"]["name"] in asked for name, job in jobs)

    async with world.service(text) as (_, rounds):
        await until(lambda: rounds.done == 1)
        await until(are_settled)
    return {request.name for request in await world.requests()}


def dry_moves(text: bytes, events: list[StoredEvent]) -> set[str]:
    """Play one round on the state before the first round of the service, at the same time."""
    builder, now = ViewBuilder(), 0.0
    for stored in events:
        event = CATALOGUE.read(stored)
        if isinstance(event, RoundDecided):
            now = unix_seconds(event.started_at)
            break
        builder.apply(stored)
    tried = load(text, BUILT_IN)
    start = start_of_round(builder, now, tried, BUILT_IN)
    asking = dry_run(RoundPlayer(tried, BUILT_IN, start.shared, start.jobs), start.cluster, rounds=1, interval=10.0)

    def answer(question: FitRequest) -> FitAnswer:
        keys = [f"{each.pod.metadata.namespace}/{each.pod.metadata.name}" for each in question.pods if each.pod]
        return FitAnswer(
            sets=[], nodes=[NodeFit(node="b", pods=keys)], position=1, observed=0, answered_by="t", seconds=0.0
        )

    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        return {move.pod.name for move in end.value.moves}


@pytest.mark.parametrize("seed", seeds(16))
async def test_dry_run_moves_the_pods_that_the_service_evicts(seed: int) -> None:
    random = Random(seed)
    text, world = configuration(random), World()
    await populate(world, random)
    live = await live_moves(world, text)
    before = await world.stored("podspec", "nodespec", "customspec", "descheduling")
    assert dry_moves(text, before) == live
    assert dry_moves(without_effects(text), before) == live
