"""Who took a pod: the sentence of `koord explain pod`, for each way in which a pod can leave."""

from typing import Any

import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import PodReleased
from koordcore.protocol.objects import pod_from_json
from koordcore.stories.disruptions import Cause, disruption_of
from koordcore.stories.pod import pod_story

AT = "2026-01-01T00:00:00.000000Z"


def requested(initiator: str, reason: str = "Evicted", **given: Any) -> PodEvictionRequested:
    return PodEvictionRequested(
        namespace="d", name="p", node="n", initiator=initiator, method="evict", reason=reason, **given
    )


def pod(**status: Any) -> Any:
    return pod_from_json({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "status": status})


def told_by(reason: str) -> PodSpecChanged:
    return PodSpecChanged(object=pod(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": reason}]))


def disruption(*events: Event) -> Any:
    stored: list[StoredEvent] = []
    for seq, event in enumerate((PodSpecAdded(object=pod()), *events), start=1):
        ref = AggregateRef(CATALOGUE.of(type(event)).kind, "u")
        origin = Origin(causation_id=f"t/{seq}", correlation_id="", actor="t", occurred_at=AT)
        (new,) = CATALOGUE.seal([Draft(ref, event, 0)], origin)
        stored.append(StoredEvent(seq, new.ref, new.headers, new.body))
    return disruption_of(pod_story("u", stored, []))


GONE = PodSpecDeleted(namespace="d", name="p")
LOST = PodReleased(namespace="d", name="p", node="n", reason="node-gone")


@pytest.mark.parametrize(
    ("events", "cause", "by"),
    [
        ([requested("scheduler", "Preempted"), GONE], Cause.PREEMPTION, "scheduler"),
        ([requested("scheduler", "Unhealthy"), GONE], Cause.SCHEDULER, "scheduler"),
        ([requested("agent"), GONE], Cause.AGENT, "agent"),
        ([requested("recommender"), GONE], Cause.RECOMMENDATION, "recommender"),
        ([requested("descheduler", trigger="LowNodeLoad", job="j"), GONE], Cause.MIGRATION, "LowNodeLoad"),
        ([requested("descheduler", trigger="Drain", job="j"), GONE], Cause.DRAIN, "Drain"),
        ([requested("descheduler", trigger="PodLifeTime"), GONE], Cause.DESCHEDULING, "PodLifeTime"),
        ([told_by("EvictionByEvictionAPI"), GONE], Cause.API_EVICTION, "EvictionByEvictionAPI"),
        ([told_by("DeletionByTaintManager"), GONE], Cause.NODE_LOSS, "DeletionByTaintManager"),
        ([told_by("TerminationByKubelet"), GONE], Cause.KUBELET, "TerminationByKubelet"),
        ([LOST, GONE], Cause.NODE_LOSS, ""),
        ([GONE], Cause.DELETION, ""),
        ([requested("agent"), told_by("EvictionByEvictionAPI"), PodEvicted(), GONE], Cause.AGENT, "agent"),
        ([requested("agent"), PodEvictionFailed(reason="BudgetExceeded"), GONE], Cause.DELETION, ""),
    ],
)
def test_one_answer_for_each_way_in_which_a_pod_leaves(events: list[Event], cause: Cause, by: str) -> None:
    found = disruption(*events)
    assert (found.cause, found.by, found.is_over) == (cause, by, True)


def test_eviction_that_was_given_up_takes_nobody() -> None:
    assert disruption() is None
    assert disruption(requested("agent"), PodEvictionFailed(reason="BudgetExceeded")) is None
    under_way = disruption(requested("descheduler", trigger="LowNodeLoad", job="j", message="node n is overused"))
    assert under_way.sentence == "is being taken by migration (LowNodeLoad, job j) from n: node n is overused"
