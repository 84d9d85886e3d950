"""Hints, scores by single resources, claims for one pod at a time, and what transformers make of a pod."""

from typing import Any

import msgspec
from koord_scheduler.domain.cluster.equivalence_classes import PodTransformers
from koord_scheduler.domain.config.koordinator_args import (
    NodeResourcesFitPlusArgs,
    ResourceStrategy,
    ScarceResourceAvoidanceArgs,
)
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.node_points import ScorePlugin
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.plugins.resources.fit_plus import NodeResourcesFitPlus, ScarceResourceAvoidance
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import BIND_COMPLETED
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

NOTHING: dict[str, str] = {}
CLAIM: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def hinted(uid: str, text: str, key: str = keys.SCHEDULING_HINT) -> Pod:
    return with_metadata(pod(uid, {"cpu": "1"}), annotations={key: text})


def scheduler_of(*nodes: str, gates: SchedulerGates | None = None) -> Scheduler:
    log = SmallLog()
    for name in nodes:
        log.add_node(node(name))
    return Scheduler(log, gates=gates)


def placed_on(scheduler: Scheduler, wanted: Pod) -> str:
    scheduler.log.add_pod(wanted)
    scheduler.run()
    scheduler.run(now=10.0)
    return scheduler.state.pods[wanted.metadata.uid].node


def why(scheduler: Scheduler) -> str:
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    return event.message


def score_of(plugin: ScorePlugin, wanted: Pod, *more: dict[str, str]) -> list[int]:
    scheduler = scheduler_of()
    for index, resources in enumerate(more):
        scheduler.log.add_node(node(f"n{index}", cpu="10", memory="10Gi", more=resources))
    scheduler.follow()
    nodes = scheduler.state.nodes
    rows = nodes.alive.nonzero()[0]
    found = plugin.score(scheduler.state.cluster.pod_classes.of(wanted), nodes, rows)
    assert found is not None
    scores: list[int] = found.tolist()
    return scores


def test_hint_restricts_the_nodes() -> None:
    scheduler = scheduler_of(*(f"n{index}" for index in range(20)))
    assert placed_on(scheduler, hinted("p", '{"nodeNames": ["n7", "nowhere"]}')) == "n7"
    assert placed_on(scheduler, hinted("q", '{"nodeNames": ["n9"]}', keys.SCHEDULING_HINT_ALIAS)) == "n9"


def test_first_preferred_node_that_is_feasible_is_taken_without_scoring() -> None:
    scheduler = scheduler_of("a", "b", "c")
    scheduler.log.add_node(node("full", cpu="0"))
    hint = '{"preferredNodeNames": ["nowhere", "full", "c", "a"], "extensions": {"x": 1}}'
    assert placed_on(scheduler, hinted("p", hint)) == "c"


def test_preferred_node_has_to_be_among_the_required() -> None:
    scheduler = scheduler_of("a", "b", "c")
    assert placed_on(scheduler, hinted("p", '{"nodeNames": ["b"], "preferredNodeNames": ["a"]}')) == "b"


def test_unreadable_hint_is_told_and_an_empty_one_ignored() -> None:
    scheduler = scheduler_of("a")
    assert placed_on(scheduler, hinted("p", "{nodes")) == ""
    assert keys.SCHEDULING_HINT in why(scheduler)
    assert placed_on(scheduler, hinted("q", "")) == "a"


def test_fit_plus_scores_each_resource_by_its_own_strategy() -> None:
    plugin = NodeResourcesFitPlus(
        NodeResourcesFitPlusArgs(
            resources={
                "cpu": ResourceStrategy(type="LeastAllocated", weight=1),
                "x.io/gpu": ResourceStrategy(type="MostAllocated", weight=3),
            }
        )
    )
    wanted = pod("p", {"cpu": "1", "x.io/gpu": "2"})
    # cpu: 90; gpu: 2 of 2 is 100, 2 of 8 is 25, none is 0
    gpus = ({"x.io/gpu": "2"}, {"x.io/gpu": "8"}, NOTHING)
    assert score_of(plugin, wanted, *gpus) == [(90 + 300) // 4, (90 + 75) // 4, 90 // 4]
    # a missing cpu request counts 100m; the pod asks for no gpu
    assert score_of(plugin, pod("q"), *gpus) == [99, 99, 99]
    assert score_of(plugin, pod("q", {"cpu": "0"}), *gpus) == [100, 100, 100]


def test_pods_stay_away_from_scarce_resources_that_they_do_not_need() -> None:
    plugin = ScarceResourceAvoidance(ScarceResourceAvoidanceArgs(resources=("x.io/gpu", "y.io/none")))
    more = ({"x.io/gpu": "1", "z.io/a": "1"}, {"z.io/a": "1"}, NOTHING)
    assert score_of(plugin, pod("p", {"cpu": "1"}), *more) == [200 // 3, 100, 100]
    assert score_of(plugin, pod("p", {"cpu": "1", "memory": "1", "z.io/a": "1"}), *more) == [0, 100, 100]
    assert score_of(plugin, pod("p", {"x.io/gpu": "1"}), *more) == [100, 100, 100]


def claim(mode: str) -> CustomObjectObserved:
    """A claim that is bound to a volume which every node can use."""
    meta = {"namespace": "default", "name": "data", "annotations": {BIND_COMPLETED: "yes"}}
    return CustomObjectObserved(object={"metadata": meta, "spec": {"accessModes": [mode], "volumeName": "disk"}})


def with_volume(scheduler: Scheduler) -> Scheduler:
    ref = custom_ref("persistentvolumes", "", "disk")
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": {"name": "disk"}, "spec": {}}))
    return scheduler


def test_claim_for_one_pod_is_used_by_one_pod_at_a_time() -> None:
    scheduler = with_volume(scheduler_of("a", "b"))
    ref = custom_ref("persistentvolumeclaims", "default", "data")
    scheduler.log.say(ref.kind, ref.id, claim("ReadWriteOncePod"))
    first = placed_on(scheduler, pod("p", {"cpu": "1"}, **CLAIM))
    assert first in ("a", "b")
    assert placed_on(scheduler, pod("q", {"cpu": "1"}, **CLAIM)) == ""
    assert "ReadWriteOncePod" in why(scheduler)
    scheduler.log.remove_pod("p")
    scheduler.run(now=10.0)
    assert scheduler.state.pods["q"].node in ("a", "b")


def test_claim_for_many_pods_is_shared() -> None:
    scheduler = with_volume(scheduler_of("a"))
    ref = custom_ref("persistentvolumeclaims", "default", "data")
    scheduler.log.say(ref.kind, ref.id, claim("ReadWriteOnce"))
    assert placed_on(scheduler, pod("p", {"cpu": "1"}, **CLAIM)) == "a"
    assert placed_on(scheduler, pod("q", {"cpu": "1"}, **CLAIM)) == "a"


def test_user_of_an_exclusive_claim_is_preempted() -> None:
    scheduler = with_volume(scheduler_of("a", "b"))
    ref = custom_ref("persistentvolumeclaims", "default", "data")
    scheduler.log.say(ref.kind, ref.id, claim("ReadWriteOncePod"))
    placed_on(scheduler, pod("low", {"cpu": "1"}, priority=1, **CLAIM))
    assert placed_on(scheduler, pod("high", {"cpu": "1"}, priority=2, **CLAIM)) in ("a", "b")
    assert "low" not in scheduler.state.pods


def test_claim_that_appears_wakes_its_pod() -> None:
    scheduler = with_volume(scheduler_of("a"))
    assert placed_on(scheduler, pod("p", {"cpu": "1"}, **CLAIM)) == ""
    ref = custom_ref("persistentvolumeclaims", "default", "data")
    scheduler.log.say(ref.kind, ref.id, claim("ReadWriteOnce"))
    scheduler.run(now=10.0)
    assert scheduler.state.pods["p"].node == "a"


def test_gates_of_transformers_are_off_unless_set() -> None:
    raw = with_metadata(
        pod("p", {"cpu": "1", "x.io/a": "2"}, priority=0, preemptionPolicy="PreemptLowerPriority"),
        annotations={keys.REPLACE_RESOURCES: "x.io/a:x.io/b, cpu:"},
        labels={keys.PRIORITY_CLASS: "koord-batch", keys.PREEMPTION_POLICY: "Never"},
    )
    assert PodTransformers().transform(raw) is raw
    every = PodTransformers(priority=True, preemption_policy=True, replace_resources=True)
    seen = every.transform(raw)
    assert seen.spec.priority == 5500
    assert seen.spec.preemption_policy == "Never"
    assert seen.spec.containers[0].resources.requests == {"x.io/b": "2"}
    assert every.transform(seen) is seen


def test_transformed_pod_is_what_is_placed() -> None:
    wanted = with_metadata(pod("p", {"cpu": "100"}), annotations={keys.REPLACE_RESOURCES: "cpu:"})
    assert placed_on(scheduler_of("a"), wanted) == ""
    gates = SchedulerGates(replace_resources_transformer=True)
    assert placed_on(scheduler_of("a", gates=gates), wanted) == "a"


def decided(scheduler: Scheduler, wanted: Pod) -> None:
    """The pod has a node that the log has not heard of."""
    scheduler.log.add_pod(wanted)
    scheduler.follow()
    assert isinstance(scheduler.decide(), Placement)


def test_pod_that_changes_its_scheduler_before_it_is_bound_is_not_bound() -> None:
    other = with_metadata(pod("p", {"cpu": "1"}), labels={keys.SCHEDULER_NAME: "somebody-else"})
    scheduler = scheduler_of("a")
    decided(scheduler, pod("p", {"cpu": "1"}))
    scheduler.log.add_pod(other)
    scheduler.run()
    assert scheduler.state.pods["p"].node == ""
    unchecked = scheduler_of("a", gates=SchedulerGates(dynamic_scheduler_check=False))
    decided(unchecked, pod("p", {"cpu": "1"}))
    unchecked.log.add_pod(other)
    unchecked.run()
    assert unchecked.state.pods["p"].node == "a"


def test_pod_that_is_being_deleted_before_it_is_bound_is_not_bound() -> None:
    scheduler = scheduler_of("a")
    wanted = pod("p", {"cpu": "1"})
    decided(scheduler, wanted)
    meta = msgspec.structs.replace(wanted.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    scheduler.log.add_pod(msgspec.structs.replace(wanted, metadata=meta))
    scheduler.run()
    assert scheduler.state.pods["p"].node == ""


def test_configuration_names_the_small_plugins() -> None:
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    score:
      enabled: [{name: NodeResourcesFitPlus, weight: 2}, {name: ScarceResourceAvoidance}]
"""
    profile = frameworks(text).first.profile
    weights = {plugin.name: weight for plugin, weight in profile.scores}
    assert (weights["NodeResourcesFitPlus"], weights["ScarceResourceAvoidance"]) == (2, 1)
