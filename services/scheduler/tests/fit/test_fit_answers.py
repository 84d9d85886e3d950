"""What a capacity question answers is what the scheduler then does, and the question writes nothing."""

from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.fit.answering import answer_question, replicas_of
from koord_scheduler.domain.fit.trial import MOST_AHEAD
from koord_scheduler.shell.forking import in_fork_and_wait
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import (
    Affinity,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    TopologySpreadConstraint,
)
from koordcore.requests.fit import FitAnswer, FitRequest, PodSet
from koordcore.values.invalid import InvalidInput
from support.depth import examples
from support.scheduler.devices import CORE, MEMORY, RATIO, asking, device, gpu
from support.scheduler.questions import asked, nodes_of
from support.scheduler.reservations import reservation, reserve
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

pytestmark = pytest.mark.slow

GANG = {"pod-group.scheduling.sigs.k8s.io": "g"}
POD_GROUP = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"namespace": "default", "name": "g"},
    "spec": {"minMember": 3, "scheduleTimeoutSeconds": 60},
}


def placed_by(log: SmallLog, pods: list[Pod]) -> dict[str, str]:
    """What a scheduler really does with the pods."""
    scheduler = Scheduler(log)
    scheduler.run()
    for each in pods:
        log.add_pod(each)
    scheduler.run()
    records = (scheduler.state.pods[each.metadata.uid] for each in pods)
    return {f"{record.namespace}/{record.name}": record.node for record in records if record.node}


def three_nodes(cpu: str = "4") -> SmallLog:
    log = SmallLog()
    for name in "abc":
        log.add_node(node(name, cpu=cpu))
    return log


def test_answer_names_nodes_headroom_and_the_first_resource_that_runs_out() -> None:
    answer = asked(
        three_nodes(), FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "1500m", "memory": "1Gi"}), replicas=7)])
    )
    [found] = answer.sets
    assert (found.asked, found.placed, found.nodes_feasible, answer.fits) == (7, 6, 3, False)
    assert sorted(len(each.pods) for each in answer.nodes) == [2, 2, 2]
    first = found.headroom[0]
    assert (first.resource, first.needed, first.free, first.largest, first.replicas) == ("cpu", 1500, 3000, 1000, 0)
    shortage = found.shortage
    assert shortage is not None
    assert (shortage.plugin, shortage.resource, shortage.nodes) == ("NodeResourcesFit", "cpu", 3)
    assert (shortage.needed, shortage.available, shortage.short_by) == (1500, 1000, 500)


def test_search_finds_the_greatest_number_of_replicas() -> None:
    answer = asked(three_nodes("100"), FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "300m"}))], finds_most=True))
    assert (answer.most, answer.is_limited, answer.sets[0].placed) == (330, False, 330)
    shortage = answer.sets[0].shortage
    assert shortage is not None
    assert shortage.reason == "Too many pods"


@pytest.mark.parametrize(("cpu", "most"), [("4", 12), ("1", 3), ("900m", 0)])
def test_search_finds_the_greatest_gang(cpu: str, most: int) -> None:
    member = with_metadata(pod("m", {"cpu": "1"}), labels=GANG)
    answer = asked(three_nodes(cpu), FitRequest(pods=[PodSet(pod=member)], objects=[POD_GROUP], finds_most=True))
    assert (answer.most, answer.sets[0].placed, answer.sets[0].asked) == (most, most, most)
    assert answer.sets[0].shortage is not None


def test_pods_that_leave_make_room() -> None:
    log = three_nodes("1")
    scheduler = Scheduler(log)
    for name in ("x", "y", "z"):
        log.add_pod(pod(name, {"cpu": "1"}))
    scheduler.run()
    wanted = PodSet(pod=pod("web", {"cpu": "1"}))
    before, after = asked(log, FitRequest(pods=[wanted])), asked(log, FitRequest(pods=[wanted], leaving=["y"]))
    assert not before.fits
    assert nodes_of(after) == {"default/web": scheduler.state.pods["y"].node}


def test_a_pod_that_must_not_land_on_its_old_node_lands_elsewhere() -> None:
    excluded = NodeSelectorTerm(
        match_fields=[LabelSelectorRequirement(key="metadata.name", operator="NotIn", values=["b"])]
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[excluded])))
    spread = TopologySpreadConstraint(
        max_skew=5, topology_key="kubernetes.io/hostname", when_unsatisfiable="DoNotSchedule"
    )
    wanted = pod("web", {"cpu": "1"})
    spec = msgspec.structs.replace(wanted.spec, affinity=affinity, topology_spread_constraints=[spread])
    log = SmallLog()
    for name in "abc":
        log.add_node(node(name, labels={"kubernetes.io/hostname": name}))
    answer = asked(log, FitRequest(pods=[PodSet(pod=msgspec.structs.replace(wanted, spec=spec), replicas=4)]))
    assert {each.node: len(each.pods) for each in answer.nodes} == {"a": 2, "c": 2}


def test_preemption_is_told_and_not_carried_out() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="1"))
    scheduler = Scheduler(log)
    log.add_pod(pod("low", {"cpu": "1"}))
    scheduler.run()
    answer = asked(log, FitRequest(pods=[PodSet(pod=pod("high", {"cpu": "1"}, priority=10))]))
    [told] = answer.preempting
    assert (told.pod, told.node, told.victims) == ("default/high", "a", ["default/low"])
    assert (answer.sets[0].placed, answer.sets[0].preempting) == (0, 1)


@pytest.mark.parametrize(("cpu", "placed"), [("2", 3), ("1", 0)])
def test_gang_lands_as_a_whole_or_not_at_all(cpu: str, placed: int) -> None:
    log = SmallLog()
    log.add_node(node("a", cpu=cpu))
    log.add_node(node("b", cpu="1"))
    member = with_metadata(pod("m", {"cpu": "1"}), labels=GANG)
    answer = asked(log, FitRequest(pods=[PodSet(pod=member, replicas=3)], objects=[POD_GROUP]))
    assert answer.sets[0].placed == placed
    assert (answer.sets[0].shortage is None) == (placed == 3)


def test_incomplete_gang_is_told_to_be_incomplete() -> None:
    member = with_metadata(pod("m", {"cpu": "1"}), labels=GANG)
    answer = asked(three_nodes(), FitRequest(pods=[PodSet(pod=member, replicas=2)], objects=[POD_GROUP]))
    shortage = answer.sets[0].shortage
    assert shortage is not None
    assert answer.sets[0].placed == 0
    assert "[default/g(2/3)] have too few children" in shortage.message


def test_pods_that_wait_are_decided_first() -> None:
    log = three_nodes("1")
    log.add_pod(pod("waiting", {"cpu": "1"}))
    answer = asked(log, FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "1"}), replicas=3)]))
    assert (answer.ahead, answer.sets[0].placed) == (1, 2)


def test_pods_of_a_long_queue_are_passed_over_and_counted() -> None:
    log = SmallLog()
    log.add_node(node("large", cpu="1000", memory="4Ti", pods="5000"))
    for number in range(MOST_AHEAD + 20):
        log.add_pod(pod(f"waiting{number}", {"cpu": "1m"}))
    answer = asked(log, FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "1"}), replicas=3)]))
    assert (answer.ahead, answer.passed_over, answer.sets[0].placed) == (MOST_AHEAD, 20, 3)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (FitRequest(), "pods"),
        (FitRequest(pods=[PodSet(pod=pod("p"), replicas=0)]), "pods[0].replicas"),
        (FitRequest(pods=[PodSet(pod=pod("p"), replicas=10_001)]), "pods[0].replicas"),
        (FitRequest(pods=[PodSet(pod=pod("p"), replicas=6000)] * 2), "pods"),
        (FitRequest(pods=[PodSet(pod=pod("p"))] * 2, finds_most=True), "pods"),
        (FitRequest(pods=[PodSet(pod=pod("p", nodeName="a"))]), "pods[0].pod.spec.nodeName"),
        (FitRequest(pods=[PodSet(pod=pod("p", schedulerName="x"))]), "pods[0].pod.spec.schedulerName"),
        (FitRequest(pods=[PodSet(pod=pod("p", {"cpu": "x"}))]), "pods[0].pod.resources[cpu]"),
        (FitRequest(pods=[PodSet(pod=pod("p"))], leaving=["x"]), "leaving[0]"),
        (FitRequest(pods=[PodSet(pod=pod("p"))], objects=[{"kind": "Nothing"}]), "objects[0].kind"),
        (FitRequest(pods=[PodSet(pod=pod("p"))], objects=[{"kind": "PodGroup"}]), "objects[0].metadata.name"),
    ],
)
def test_invalid_question_is_refused_with_its_field(request_: FitRequest, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(three_nodes(), request_)
    assert refused.value.path.startswith(path)


def elastic_quota(name: str, cpu: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpu)}
    meta = {"namespace": "default", "name": name}
    return {"kind": "ElasticQuota", "metadata": meta, "spec": {"min": amounts, "max": amounts}}


def put(log: SmallLog, plural: str, namespace: str, document: dict[str, Any]) -> None:
    ref = custom_ref(plural, namespace, document["metadata"]["name"])
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def mixed_log(data: st.DataObject) -> SmallLog:
    """Nodes of two zones, some with GPUs, a quota, Reservations, and pods that were submitted."""
    log = SmallLog()
    for number in range(data.draw(st.integers(1, 5), "nodes")):
        gpus = data.draw(st.integers(0, 2), "gpus")
        more = {CORE: f"{100 * gpus}", RATIO: f"{100 * gpus}", MEMORY: f"{80 * gpus}Gi"} if gpus else {}
        cpu = str(data.draw(st.integers(1, 6), "cpu"))
        log.add_node(node(f"n{number}", cpu=cpu, labels={"zone": str(number % 2)}, more=more))
        if gpus:
            put(log, "devices", "", device(f"n{number}", [gpu(minor) for minor in range(gpus)]))
    put(log, "elasticquotas", "default", elastic_quota("team", data.draw(st.integers(1, 4), "quota")))
    for number in range(data.draw(st.integers(0, 2), "reservations")):
        owners = [{"labelSelector": {"matchLabels": {"app": "s"}}}]
        once = data.draw(st.booleans(), "allocateOnce")
        reserve(log, reservation(f"r{number}", {"cpu": "700m"}, owners=owners, allocateOnce=once))
    for number in range(data.draw(st.integers(0, 6), "pods before")):
        log.add_pod(pod(f"old{number}", {"cpu": f"{data.draw(st.integers(1, 20))}00m"}))
    return log


def mixed_sets(data: st.DataObject) -> list[PodSet]:
    """Pods of several kinds, in any order."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    kinds = [
        pod("plain", {"cpu": f"{data.draw(st.integers(1, 20))}00m"}),
        with_metadata(pod("spread", {"cpu": "300m"}, topologySpreadConstraints=[spread]), labels={"app": "s"}),
        with_metadata(pod("quota", {"cpu": "700m"}), labels={keys.QUOTA_NAME: "team"}),
        with_metadata(pod("m", {"cpu": "500m"}), labels=GANG),
        asking("gpu", {CORE: "50", RATIO: "50", "cpu": "100m"}),
    ]
    chosen = data.draw(st.permutations(kinds), "kinds")[: data.draw(st.integers(1, 5), "number of kinds")]
    return [PodSet(pod=kind, replicas=data.draw(st.integers(2, 6), "replicas")) for kind in chosen]


@settings(max_examples=examples(100))
@given(data=st.data())
def test_answer_is_what_the_scheduler_then_does(data: st.DataObject) -> None:
    log, sets = mixed_log(data), mixed_sets(data)
    scheduler = Scheduler(log)
    scheduler.run()
    length = len(log.events)
    answer = asked(log, FitRequest(pods=sets, objects=[POD_GROUP]))
    assert len(log.events) == length
    put(log, "podgroups", "default", POD_GROUP)
    assert nodes_of(answer) == placed_by(log, pods_of(sets))


@settings(max_examples=examples(50))
@given(data=st.data())
@pytest.mark.deep
def test_fork_of_a_deciding_scheduler_answers_what_it_then_does(data: st.DataObject) -> None:
    log, sets = mixed_log(data), mixed_sets(data)
    scheduler = Scheduler(log)
    scheduler.follow()
    for _ in range(data.draw(st.integers(0, 6), "decisions")):
        scheduler.decide()
    if data.draw(st.booleans(), "sent"):
        scheduler.send()  # the log has not answered these appends when the question comes
    request = FitRequest(pods=sets, objects=[POD_GROUP])

    def answered() -> bytes:
        return msgspec.json.encode(answer_question(scheduler.state, request, 0.0, lambda other: asked(log, other)))

    answer = msgspec.json.decode(in_fork_and_wait(answered), type=FitAnswer)
    put(log, "podgroups", "default", POD_GROUP)
    for each in pods_of(sets):
        log.add_pod(each)
    scheduler.run()
    records = (scheduler.state.pods[each.metadata.uid] for each in pods_of(sets))
    assert nodes_of(answer) == {f"{each.namespace}/{each.name}": each.node for each in records if each.node}


@settings(max_examples=examples(50))
@given(data=st.data())
def test_pods_that_leave_make_the_room_that_they_then_make(data: st.DataObject) -> None:
    log, sets = mixed_log(data), mixed_sets(data)
    scheduler = Scheduler(log)
    scheduler.run()
    old = [uid for uid in scheduler.state.pods if uid.startswith("old")]
    leaving = data.draw(st.lists(st.sampled_from(old), unique=True), "leaving") if old else []
    answer = asked(log, FitRequest(pods=sets, objects=[POD_GROUP], leaving=leaving))
    for uid in leaving:
        log.remove_pod(uid)
    scheduler.run()
    put(log, "podgroups", "default", POD_GROUP)
    assert nodes_of(answer) == placed_by(log, pods_of(sets))


def pods_of(sets: list[PodSet]) -> list[Pod]:
    return [one for each in sets for one in islice(replicas_of(each), each.replicas)]


def test_question_survives_the_wire() -> None:
    request = FitRequest(pods=[PodSet(pod=pod("web", {"cpu": "1"}), replicas=3)], objects=[POD_GROUP], leaving=["x"])
    assert msgspec.json.decode(msgspec.json.encode(request), type=FitRequest) == request
