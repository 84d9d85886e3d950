"""Vectors of the native plugins of the descheduler."""

from __future__ import annotations

from conformance.adapters.descheduler.running import play, played, prepared
from conformance.registry import Json, adapter
from koord_descheduler.domain.framework.plugin import SetDeletionCost, SetSchedulable
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.low_node_load.anomaly import OK, AnomalyCondition, elapsed, observed
from koord_descheduler.domain.plugins.scale_down_binpack import ScaleDownBinPack
from koordcore.values.invalid import InvalidInput


@adapter("descheduler.anomaly_detector", exact_text=("states",))
def anomaly_detector(given: dict[str, Json]) -> dict[str, Json]:
    """The state of an anomaly detector after each observation (descheduler spec, 8.6)."""
    fields = {
        "abnormalities": "consecutive_abnormalities",
        "normalities": "consecutive_normalities",
        "timeout": "timeout_seconds",
    }
    condition = AnomalyCondition(**{name: given[key] for name, key in fields.items() if given.get(key) is not None})
    detector, states = OK, list[str]()
    for event in given["events"]:
        now, what = event["at"], event["op"]
        if what == "reset":
            detector = OK
        elif what == "state":
            detector = elapsed(detector, now, condition)
        else:
            detector = observed(detector, now, condition, is_abnormal=what == "abnormal")
        states.append("anomaly" if detector.is_anomalous else "ok")
    return {"states": states}


@adapter("descheduler.low_node_load", exact_text=("evicted", "order"), whole=("evicted_per_node",))
def low_node_load(given: dict[str, Json]) -> Json:
    """LowNodeLoad over several rounds that share detectors (descheduler spec, 8)."""
    state, answers = SharedState(), list[Json]()
    for number, objects in enumerate(given["rounds"]):
        answer = play("LowNodeLoad", {**given, **objects}, state)
        if number == 0 and answer == {"invalid_args": True}:
            return answer
        answers.append(answer)
    return {"rounds": answers}


@adapter("descheduler.custom_priority", exact_text=("evicted", "node_changes"))
def custom_priority(given: dict[str, Json]) -> Json:
    """CustomPriority with the nodes that it opens and closes (descheduler spec, 9.1)."""
    try:
        outcome = played("CustomPriority", given, SharedState())
    except InvalidInput:
        return {"invalid_args": True}
    changes = [each for each in outcome.proposals if isinstance(each, SetSchedulable)]
    answer = outcome.answer()
    return {
        **answer,
        "evicted": answer["order"],
        "node_changes": [f"{'uncordon' if each.schedulable else 'cordon'}:{each.node}" for each in changes],
    }


@adapter("descheduler.scale_down_binpack", exact_text=("evicted", "deletion_costs", "pod"))
def scale_down_binpack(given: dict[str, Json]) -> Json:
    """ScaleDownBinPack: ranks, evictions in order, and the deletion costs afterwards (descheduler spec, 9.2)."""
    try:
        plugin, run, attempts = prepared("ScaleDownBinPack", given, SharedState())
    except InvalidInput:
        return {"invalid_args": True}
    assert isinstance(plugin, ScaleDownBinPack)
    ranks = [{"pod": pod.name, "rank": rank} for rank, pod in enumerate(plugin.ranking(run).eligible)]
    plugin.balance(run)
    key = "controller.kubernetes.io/pod-deletion-cost"
    costs = {pod.name: pod.annotations[key] for pod in run.cluster.pods if key in pod.annotations}
    written = {each.pod: str(each.cost) for each in run.proposals if isinstance(each, SetDeletionCost)}
    costs |= {pod.name: written[pod.uid] for pod in run.cluster.pods if pod.uid in written}
    return {
        "ranks": ranks,
        "evicted": [attempt.pod.name for attempt in attempts if attempt.result == "success"],
        "deletion_costs": costs,
    }


@adapter("descheduler.fragmentation_aware", exact_text=("evicted",))
def fragmentation_aware(given: dict[str, Json]) -> Json:
    """FragmentationAware (descheduler spec, 9.3)."""
    return play("FragmentationAware", given)


@adapter("descheduler.node_reservation_evict", exact_text=("evicted",), whole=("evicted_per_node",))
def node_reservation_evict(given: dict[str, Json]) -> Json:
    """RemovePodsViolatingNodeReservation with its evictions in order (descheduler spec, 9.4)."""
    return play("RemovePodsViolatingNodeReservation", given, in_order=True)
