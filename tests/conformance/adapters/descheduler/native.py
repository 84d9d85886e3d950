"""Vectors of the native plugins of the descheduler."""

from __future__ import annotations

from conformance.adapters.descheduler.running import play
from conformance.registry import Json, adapter
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.native.low_node_load.anomaly import (
    OK,
    AnomalyCondition,
    elapsed,
    observed,
)


@adapter("descheduler.anomaly_detector", exact_text=("states",))
def anomaly_detector(given: dict[str, Json]) -> dict[str, Json]:
    """The state of an anomaly detector after each observation (descheduler spec, 8.6)."""
    condition = AnomalyCondition(
        abnormalities=given["consecutive_abnormalities"],
        normalities=given["consecutive_normalities"],
        timeout=given["timeout_seconds"],
    )
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
