"""Answers made of stored facts and explanations: a pod's life in order, reasons counted."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from koord_projector.domain.explanations import ExplanationRow, explanation_row
from koord_projector.domain.pending import count_reasons
from koord_projector.domain.timeline import Fact, pod_timeline, trace_id
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Origin, StoredEvent
from koordcore.events.scheduling.explanations import PodGated, PodUnschedulable
from koordcore.events.scheduling.placement_explanation import PlacementExplanation, PluginExclusion


def fact(seq: int, type_name: str, **body: object) -> Fact:
    return Fact(
        seq=seq,
        kind="pod",
        id="u",
        type=type_name,
        occurred_at=f"2026-01-01T00:00:{seq:02d}.000000Z",
        actor="scheduler/0",
        event_id=str(seq),
        traceparent=f"00-{seq:032x}-{seq:016x}-01",
        body=body,
    )


def explanation(seq: int, based_on: int) -> ExplanationRow:
    return ExplanationRow(
        uid="u",
        occurred_at="2026-01-01T00:00:00.000000Z",
        event_id=f"v{seq}",
        seq=seq,
        type="PodUnschedulable",
        attempt=seq,
        based_on=based_on,
        actor="scheduler/0",
        traceparent="",
        body='{"message": "0/3 nodes are available", "explanation": {"nodes_considered": 3}}',
    )


def test_an_explanation_stands_behind_the_newest_fact_it_was_based_on() -> None:
    facts = [fact(9, "PodPlaced", node="a"), fact(2, "PodSpecAdded")]
    life = pod_timeline(facts, [explanation(2, 5), explanation(1, 5), explanation(3, 8)])
    assert [entry.event_id for entry in life] == ["2", "v1", "v2", "v3", "9"]
    assert [entry.step for entry in life] == ["submitted", *["unschedulable"] * 3, "placed"]
    assert life[1].sentence == "0/3 nodes are available"
    assert life[1].explanation == {"nodes_considered": 3}


@given(known=st.lists(st.integers(0, 9), max_size=5), order=st.randoms(use_true_random=False))
def test_facts_and_explanations_each_keep_the_order_of_their_stream(known: list[int], order: Random) -> None:
    explanations = [explanation(number, based_on) for number, based_on in enumerate(known, 1)]
    facts = [fact(seq, "PodSpecChanged") for seq in range(1, 9)]
    order.shuffle(explanations)
    order.shuffle(facts)
    life = pod_timeline(facts, explanations)
    assert [entry.position for entry in life if entry.stream == "ev"] == list(range(1, 9))
    assert [entry.event_id for entry in life if entry.stream == "explanations"] == [
        f"v{n}" for n in range(1, len(known) + 1)
    ]


def test_a_trace_id_is_cut_out_of_its_context() -> None:
    assert trace_id(f"00-{7:032x}-{1:016x}-01") == f"{7:032x}"
    assert trace_id("") == trace_id("nonsense") == ""


def unschedulable(**reasons: int) -> PodUnschedulable:
    explanation = PlacementExplanation(
        nodes_considered=5,
        nodes_feasible=0,
        exclusions=[PluginExclusion("Fit", sum(reasons.values()), dict(reasons))],
        policy_version="p",
        based_on=BasedOn(1),
    )
    return PodUnschedulable(namespace="d", name="p", attempt=1, queued_at="", message="0/5", explanation=explanation)


def test_reasons_are_counted_per_pod_most_pods_first() -> None:
    counted = count_reasons([unschedulable(cpu=2, memory=3), unschedulable(cpu=5), unschedulable(gpu=5)])
    assert [(each.reason, each.pods, each.nodes_max) for each in counted] == [
        ("cpu", 2, 5),
        ("gpu", 1, 5),
        ("memory", 1, 3),
    ]


def test_a_promise_at_the_cost_of_others_is_told_to_both_sides() -> None:
    victims = [{"namespace": "d", "name": "low", "uid": "v"}]
    [nominated] = pod_timeline([fact(1, "PodNominated", namespace="d", name="vip", node="n", victims=victims)], [])
    assert (nominated.step, nominated.sentence) == (
        "nominated",
        "pod d/vip was promised node n, once these are gone: d/low",
    )
    asked = fact(
        2, "PodEvictionRequested", namespace="d", name="low", node="n", reason="Preempted", message="for d/vip"
    )
    [evicting] = pod_timeline([asked], [])
    assert (evicting.step, evicting.sentence) == ("evicting", "pod d/low is to leave n: for d/vip")


def test_a_pod_that_may_not_be_attempted_has_an_explanation_without_attempt() -> None:
    origin = Origin(
        causation_id="c", correlation_id="u", actor="scheduler/0", occurred_at="2026-01-01T00:00:00.000000Z"
    )
    gated = PodGated(namespace="d", name="p", message="its gang is not complete")
    [new] = CATALOGUE.seal([Draft(AggregateRef("pod", "u"), gated, 0)], origin)
    row = explanation_row(StoredEvent(1, new.ref, new.headers, new.body))
    assert row is not None
    assert row.attempt == 0
    [entry] = pod_timeline([], [row])
    assert (entry.step, entry.sentence) == ("gated", "its gang is not complete")


def test_a_timeline_writes_amounts_as_everything_else_does() -> None:
    facts = [
        fact(1, "NodeOvercommitComputed", batch_cpu_milli=1_234_567, mid_cpu_milli=1_500, reason="changed"),
        fact(2, "BeCpuSuppressed", old_quota_us=-1, new_quota_us=123_456_700, reason="pressure"),
        fact(
            3,
            "RecommendationComputed",
            target="web",
            containers=[{"name": "app", "target": {"cpu_milli": 1_234_567, "memory_bytes": 1 << 28}}],
            cause="usage",
        ),
    ]
    texts = [entry.sentence for entry in pod_timeline(facts, [])]
    assert texts == [
        "node u offers 1234.567 cores of batch cpu and 1.5 of mid cpu (changed)",
        "best-effort pods of node u: cpu unlimited -> 1234.567 cores; pressure",
        "web should request app 1234.567 cores and 0.25Gi (usage)",
    ]
