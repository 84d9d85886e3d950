"""Answers made of stored facts and explanations: a pod's life in order, reasons counted."""

from koord_projector.fold.archives import explanation_row
from koord_projector.read.pods import count_reasons
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import EvictionRefused, RoundMove
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent
from koordcore.events.explanations import PodGated, PodUnschedulable
from koordcore.events.objects import PodSpecDeleted
from koordcore.events.pod import PlacementExplanation, PluginExclusion
from koordcore.stories.pod import pod_story

POD = AggregateRef("pod", "u")


def stored(seq: int, ref: AggregateRef, event: Event, based_on: int = 0) -> StoredEvent:
    origin = Origin(
        causation_id=f"c{seq}",
        correlation_id="u",
        actor="scheduler/0",
        occurred_at="2026-01-01T00:00:00.000000Z",
        based_on=based_on,
        traceparent=f"00-{seq:032x}-{seq:016x}-01",
    )
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, new.ref, new.headers, new.body)


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


def test_a_timeline_has_the_bodies_and_the_positions_that_explanations_were_based_on() -> None:
    deleted = stored(9, AggregateRef("podspec", "u"), PodSpecDeleted(namespace="d", name="p"))
    refused = stored(3, POD, unschedulable(cpu=5), based_on=7)
    first, second = [moment.entry() for moment in pod_story("u", [deleted], [refused])]
    assert (first.stream, first.step, first.position, first.sentence) == ("ev", "deleted", 9, "")
    assert (second.stream, second.step, second.position, second.sentence) == ("explanations", "unschedulable", 7, "0/5")
    assert second.explanation == second.body["explanation"]
    assert (second.trace_id, second.actor) == (f"{3:032x}", "scheduler/0")


def test_a_pod_that_may_not_be_attempted_has_an_explanation_without_attempt() -> None:
    gated = stored(1, POD, PodGated(namespace="d", name="p", message="its gang is not complete"))
    row = explanation_row(gated)
    assert row is not None
    assert row.attempt == 0
    [entry] = [moment.entry() for moment in pod_story("u", [], [gated])]
    assert (entry.step, entry.sentence) == ("gated", "its gang is not complete")


def test_a_pod_that_a_round_refuses_has_it_in_its_timeline() -> None:
    move = RoundMove(
        namespace="d", name="p", uid="u", node="n", profile="f", plugin="LowNodeLoad", reason="hot", round="at ten"
    )
    told = stored(1, AggregateRef("refusal", "u"), EvictionRefused(move=move, codes=["pvc"]))
    row = explanation_row(told)
    assert row is not None
    assert (row.uid, row.attempt, row.type) == ("u", 0, "EvictionRefused")
    [entry] = [moment.entry() for moment in pod_story("u", [], [told])]
    assert entry.step == "eviction-refused"
    assert entry.sentence == "not evicted in round at ten: plugin LowNodeLoad (profile f) asked for it; refused: pvc"
