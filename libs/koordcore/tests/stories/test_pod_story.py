"""One pod's life in order: facts by position, explanations behind what they were based on."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided, admission_ref
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.nodestate import PodsStarted
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.events.pod import (
    PlacementExplanation,
    PodDeviceUnhealthy,
    PodNominated,
    PodPlaced,
    UnhealthyDevice,
    Victim,
)
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.stories.moment import Step
from koordcore.stories.pod import pod_story
from koordcore.stories.sentences import summarize

SPEC, POD = AggregateRef("podspec", "u"), AggregateRef("pod", "u")
OBJECT = Pod(metadata=ObjectMeta(namespace="d", name="p", uid="u"))
FOUND = PlacementExplanation(nodes_considered=5, nodes_feasible=3, policy_version="p", based_on=BasedOn(1))


def stored(seq: int, ref: AggregateRef, event: Event, based_on: int = 0) -> StoredEvent:
    origin = Origin(
        causation_id=f"{ref.kind}{seq}",
        correlation_id="u",
        actor="scheduler/0",
        occurred_at="2026-01-01T00:00:00.000000Z",
        based_on=based_on,
    )
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, new.ref, new.headers, new.body)


def unschedulable(seq: int, based_on: int) -> StoredEvent:
    event = PodUnschedulable(namespace="d", name="p", attempt=seq, queued_at="", message="0/5", explanation=FOUND)
    return stored(seq, POD, event, based_on)


def placed(seq: int) -> StoredEvent:
    return stored(
        seq,
        POD,
        PodPlaced(namespace="d", name="p", node="n", requests={}, attempt=1, queued_at="", explanation=FOUND),
    )


def test_an_explanation_stands_behind_the_newest_fact_that_it_was_based_on() -> None:
    facts = [placed(9), stored(2, SPEC, PodSpecAdded(object=OBJECT))]
    story = pod_story("u", facts, [unschedulable(1, 5), unschedulable(2, 5), unschedulable(3, 8)])
    assert [moment.step for moment in story] == ["submitted", *["unschedulable"] * 3, "placed"]
    assert [moment.stored.seq for moment in story] == [2, 1, 2, 3, 9]
    assert [moment.is_fact for moment in story] == [True, False, False, False, True]
    assert (story[1].sentence, story[-1].sentence) == ("0/5", "on n (3 of 5 nodes were feasible)")


@given(known=st.lists(st.integers(0, 9), max_size=5), order=st.randoms(use_true_random=False))
def test_facts_and_explanations_each_keep_the_order_of_their_stream(known: list[int], order: Random) -> None:
    explanations = [unschedulable(number, based_on) for number, based_on in enumerate(known, 1)]
    facts = [stored(seq, SPEC, PodSpecChanged(object=OBJECT)) for seq in range(1, 9)]
    order.shuffle(facts)
    story = pod_story("u", facts, explanations)
    assert [moment.stored.seq for moment in story if moment.is_fact] == list(range(1, 9))
    assert [moment.stored.seq for moment in story if not moment.is_fact] == list(range(1, len(known) + 1))


def test_starts_of_other_pods_on_the_node_are_left_out() -> None:
    node = AggregateRef("nodestate", "node_a")
    story = pod_story("u", [stored(1, node, PodsStarted(pods=["other"])), stored(2, node, PodsStarted(pods=["u"]))], [])
    assert [(moment.step, moment.sentence) for moment in story] == [(Step.STARTED, "by the agent of node.a")]


def test_what_admission_changed_stands_before_the_first_fact() -> None:
    admitted = AdmissionDecided(
        uid="r", source="webhook", resource="pods", operation="CREATE", allowed=True, steps=["A"]
    )
    denied = AdmissionDecided(
        uid="r2",
        source="webhook",
        resource="pods",
        operation="UPDATE",
        user="bob",
        allowed=False,
        message="no",
        rules=["R"],
    )
    ref = admission_ref("pods", "d", "p")
    story = pod_story(
        "u",
        [stored(4, SPEC, PodSpecAdded(object=OBJECT)), placed(6)],
        [stored(1, ref, admitted, 3), stored(2, ref, denied, 5)],
    )
    assert [(moment.step, moment.sentence) for moment in story] == [
        ("admitted", "create, changed by A"),
        ("submitted", ""),
        ("denied", "update by bob: no (R)"),
        ("placed", "on n (3 of 5 nodes were feasible)"),
    ]


def test_preemption_is_told_to_both_sides() -> None:
    victims = [Victim(namespace="d", name="low", uid="v")]
    nominated = PodNominated(namespace="d", name="vip", node="n", victims=victims, plugin="DefaultPreemption")
    [moment] = pod_story("u", [stored(1, POD, nominated)], [])
    assert (moment.step, moment.sentence) == ("nominated", "to n by DefaultPreemption, after d/low has left")
    requested = PodEvictionRequested(
        namespace="d", name="low", node="n", initiator="scheduler", reason="Preempted", message="for d/vip"
    )
    [moment] = pod_story("v", [stored(2, AggregateRef("eviction", "v"), requested)], [])
    assert (moment.step, moment.sentence) == ("eviction-requested", "from n: for d/vip")


def test_failing_devices_are_told_with_their_recovery() -> None:
    broken = [UnhealthyDevice(type="gpu", minor=1, id="GPU-01"), UnhealthyDevice(type="rdma", minor=0)]
    failed = PodDeviceUnhealthy(namespace="d", name="job", node="n", devices=broken)
    healed = PodDeviceUnhealthy(namespace="d", name="job", node="n")
    story = pod_story("u", [stored(1, POD, failed), stored(2, POD, healed)], [])
    assert [(moment.step, moment.sentence) for moment in story] == [
        ("device-unhealthy", "gpu 1 (GPU-01), rdma 0 of n; the pod keeps what it holds, no new pod is placed there"),
        ("device-healthy", "all devices of the pod on n are healthy again"),
    ]


def test_an_event_that_cannot_be_read_is_told_by_its_type() -> None:
    unreadable = StoredEvent(3, POD, {"Koord-Type": "PodTeleported", "Koord-Schema": "1"}, b"{}")
    [moment] = pod_story("u", [unreadable], [])
    assert (moment.step, moment.event, moment.sentence) == ("other", None, "PodTeleported of pod u")


def test_sentences_write_amounts_in_cores_and_gibibytes() -> None:
    amounts = {"name": "app", "target": {"cpu_milli": 1_234_567, "memory_bytes": 1 << 28}}
    assert [
        summarize("NodeOvercommitComputed", "nodepolicy", "u", body)
        for body in [{"batch_cpu_milli": 1_234_567, "mid_cpu_milli": 1_500, "reason": "changed"}]
    ] == ["node u offers 1234.567 cores of batch cpu and 1.5 of mid cpu (changed)"]
    suppressed = {"old_quota_us": -1, "new_quota_us": 123_456_700, "reason": "pressure"}
    assert summarize("BeCpuSuppressed", "nodestate", "u", suppressed) == (
        "best-effort pods of node u: cpu unlimited -> 1234.567 cores; pressure"
    )
    recommended = {"target": "web", "containers": [amounts], "cause": "usage"}
    assert summarize("RecommendationComputed", "recommendation", "u", recommended) == (
        "web should request app 1234.567 cores and 0.25Gi (usage)"
    )
