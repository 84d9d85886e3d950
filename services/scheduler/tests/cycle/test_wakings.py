"""Pods that wait although nothing keeps them any more: events that must wake them, one scenario each."""

from typing import Any

from koordcore.events.envelope import name_token
from koordcore.events.objects import CustomObjectObserved, NamespaceObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Namespace, ObjectMeta, Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata
from support.scheduler.volumes import user_of

ZONE = "topology.kubernetes.io/zone"


def where(scheduler: Scheduler) -> dict[str, str]:
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def in_gang(wanted: Pod, gang: str, least: int, **annotations: str) -> Pod:
    """The pod as a member of a gang that only annotations describe, as of a job controller with equal labels."""
    named = {"name": gang, "min-available": str(least), **annotations}
    return with_metadata(
        wanted, annotations={f"gang.scheduling.koordinator.sh/{key}": text for key, text in named.items()}
    )


def test_small_gang_is_placed_although_large_gangs_of_equal_pods_wait_before_it() -> None:
    scheduler = Scheduler(SmallLog())
    for name, least, priority in (*((f"large{number}", 6, 9) for number in range(5)), ("small", 2, 0)):
        for index in range(least):
            member = pod(f"{name}-{index}", {"cpu": "1"}, priority=priority, preemptionPolicy="Never")
            scheduler.log.add_pod(in_gang(member, name, least))
        scheduler.run()
    scheduler.log.add_node(node("a", cpu="2"))
    scheduler.run(now=20.0)
    assert where(scheduler) == {"small-0": "a", "small-1": "a"}


def test_gang_is_placed_without_the_member_whose_claim_is_missing() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a"))
    scheduler.log.add_pod(in_gang(pod("b", {"cpu": "1"}), "g", 2))
    scheduler.log.add_pod(in_gang(user_of("missing", uid="z"), "g", 2))
    scheduler.run()
    scheduler.log.add_pod(in_gang(pod("c", {"cpu": "1"}), "g", 2))
    scheduler.run(now=20.0)
    for now in (330.0, 360.0):
        scheduler.state.queue.tick(now)
        scheduler.run(now)
    assert where(scheduler) == {"b": "a", "c": "a"}


def test_the_first_node_wakes_all_pods_also_those_that_it_has_no_room_for() -> None:
    scheduler = Scheduler(SmallLog())
    for uid in ("first", "second"):
        scheduler.log.add_pod(pod(uid, {"cpu": "2"}))
    scheduler.run()
    for now in (20.0, 60.0):
        told = len(scheduler.explanations)
        scheduler.log.add_node(node("a", cpu="1"))
        scheduler.run(now)
        refused = {item.uid: item.message for item in scheduler.explanations[told:]}
        assert refused.keys() == {"first", "second"}
        assert all("0/1 nodes are available: 1 Insufficient cpu" in message for message in refused.values())
        scheduler.log.remove_node("a")
        scheduler.run(now + 20.0)


def spread(uid: str, **spec: Any) -> Pod:
    """A pod that keeps the zones in balance."""
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return with_metadata(pod(uid, {"cpu": "1"}, topologySpreadConstraints=[constraint], **spec), labels={"app": "web"})


def spread_out() -> Scheduler:
    """A scheduler with a pod in zone x, and one that waits for the empty zone y, whose node is too small for it."""
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a", labels={ZONE: "x"}))
    scheduler.log.add_node(node("b", labels={ZONE: "y"}, cpu="500m"))
    for uid in ("first", "second"):
        scheduler.log.add_pod(spread(uid))
    scheduler.run()
    assert where(scheduler) == {"first": "a"}
    return scheduler


def test_end_of_an_empty_zone_wakes_the_pod_that_kept_it_in_balance() -> None:
    scheduler = spread_out()
    scheduler.log.remove_node("b")
    scheduler.run(now=20.0)
    assert where(scheduler) == {"first": "a", "second": "a"}


def test_node_that_leaves_an_empty_zone_wakes_the_pod_that_kept_it_in_balance() -> None:
    scheduler = spread_out()
    scheduler.log.add_node(node("b", labels={ZONE: "x"}, cpu="500m"))
    scheduler.run(now=20.0)
    assert where(scheduler) == {"first": "a", "second": "a"}


def test_label_of_a_namespace_wakes_the_pod_that_must_run_near_its_pods() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a", labels={ZONE: "x"}))
    scheduler.log.add_pod(with_metadata(pod("near"), labels={"app": "web"}))
    scheduler.run()
    selectors = {"namespaceSelector": {"matchLabels": {"team": "t"}}, "labelSelector": {"matchLabels": {"app": "web"}}}
    term = {"topologyKey": ZONE, **selectors}
    scheduler.log.add_pod(
        pod("p", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    )
    scheduler.run()
    assert where(scheduler) == {"near": "a"}
    labelled = Namespace(metadata=ObjectMeta(name="default", labels={"team": "t"}))
    scheduler.log.say("namespace", name_token("default"), NamespaceObserved(object=labelled))
    scheduler.run(now=20.0)
    assert where(scheduler) == {"near": "a", "p": "a"}


def test_end_of_a_nomination_wakes_the_pod_that_left_room_for_it() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a"))
    scheduler.log.add_pod(pod("runs", {"cpu": "4"}, priority=1))
    scheduler.run()
    scheduler.log.add_pod(pod("high", {"cpu": "3"}, priority=9))
    scheduler.run(now=20.0)
    assert scheduler.state.nominator.node_of("high") == "a"
    scheduler.log.add_pod(pod("low", {"cpu": "4"}, priority=5))
    scheduler.run(now=20.0)
    assert where(scheduler) == {}, "`low` leaves room for `high`, which backs off"
    scheduler.log.remove_pod("high")
    scheduler.run(now=40.0)
    assert where(scheduler) == {"low": "a"}


def test_pods_of_a_full_quota_are_attempted_again_once_it_has_room_and_nodes_have_none() -> None:
    """The first of them finds no node; a node then helps the others, too, although their quota has not changed."""
    scheduler = Scheduler(SmallLog())
    quota(scheduler, cpu="1")
    for uid in ("first", "second"):
        scheduler.log.add_pod(with_metadata(pod(uid, {"cpu": "2"}), labels={keys.QUOTA_NAME: "team"}))
    scheduler.run()
    quota(scheduler, cpu="8")
    scheduler.run(now=20.0)
    assert {queued.block for queued in scheduler.state.queue.unschedulable_pods()} == {None}


def test_member_that_waits_in_vain_gives_its_part_of_the_quota_to_a_pod_that_waits_for_it() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a", cpu="8"))
    quota(scheduler, cpu="3")
    of_team = {keys.QUOTA_NAME: "team"}
    annotations = {"mode": "NonStrict", "waiting-time": "30s"}
    for uid in ("m0", "m1"):
        scheduler.log.add_pod(in_gang(with_metadata(pod(uid, {"cpu": "2"}), labels=of_team), "g", 2, **annotations))
    scheduler.run()
    scheduler.log.add_pod(with_metadata(pod("p", {"cpu": "3"}), labels=of_team))
    scheduler.run(now=20.0)
    assert where(scheduler) == {}, "a member of the gang waits with a node and its part of the quota"
    scheduler.run(now=31.0)
    assert where(scheduler) == {"p": "a"}


def quota(scheduler: Scheduler, cpu: str) -> None:
    document = {
        "metadata": {"namespace": "default", "name": "team"},
        "spec": {"max": {"cpu": cpu}, "min": {"cpu": cpu}},
    }
    ref = custom_ref("elasticquotas", "default", "team")
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def test_member_that_waits_at_permit_loses_its_node_to_a_pod_that_another_scheduler_placed_there() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="3"))
    one, other = Scheduler(log), Scheduler(log)
    for uid in ("m0", "m1"):
        log.add_pod(in_gang(pod(uid, {"cpu": "3"}), "g", 2, mode="NonStrict"))
    one.run()
    assert one.state.assumed.waiting.on("a")
    log.add_pod(pod("p", {"cpu": "3"}, priority=9))
    other.follow()
    other.decide()
    other.send()
    other.land()
    log.add_node(node("b", cpu="3"))
    one.run(now=20.0)
    assert where(one) == {"p": "a"}
    assert one.state.assumed.waiting.uids()
