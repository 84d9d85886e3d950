"""A dry run of the descheduler: the scheduler's real engine places every pod that would be evicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.config.profiles import proving_profiles
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.dry_run import DryRun, dry_run
from koord_descheduler.domain.rounds.player import RoundPlayer
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.nodes import NodeMetric
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import OwnerReference, PodCondition, PodStatus
from support.descheduler.jobs import configuration as migrating
from support.scheduler.questions import asked
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

PROFILE = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 10s
profiles:
- name: test
  prove: PROVE
  plugins:
    balance: {enabled: [{name: PLUGIN}]}
    evict: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
    filter: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
  pluginConfig:
  - {name: PLUGIN, args: ARGS}
"""
LEVELS = (
    "{nodeFit: false, evictionOrder: ["
    "{name: gold, nodeSelector: {matchLabels: {tier: gold}}}, {name: iron, nodeSelector: {matchLabels: {tier: iron}}}]}"
)
LOAD = "{lowThresholds: {cpu: 30}, highThresholds: {cpu: 60}, anomalyCondition: {consecutiveAbnormalities: 2}}"


def played(
    log: SmallLog,
    plugin: str,
    args: str,
    *,
    rounds: int,
    usage: dict[str, dict[str, int]] | None = None,
    prove: bool = False,
) -> DryRun:
    """Play rounds of one plugin on a small log; `usage` is node -> pod -> milli-cores."""
    text = PROFILE.replace("PLUGIN", plugin).replace("ARGS", args).replace("PROVE", str(prove).lower())
    return played_with(text.encode(), log, rounds=rounds, usage=usage)


def played_with(text: bytes, log: SmallLog, *, rounds: int, usage: dict[str, dict[str, int]] | None = None) -> DryRun:
    """Play rounds of a configuration, 10 seconds apart, on a small log."""
    builder = ViewBuilder()
    for stored in log.events:
        builder.apply(stored)
    metrics = {
        name: NodeMetric(updated=0.0, pods={f"default/{key}": {"cpu": cpu, "memory": 0} for key, cpu in pods.items()})
        for name, pods in (usage or {}).items()
    }
    cluster = replace(builder.view(0.0), metrics=metrics)
    configuration = load(text, BUILT_IN)
    player = RoundPlayer(configuration, BUILT_IN, SharedState(), jobs=())
    proving = proving_profiles(configuration)
    asking = dry_run(player, cluster, rounds=rounds, interval=10.0, proving=proving)
    try:
        question = next(asking)
        while True:
            question = asking.send(asked(log, question))
    except StopIteration as end:
        return end.value


def owned(name: str, cpu: str, **more: Any) -> Any:
    """A pod of a ReplicaSet, so that it may be evicted."""
    made = pod(name, {"cpu": cpu}, **more)
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)
    metadata = msgspec.structs.replace(made.metadata, owner_references=[owner])
    return msgspec.structs.replace(made, metadata=metadata)


def two_pods_on_gold(cpu_of_iron: str) -> SmallLog:
    """One node in each class, and two pods of 1 core on the expensive one."""
    log = SmallLog()
    log.add_node(node("gold", cpu="2", labels={"tier": "gold"}))
    scheduler = Scheduler(log)
    for name in "xy":
        log.add_pod(owned(name, "1"))
    scheduler.run()
    log.add_node(node("iron", cpu=cpu_of_iron, labels={"tier": "iron"}))
    return log


def test_pods_land_where_the_scheduler_places_them() -> None:
    found = played(two_pods_on_gold("4"), "CustomPriority", LEVELS, rounds=1)
    assert [(move.pod.name, move.pod.node, move.target) for move in found.moves] == [
        ("x", "gold", "iron"),
        ("y", "gold", "iron"),
    ]
    assert (found.before.requested["cpu"].highest, found.after.requested["cpu"].highest) == (100.0, 50.0)


def test_a_pod_without_a_place_is_not_evicted() -> None:
    found = played(two_pods_on_gold("1"), "CustomPriority", LEVELS, rounds=2)
    assert [move.target for move in found.moves] == ["iron"]
    assert len(found.homeless) == 1
    assert {move.pod.name for move in found.moves} | {pod.name for pod in found.homeless} == {"x", "y"}


def test_load_moves_with_the_pods_and_rounds_stop_when_no_node_is_hot() -> None:
    log = SmallLog()
    log.add_node(node("gold", cpu="4"))
    scheduler = Scheduler(log)
    for name in ("x", "y", "z"):
        log.add_pod(owned(name, "1"))
    scheduler.run()
    log.add_node(node("iron", cpu="4"))
    usage = {"gold": {"x": 1000, "y": 1000, "z": 1000}, "iron": {}}
    found = played(log, "LowNodeLoad", LOAD, rounds=8, usage=usage)
    assert len(found.moves) == 1
    assert found.questions == 1
    assert (found.before.used["cpu"].highest, found.after.used["cpu"].highest) == (75.0, 50.0)


def test_proving_profile_keeps_pods_that_would_land_on_a_node_that_gets_hotter() -> None:
    log = SmallLog()
    log.add_node(node("hot", cpu="4"))
    scheduler = Scheduler(log)
    for name in ("x", "y"):
        log.add_pod(owned(name, "1"))
    scheduler.run()
    # The plugin sees room on the cool node. The scheduler prefers the warm one, which has more free cpu.
    log.add_node(node("warm", cpu="4"))
    log.add_pod(owned("other", "100m"))
    scheduler.run()
    log.add_node(node("cool", cpu="3"))
    usage = {"hot": {"x": 1500, "y": 1100}, "cool": {}, "warm": {"other": 2200}}
    found = {prove: played(log, "LowNodeLoad", LOAD, rounds=4, usage=usage, prove=prove) for prove in (False, True)}
    assert [move.target for move in found[False].moves] == ["warm"]
    assert found[False].after.used["cpu"].highest > found[False].before.used["cpu"].highest
    assert (found[True].moves, len(found[True].useless)) == ([], 1)


@pytest.mark.parametrize(
    ("limiters", "moves"),
    [
        ({}, ["x", "y", "z"]),
        ({"workload": {"duration": "1h", "maxMigrating": 1}}, ["x"]),
        ({"namespace": {"duration": "1h", "maxMigrating": 1}}, ["x"]),
        ({"workload": {"duration": "15s", "maxMigrating": 1}}, ["x", "y"]),  # the rounds are at 0, 10 and 20 seconds
    ],
)
def test_moves_of_earlier_rounds_count_against_the_object_limiters(limiters: dict[str, Any], moves: list[str]) -> None:
    found = played_with(migrating("EvictDirectly", objectLimiters=limiters), three_on_a_tainted_node(), rounds=3)
    assert [move.pod.name for move in found.moves] == moves


def test_pod_without_a_place_does_not_count_against_the_object_limiters() -> None:
    two_at_first = {"workload": {"duration": "1h", "maxMigrating": 1, "burst": 2}}
    text = migrating(
        "EvictDirectly", objectLimiters=two_at_first, maxMigratingPerWorkload=2, maxUnavailablePerWorkload=2
    )
    found = played_with(text, three_on_a_tainted_node(cpu_of_first="500m"), rounds=3)
    assert ([move.pod.name for move in found.moves], [pod.name for pod in found.homeless]) == (["y", "z"], ["x"])


def three_on_a_tainted_node(cpu_of_first: str = "100m") -> SmallLog:
    """Three pods of a ReplicaSet on a node that gets a taint, and an empty node with 400 milli-cores."""
    log = SmallLog()
    log.add_node(node("left"))
    scheduler = Scheduler(log)
    requests = {"x": cpu_of_first, "y": "100m", "z": "100m"}
    for name, cpu in requests.items():
        log.add_pod(owned(name, cpu))
    scheduler.run()
    for name, cpu in requests.items():
        status = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="True")])
        log.add_pod(msgspec.structs.replace(owned(name, cpu), status=status))
    log.add_node(node("left", taints=[{"key": "gone", "effect": "NoSchedule"}]))
    log.add_node(node("free", cpu="400m"))
    ref = custom_ref("replicasets", "default", "rs")
    metadata = {"namespace": "default", "name": "rs", "uid": "rs"}
    log.say(
        ref.kind,
        ref.id,
        CustomObjectObserved(object={"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": 3}}),
    )
    return log
