"""Coscheduling's points, one claim each; whole sequences stand in the vectors and in the properties."""

from datetime import UTC, datetime

import pytest
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.checks import bound_gang
from koord_scheduler.domain.plugins.gang.controller import is_settled, pod_info, reconcile
from koord_scheduler.domain.plugins.gang.outcomes import Consequences, Reason, Refused, Released, Waits
from koord_scheduler.domain.plugins.gang.parameters import PodGroup
from koord_scheduler.domain.plugins.gang.placement import NoTopologyPlan, TopologyPlan
from koord_scheduler.domain.plugins.gang.round import EndedRound, RoundEnd
from koord_scheduler.domain.plugins.gang.summary import gang_line, gang_view, gang_views, waiting_groups
from koord_scheduler.domain.plugins.gang.topology import Layer, NetworkTopology
from koord_scheduler.domain.plugins.gang.topology_coscheduling import needs_plan, plan_round
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.protocol.objects import Pod, object_from_json, pod_from_json

G = "gang.scheduling.koordinator.sh/"
NOW = "2026-01-01T00:00:00Z"
AWARE = CoschedulingArgs(aware_network_topology=True)


def member(
    name: str, gang: str = "g", *, node: str = "", phase: str = "", index: str | None = None, gated: bool = False
) -> Pod:
    """A pod that waits for its gang's PodGroup."""
    annotations = {} if index is None else {f"{G}network-topology-index": index}
    raw = {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": {keys.POD_GROUP: gang},
            "annotations": annotations,
            "ownerReferences": [{"name": "job-2"}, {"name": "job-1"}],
        },
        "spec": {"nodeName": node, "schedulingGates": [{"name": "hold"}] if gated else []},
        "status": {"phase": phase},
    }
    return pod_from_json(raw)


def pod_group(name: str = "g", min_member: int = 2, **annotations: str) -> PodGroup:
    """A PodGroup; annotations of the gang domain, `_` for `-`."""
    spelled = {G + key.replace("_", "-"): value for key, value in annotations.items()}
    raw = {"metadata": {"namespace": "ns", "name": name, "annotations": spelled}, "spec": {"minMember": min_member}}
    return object_from_json(raw, PodGroup)


def cache_of(*pods: str, min_member: int = 2, args: CoschedulingArgs | None = None, **annotations: str) -> GangCache:
    """Gang ns/g with these pods; a pod's uid is its name."""
    cache = GangCache(args)
    cache.pod_group_seen(pod_group(min_member=min_member, **annotations))
    for name in pods:
        cache.pod_seen(name, member(name))
    return cache


def reason(outcome: object) -> Reason | None:
    return outcome.reason if isinstance(outcome, Refused) else None


def place(cache: GangCache, uid: str) -> object:
    assert cache.before_pre_filter(uid) is None
    return cache.permit(uid)


def test_next_members_come_by_index_then_by_name_and_those_without_index_last() -> None:
    cache = cache_of(min_member=5)
    for name, index in (("z", "2"), ("b", None), ("a", None), ("y", "10"), ("x", "-1")):
        cache.pod_seen(name, member(name, index=index))
    assert cache.before_pre_filter("z") is None
    assert [cache.next_pod().uid for _ in range(4)] == ["y", "a", "b", "x"]


def test_member_that_arrives_during_the_round_takes_part_in_it() -> None:
    cache = cache_of("a", "b", min_member=3)
    cache.pod_seen("c", member("c"))
    assert isinstance(place(cache, "a"), Waits)
    assert cache.next_pod().uid == "b"
    cache.pod_seen("aa", member("aa"))
    assert [cache.next_pod().uid, cache.next_pod().uid] == ["aa", "c"]


def test_round_of_a_strict_gang_ends_with_the_waiting_members_rejected() -> None:
    cache = cache_of("a", "b", min_member=2)
    assert isinstance(place(cache, "a"), Waits)
    assert cache.next_pod().uid == "b"
    assert cache.next_pod().rejected == ("a",)
    assert cache.next_pod().uid == ""


def test_members_of_a_non_strict_gang_keep_waiting_when_the_round_ends() -> None:
    cache = cache_of("a", "b", min_member=2, mode="NonStrict")
    assert isinstance(place(cache, "a"), Waits)
    assert cache.next_pod().uid == "b"
    assert cache.after_post_filter("b", "no room").rejected == ()
    assert cache.next_pod().rejected == ()
    assert cache.before_pre_filter("b") is None
    assert cache.permit("b") == Released(Consequences(allowed=("a",)))


def test_round_of_a_gang_that_is_gone_ends_and_rejects_who_waits() -> None:
    cache = cache_of("a", "b", "c")
    assert isinstance(place(cache, "a"), Waits)
    cache.roster.forget_pod_group("ns/g")
    found = cache.next_pod()
    assert (found.uid, found.rejected) == ("", ("a",))
    assert cache.round is None


def test_failure_of_a_member_is_told_once_to_those_not_tried_yet() -> None:
    cache = cache_of("a", "b", "c", "d", min_member=4)
    assert cache.before_pre_filter("a") is None
    first = cache.after_post_filter("a", "0/3 nodes are available")
    assert first.message.startswith("GangGroup ns/g gets rejected due to member Pod ns/a is unschedulable with reason")
    assert (first.is_root_cause, first.tell) == (True, ())
    assert cache.next_pod().uid == "b"
    refused = cache.before_pre_filter("b")
    assert reason(refused) is Reason.GROUP_FAILED
    second = cache.after_post_filter("b", "whatever")
    assert (second.message, second.is_root_cause, second.tell) == (first.message, False, ("c", "d"))
    assert cache.next_pod().uid == "c"
    assert reason(cache.before_pre_filter("c")) is Reason.GROUP_FAILED
    assert cache.after_post_filter("c", "whatever").tell == ()


def test_released_members_are_not_rejected_by_a_later_failure() -> None:
    cache = cache_of("a", "b", "c")
    place(cache, "a")
    assert place(cache, "b") == Released(Consequences(allowed=("a",), activate=("c",)))
    assert cache.unreserve("b").rejected == ()
    assert set(cache.roster.gangs["ns/g"].waiting) == {"a"}


def test_another_member_is_activated_when_the_representative_is_deleted() -> None:
    cache = cache_of("a", "b", "c")
    assert cache.pre_enqueue("a") is None
    assert reason(cache.pre_enqueue("b")) is Reason.REPRESENTATIVE_EXISTS
    assert cache.pod_deleted("a").activate == ("b",)


def test_members_that_go_alone_are_activated_by_the_first_bound_one() -> None:
    cache = cache_of("a", "b", "c", "d")
    place(cache, "a")
    place(cache, "b")
    assert cache.post_bind("a").activate == ("c", "d")
    assert cache.post_bind("b").activate == ()
    assert cache.pre_enqueue("c") is None
    assert cache.pre_enqueue("d") is None


def test_last_missing_pod_or_a_lower_minimum_activates_one_member() -> None:
    cache = cache_of("a", min_member=3)
    assert cache.pod_seen("b", member("b")).activate == ()
    assert cache.pod_group_seen(pod_group(min_member=2)).activate == ("a",)
    assert cache.pod_group_seen(pod_group(min_member=2)).activate == ()
    lowered = cache_of("a")
    assert lowered.pod_seen("b", member("b")).activate == ("a",)


def test_last_missing_pod_activates_a_member_although_it_is_bound_already() -> None:
    cache = cache_of("a", match_policy="only-waiting")
    assert cache.pod_seen("b", member("b", node="n")).activate == ("a",)
    assert cache.pod_seen("b", member("b", node="n")).activate == ()
    cache.pre_enqueue("a")
    assert cache.pod_seen("c", member("c", node="n")).activate == ()


def test_bound_member_whose_node_is_gone_is_pending_again_and_rejects_nobody() -> None:
    cache = cache_of("a", "b", match_policy="only-waiting")
    place(cache, "a")
    place(cache, "b")
    cache.post_bind("a")
    cache.post_bind("b")
    assert cache.unbound("a").activate == ("a",)
    assert cache.unbound("a").activate == ()
    gang = cache.roster.gangs["ns/g"]
    assert (list(gang.pending), list(gang.bound)) == (["a"], ["b"])


def test_pod_of_the_same_name_replaces_the_old_one() -> None:
    cache = cache_of("a", "b")
    place(cache, "a")
    cache.pod_seen("new", member("a"))
    gang = cache.roster.gangs["ns/g"]
    assert set(gang.known) == {"b", "new"}
    assert set(gang.pending) == {"b", "new"}


def test_pod_that_changes_its_gang_moves() -> None:
    cache = cache_of("a", "b")
    cache.pod_seen("a", member("a", "other"))
    assert set(cache.roster.gangs["ns/g"].known) == {"b"}
    assert set(cache.roster.gangs["ns/other"].known) == {"a"}


def test_recreated_pod_group_finds_its_pods_again() -> None:
    cache = cache_of("a", "b")
    cache.post_bind("a")
    cache.roster.forget_pod_group("ns/g")
    assert reason(cache.pre_enqueue("b")) is Reason.GANG_NOT_FOUND
    cache.pod_group_seen(pod_group())
    gang = cache.roster.gangs["ns/g"]
    assert gang.children == 2
    assert gang.group is not None
    assert gang.group.once_satisfied


def test_pod_bound_before_its_pod_group_was_known_satisfies_the_group() -> None:
    cache = GangCache()
    cache.pod_seen("a", member("a", node="n"))
    cache.pod_group_seen(pod_group(groups='["ns/g", "ns/h"]'))
    group = cache.roster.gangs["ns/g"].group
    assert group is not None
    assert (group.id, group.once_satisfied) == ("ns/g,ns/h", True)


@pytest.mark.parametrize("groups", ['["ns/g"]', '["ns/g", "ns/h"]'], ids=["alone", "with another gang"])
def test_group_without_members_stays_satisfied_while_a_pod_group_defines_it(groups: str) -> None:
    cache = cache_of("a", "b", groups=groups)
    if "ns/h" in groups:
        cache.pod_group_seen(pod_group("h", groups=groups))
    cache.pod_seen("a", member("a", node="n"))
    gang = cache.roster.gang("ns/g")
    assert gang is not None and gang.group is not None and gang.group.once_satisfied  # noqa: PT018
    cache.pod_deleted("a")
    assert gang.group.once_satisfied
    cache.pod_deleted("b")
    assert gang.group.once_satisfied
    cache.pod_seen("c", member("c"))
    assert cache.pre_enqueue("c") is None
    cache.pod_group_deleted("ns/g")
    cache.pod_group_deleted("ns/h")
    cache.pod_group_seen(pod_group(groups=groups))
    assert reason(cache.pre_enqueue("c")) in (Reason.NOT_ENOUGH_CHILDREN, Reason.MEMBER_GANG_MISSING)


def test_member_bound_before_the_pod_group_was_known_satisfies_it_also_after_it_is_gone() -> None:
    cache = GangCache()
    cache.pod_seen("a", member("a", node="n"))
    cache.pod_seen("b", member("b"))
    cache.pod_deleted("a")
    cache.pod_group_seen(pod_group(groups='["ns/g", "ns/h"]'))
    group = cache.roster.gangs["ns/g"].group
    assert group is not None
    assert (group.id, group.once_satisfied) == ("ns/g,ns/h", True)


def test_changed_groups_annotation_moves_the_gang_to_the_other_group() -> None:
    cache = cache_of("a", "b")
    cache.pre_enqueue("a")
    cache.pod_group_seen(pod_group("h", groups='["ns/g", "ns/h"]'))
    cache.pod_group_seen(pod_group(groups='["ns/h", "ns/g"]'))
    assert set(cache.roster.groups) == {"ns/g,ns/h"}
    assert reason(cache.pre_enqueue("b")) is Reason.NOT_ENOUGH_CHILDREN


def test_terminated_pods_change_nothing_and_are_no_children_when_first_seen_so() -> None:
    cache = cache_of("a", "b")
    cache.post_bind("a")
    cache.pod_seen("a", member("a", phase="Failed"))
    cache.pod_seen("c", member("c", phase="Succeeded"))
    gang = cache.roster.gangs["ns/g"]
    assert set(gang.bound) == {"a"}
    assert gang.children == 2


def test_uninitialized_gang_waits_no_time() -> None:
    cache = GangCache()
    cache.pod_seen("a", member("a"))
    assert reason(cache.before_pre_filter("a")) is Reason.GANG_NOT_INITIALIZED
    assert cache.permit("a") == Waits(0)


def test_members_are_bound_with_their_group_until_nobody_waits() -> None:
    cache = cache_of("a", "b", "c")
    place(cache, "a")
    place(cache, "b")
    assert bound_gang(cache.roster, "a") == BoundGang("ns/g", 2)
    assert bound_gang(cache.roster, "c") is None
    cache.post_bind("a")
    cache.post_bind("b")
    assert bound_gang(cache.roster, "a") is None


@pytest.mark.parametrize("spec", ["", "not JSON"])
def test_topology_is_needed_only_with_a_valid_spec(spec: str) -> None:
    cache = cache_of("a", "b", args=AWARE, network_topology_spec=spec)
    assert cache.before_pre_filter("a", has_topology=False) is None


def test_gang_with_a_topology_spec_fails_without_a_topology() -> None:
    spec = '{"gatherStrategy":[{"layer":"L","strategy":"MustGather"}]}'
    aware = cache_of("a", "b", args=AWARE, network_topology_spec=spec)
    assert reason(aware.before_pre_filter("a", has_topology=False)) is Reason.NO_NETWORK_TOPOLOGY
    assert aware.before_pre_filter("a") is None
    assert [each.uid for each in aware.members_to_place("a")] == ["a", "b"]
    unaware = cache_of("a", "b", network_topology_spec=spec)
    assert unaware.before_pre_filter("a", has_topology=False) is None


def test_refusal_lists_every_kind_of_failure() -> None:
    cache = cache_of("a", groups='["ns/g", "ns/h", "ns/i"]')
    cache.pod_seen("h1", member("h1", "h"))
    refused = cache.pre_enqueue("a")
    assert reason(refused) is Reason.MEMBER_GANG_MISSING
    assert isinstance(refused, Refused)
    assert refused.message == (
        "gang group ns/g,ns/h,ns/i: gangs [ns/i] do not exist, gangs [ns/h] are not initialized, "
        "gangs [ns/g(1/2)] have too few children"
    )


def test_pod_group_status_follows_its_pods() -> None:
    cache = cache_of("a", "b")
    gang = cache.roster.gangs["ns/g"]
    phases: list[str] = []
    while (status := reconcile(gang, NOW)) is not None:
        phases.append(status.phase)
    assert phases == ["Pending", "PreScheduling", "Scheduling"]
    assert gang.status.occupied_by == pod_info("ns", ("job-2", "job-1")) == "ns/job-1,ns/job-2"
    assert gang.status.schedule_start_time == NOW
    for uid in ("a", "b"):
        cache.post_bind(uid)
        cache.pod_seen(uid, member(uid, phase="Running"))
    status = reconcile(gang, NOW)
    assert status is not None
    assert (status.phase, status.scheduled, status.running) == ("Running", 2, 2)
    assert "ns/g" in cache.roster.touched


def test_scheduled_group_that_runs_nothing_is_left_alone_after_two_days() -> None:
    created, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, 0, 0, 1, tzinfo=UTC)
    cache = cache_of("a", "b")
    gang = cache.roster.gangs["ns/g"]
    for uid in ("a", "b"):
        cache.post_bind(uid)
    while reconcile(gang, NOW) is not None:
        pass
    assert gang.status.phase == "Scheduled"
    assert not is_settled(gang.status, 2, created, created)
    assert is_settled(gang.status, 2, created, later)


def test_debug_view_and_line_say_what_a_person_asks() -> None:
    cache = cache_of("a", "b", "c", min_member=3)
    place(cache, "a")
    view = gang_view(cache, "ns/g")
    assert view is not None
    assert view["waitTime"] == 600_000_000_000
    assert (view["pendingChildren"], view["waitingForBindChildren"]) == ({"ns/b": {}, "ns/c": {}}, {"ns/a": {}})
    assert (view["gangFrom"], view["hasGangInit"]) == ("GangFromPodGroupCrd", True)
    assert view["gangGroupInfo"]["waitingGangs"] == ["ns/g"]
    assert list(gang_views(cache)) == ["ns/g"]
    line = gang_line(cache, "ns/g")
    assert line is not None
    assert (line.pending, line.waiting, line.says) == (2, 1, "is being scheduled: 1 of 3 have a node")
    assert gang_view(cache, "ns/x") is gang_line(cache, "ns/x") is None


def test_the_line_of_a_gang_that_is_too_small_counts_its_members() -> None:
    cache = cache_of("a", "b", min_member=3)
    line = gang_line(cache, "ns/g")
    assert line is not None
    assert line.says == "0 of 3 placed, 2 of 3 exist: waits for 1 more pod"


def test_the_line_of_a_gang_that_lost_a_member_says_that_it_is_below_its_minimum() -> None:
    cache = cache_of("a", "b", "c", min_member=3)
    for uid in ("a", "b", "c"):
        place(cache, uid)
    for uid in ("a", "b", "c"):
        cache.post_bind(uid)
    cache.pod_deleted("c")
    line = gang_line(cache, "ns/g")
    assert line is not None
    assert line.says == "all 2 members are bound, below the minimum of 3"


def test_first_pod_plans_for_all_and_each_member_gets_its_node() -> None:
    spec = '{"gatherStrategy":[{"layer":"block","strategy":"MustGather"}]}'
    cache = cache_of("a", "b", "c", min_member=3, args=AWARE, network_topology_spec=spec)
    topology = NetworkTopology([Layer("block", ("block",))], [("n1", {"block": "b"}), ("n2", {"block": "b"})])
    assert needs_plan(cache, "a") is None
    assert cache.before_pre_filter("a") is None
    gather = needs_plan(cache, "a")
    assert gather is not None
    assert isinstance(plan_round(cache, "a", gather, topology, {"n1": 1}, {}), NoTopologyPlan)
    assert isinstance(plan_round(cache, "a", gather, topology, {"n1": 1, "n2": 2}, {}), TopologyPlan)
    assert needs_plan(cache, "a") is needs_plan(cache, "b") is None
    current = cache.round_of("b")
    assert current is not None
    assert [current.node_set(uid) for uid in "abc"] == [("n2",), ("n2",), ("n1",)]
    cache.pod_seen("late", member("late"))
    assert current.node_set("late") == ()


def test_rounds_say_how_they_ended_and_how_large_they_were() -> None:
    cache = cache_of("a", "b")
    place(cache, "a")
    assert waiting_groups(cache) == 1
    assert cache.next_pod().uid == "b"
    assert cache.next_pod().uid == ""
    place(cache, "a")
    place(cache, "b")
    assert waiting_groups(cache) == 0
    assert [(ended.reason, ended.job_size) for ended in cache.ended] == [
        (RoundEnd.ALL_ATTEMPTED, "1-100"),
        (RoundEnd.SUCCEEDED, "1-100"),
    ]


@pytest.mark.parametrize(
    ("members", "label"), [(0, "0"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")]
)
def test_job_sizes_are_hundreds(members: int, label: str) -> None:
    assert EndedRound(RoundEnd.SUCCEEDED, members, 0.0).job_size == label


def test_pod_that_ended_on_a_node_before_it_was_seen_had_satisfied_its_gang() -> None:
    cache = cache_of("a", "b")
    cache.pod_seen("c", member("c", node="n", phase="Succeeded"))
    gang = cache.roster.gangs["ns/g"]
    assert (set(gang.bound), gang.has_free_pass) == ({"c"}, True)


def test_members_behind_a_scheduling_gate_are_children_but_no_quorum_and_are_not_tried() -> None:
    cache = cache_of(min_member=2)
    cache.pod_seen("a", member("a", gated=True))
    assert cache.pod_seen("b", member("b")).activate == ()
    assert reason(cache.pre_enqueue("b")) is Reason.NOT_ENOUGH_CHILDREN
    assert cache.pod_seen("d", member("d")).activate == ("b",)
    assert cache.before_pre_filter("b") is None
    assert [each.uid for each in cache.members_to_place("b")] == ["b", "d"]
    cache.pod_seen("c", member("c", gated=True))
    cache.pod_seen("a", member("a"))
    assert cache.next_pod().uid == "a"
    assert cache.next_pod().uid == "d"
    assert cache.next_pod().uid == ""


def test_gated_member_counts_again_once_its_group_was_satisfied() -> None:
    cache = cache_of("a", "b", match_policy="waiting-and-running")
    cache.post_bind("a")
    cache.pod_seen("b", member("b", gated=True))
    assert reason(cache.pre_enqueue("b")) is None


def test_group_that_loses_its_quorum_tells_all_its_members() -> None:
    cache = cache_of("a", "b", "c", "d", min_member=3)
    assert cache.pre_enqueue("a") is None
    assert cache.pod_seen("a", member("a", gated=True)).activate == ("b",)
    assert cache.pod_deleted("b").activate == ("c", "d")
    assert reason(cache.pre_enqueue("c")) is Reason.NOT_ENOUGH_CHILDREN


def test_representative_that_leaves_the_queue_unattempted_makes_way() -> None:
    cache = cache_of("a", "b", "c")
    assert cache.pre_enqueue("a") is None
    assert cache.left_queue("b").activate == ()
    assert cache.left_queue("a").activate == ("b",)
    assert cache.pre_enqueue("a") is None
    assert cache.pod_seen("a", member("a", gated=True)).activate == ("b",)
    assert cache.left_queue("a").activate == ()  # it has made way already
    assert cache.pre_enqueue("b") is None


def test_round_is_that_of_the_pods_group() -> None:
    cache = cache_of("a", "b")
    assert cache.before_pre_filter("a") is None
    assert cache.round_of("b") is cache.round_of("a") is cache.round
    assert cache.round_of("unknown") is None


def test_representative_of_a_gang_that_is_gone_does_not_block_the_group_when_it_comes_back() -> None:
    groups = '["ns/g", "ns/h"]'
    cache = cache_of("a", min_member=1, groups=groups)
    cache.pod_group_seen(pod_group("h", min_member=1, groups=groups))
    cache.pod_seen("b", member("b", "h"))
    assert cache.pre_enqueue("a") is None
    cache.roster.forget_pod_group("ns/g")
    assert cache.pod_group_seen(pod_group(min_member=1, groups=groups)).activate == ("a",)
    assert cache.pre_enqueue("b") is None
    assert reason(cache.pre_enqueue("a")) is Reason.REPRESENTATIVE_EXISTS


@pytest.mark.parametrize("is_seen", [True, False])
def test_representative_that_somebody_else_binds_makes_way(is_seen: bool) -> None:
    cache = cache_of("a", "b", "c", match_policy="only-waiting")
    assert cache.pre_enqueue("a") is None
    bound = cache.pod_seen("a", member("a", node="n")) if is_seen else cache.post_bind("a")
    assert bound.activate == ("b",)
    assert cache.pre_enqueue("b") is None


def test_groups_of_others_are_asked_together_and_only_when_the_gang_that_they_name_changes_for_them() -> None:
    cache = GangCache()
    for name in ("a", "b"):
        cache.pod_group_seen(pod_group(name, 1, groups=f'["ns/g", "ns/{name}"]'))
        cache.pod_seen(name, member(name, gang=name))
    cache.pod_group_seen(pod_group(min_member=2))
    cache.others_to_ask()
    assert cache.pod_seen("g0", member("g0")).activate == ()
    assert cache.others_to_ask() == []
    assert cache.pod_seen("g1", member("g1")).activate == ("g0",)
    assert cache.may_be_ready
    assert cache.others_to_ask() == ["a", "b"]
    assert cache.others_to_ask() == []
    assert cache.pod_seen("g2", member("g2")).activate == ("g0",)
    assert not cache.may_be_ready, "an event that tells the others nothing costs no more because they are many"


def test_members_wait_again_for_a_gang_of_another_group_that_has_lost_its_node() -> None:
    cache = GangCache()
    cache.pod_group_seen(pod_group("f", 1, mode="NonStrict"))
    cache.pod_group_seen(pod_group(min_member=2, mode="NonStrict", groups='["ns/f", "ns/g"]'))
    cache.pod_seen("f0", member("f0", gang="f"))
    for name in ("m0", "m1"):
        cache.pod_seen(name, member(name))
    assert isinstance(cache.permit("m0"), Waits)
    cache.permit("f0")
    cache.others_to_ask()
    assert cache.take_ready() == []
    cache.unreserve("f0")
    assert isinstance(cache.permit("m1"), Waits)
    cache.permit("f0")
    cache.others_to_ask()
    [(_, released)] = cache.take_ready()
    assert released.allowed == ("m0", "m1")
