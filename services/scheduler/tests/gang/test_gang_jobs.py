"""Room for a whole job, and a whole job in one cycle."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.job_plan import JobAssumed, JobFailed, PlannedPod, assume_all, permit_all
from koord_scheduler.domain.plugins.gang.outcomes import Consequences, Released
from koord_scheduler.domain.plugins.gang.parameters import GatherRule, PodGroup
from koord_scheduler.domain.plugins.gang.preemption import (
    Fits,
    JobPreemption,
    JobVictim,
    NoJobPreemption,
    TopologyRules,
    costs,
    plan_job_preemption,
    possible_victim,
)
from koord_scheduler.domain.plugins.gang.topology import Layer, NetworkTopology
from koordcore.protocol import keys
from koordcore.protocol.objects import object_from_json, pod_from_json


def victim(uid: str, priority: int, job: str = "") -> JobVictim:
    return JobVictim(uid=uid, name=f"ns/{uid}", priority=priority, job=job or uid)


def roomy(capacity: Mapping[str, int], victims: Mapping[str, Sequence[JobVictim]]) -> Fits:
    """Every member and every victim takes one unit of a node's capacity."""

    def fits(node: str, kept: Sequence[JobVictim], members: Sequence[str]) -> bool:
        assert set(kept) <= set(victims.get(node, ()))
        return len(kept) + len(members) <= capacity[node]

    return fits


def test_victims_must_have_a_lower_priority_and_no_label_against_it() -> None:
    assert possible_victim("u", "ns/u", 5, {}, below=5) is None
    assert possible_victim("u", "ns/u", 4, {keys.DISABLE_PREEMPTIBLE: "true"}, below=5) is None
    assert possible_victim("u", "ns/u", 4, {keys.QUOTA_PREEMPTIBLE: "false"}, below=5) is None
    assert possible_victim("u", "ns/u", 4, {keys.QUESTIONED_OBJECT_KEY: "job"}, below=5) == victim("u", 4, "job")
    assert possible_victim("u", "ns/u", 4, {}, below=5) == victim("u", 4)


def test_cost_counts_each_job_once_by_the_rank_of_its_priority_and_unlabelled_pods_alone() -> None:
    found = costs(
        {"n1": [victim("a", 10, "j"), victim("b", 10, "j")], "n2": [victim("c", 10), victim("d", 20)], "n3": []}
    )
    assert found == {"n1": 0, "n2": 1, "n3": 0}


def test_members_go_to_the_cheapest_nodes_and_only_what_must_go_is_evicted() -> None:
    victims = {"n1": [victim("a", 30)], "n2": [victim("b", 10), victim("c", 20)], "n3": [victim("d", 10)]}
    capacity = {"n1": 1, "n2": 3, "n3": 1}
    found = plan_job_preemption(["m1", "m2", "m3"], [0, 0, 0], victims, roomy(capacity, victims))
    assert isinstance(found, JobPreemption)
    assert dict(found.nominations) == {"m1": "n3", "m2": "n2", "m3": "n2"}
    assert {node: [pod.uid for pod in pods] for node, pods in found.victims.items()} == {"n2": ["b"], "n3": ["d"]}
    assert found.message(2, 5) == "preempt success, alreadyWaitingForBound: 2/5"


def test_one_member_without_room_fails_the_whole_job() -> None:
    victims = {"n1": [victim("a", 1)]}
    found = plan_job_preemption(["m1", "m2"], [0, 0], victims, roomy({"n1": 1}, victims))
    assert found == NoJobPreemption("member m2 fits on no node even without all victims, 1/2 members placed")


def test_nothing_to_evict_gives_up() -> None:
    assert isinstance(plan_job_preemption(["m"], [0], {"n1": []}, roomy({"n1": 9}, {})), NoJobPreemption)


def test_gathered_job_takes_the_cheaper_of_equal_domains() -> None:
    topology = NetworkTopology([Layer("block", ("block",))], [("n1", {"block": "b1"}), ("n2", {"block": "b2"})])
    victims = {"n1": [victim("a", 20), victim("b", 10)], "n2": [victim("c", 10), victim("d", 10)]}
    rules = TopologyRules(topology, [GatherRule(layer="block", strategy="MustGather")], {})
    found = plan_job_preemption(["m1", "m2"], [0, 0], victims, roomy({"n1": 2, "n2": 2}, victims), rules)
    assert isinstance(found, JobPreemption)
    assert set(found.nominations.values()) == {"n2"}
    small = plan_job_preemption(["m1", "m2"], [0, 0], victims, roomy({"n1": 1, "n2": 1}, victims), rules)
    assert isinstance(small, NoJobPreemption)
    assert "desiredOfferSlot: 2" in small.message


@given(
    capacity=st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 4), min_size=1),
    members=st.integers(1, 6),
    data=st.data(),
)
def test_plan_places_all_within_capacity_and_evicts_no_pod_that_could_stay(
    capacity: dict[str, int], members: int, data: st.DataObject
) -> None:
    victims = {
        node: [victim(f"{node}-{number}", data.draw(st.integers(0, 3))) for number in range(room)]
        for node, room in capacity.items()
    }
    fits = roomy(capacity, victims)
    uids = [f"m{number}" for number in range(members)]
    found = plan_job_preemption(uids, [0] * members, victims, fits)
    if isinstance(found, NoJobPreemption):
        assert sum(capacity.values()) < members
        return
    assert list(found.nominations) == uids
    for node, room in capacity.items():
        placed = [uid for uid, where in found.nominations.items() if where == node]
        evicted = found.victims.get(node, ())
        assert len(evicted) == len(placed) <= room
        kept = [pod.priority for pod in victims[node] if pod not in evicted]
        assert not evicted or not kept or max(pod.priority for pod in evicted) <= min(kept)


def planned(*pods: tuple[str, str]) -> list[PlannedPod]:
    return [PlannedPod(uid=uid, key=f"ns/{uid}", node=node) for uid, node in pods]


def test_job_is_tried_node_by_node_and_pod_by_pod() -> None:
    tried: list[str] = []

    def attempt(pod: PlannedPod) -> str | None:
        tried.append(pod.uid)
        return None

    pods = [
        *planned(("c", "n1"), ("a", "n2"), ("b", "n1")),
        PlannedPod(uid="d", key="ns/d", node="n1", is_done=True),
    ]
    found = assume_all(pods, 4, attempt)
    assert isinstance(found, JobAssumed)
    assert [pod.uid for pod in found.pods] == tried == ["b", "c", "a"]


def test_first_failure_on_a_node_fails_its_rest_and_undoes_the_job() -> None:
    tried: list[str] = []

    def attempt(pod: PlannedPod) -> str | None:
        tried.append(pod.uid)
        return "Insufficient cpu" if pod.uid == "b" else None

    found = assume_all(planned(("a", "n1"), ("b", "n1"), ("c", "n1"), ("d", "n2")), 1, attempt)
    assert isinstance(found, JobFailed)
    assert tried == ["a", "b", "d"]
    assert [pod.uid for pod in found.undo] == ["d", "a"]
    assert found.message == (
        "job failed due to Insufficient cpu, assumed 2 pods, failed 2 pods, first failed pod ns/b@n1 failed due to "
        "Insufficient cpu, assumed pods on node n1: [ns/a]"
    )


def test_plan_with_a_gap_or_too_few_pods_is_not_begun() -> None:
    def never(pod: PlannedPod) -> str | None:
        raise AssertionError(pod)

    gap = assume_all(planned(("a", "n1"), ("b", "")), 1, never)
    assert gap == JobFailed("pod ns/b has no node in the plan of its job")
    few = assume_all(planned(("a", "n1")), 2, never)
    assert few == JobFailed("the plan has 1 pods, the job needs at least 2")


def gang_of_two() -> GangCache:
    cache = GangCache()
    raw = {"metadata": {"namespace": "ns", "name": "g"}, "spec": {"minMember": 2}}
    cache.pod_group_seen(object_from_json(raw, PodGroup))
    for uid in ("a", "b", "c"):
        meta = {"namespace": "ns", "name": uid, "labels": {keys.POD_GROUP: "g"}}
        cache.pod_seen(uid, pod_from_json({"metadata": meta}))
    return cache


def test_job_is_released_whole_by_its_last_permit() -> None:
    cache = gang_of_two()
    assert cache.before_pre_filter("a") is None
    outcome = permit_all(cache, planned(("a", "n1"), ("b", "n1"), ("c", "n1")))
    assert outcome == Released(Consequences(allowed=("a",)))
    assert cache.round is None


def test_job_that_still_waits_after_its_last_permit_is_undone() -> None:
    cache = gang_of_two()
    assert cache.before_pre_filter("a") is None
    pods = planned(("a", "n1"))
    outcome = permit_all(cache, pods)
    assert outcome == JobFailed(
        "job failed due to it still waits for members after all planned pods were permitted", tuple(pods)
    )
    assert not cache.roster.gangs["ns/g"].waiting
