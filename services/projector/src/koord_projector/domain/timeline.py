"""One pod's life in order: what was said about it, decided about it, done with it, each with when, who and why.

Facts stand in the order of the log, explanations in the order of their own stream, whatever any clock says. An
explanation is not in the log; it stands behind the newest fact that the scheduler had folded when it decided.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from koordcore.protocol.amount_text import cfs_quota_text, cores, gibibytes

from koord_projector.domain.explanations import ExplanationRow


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A stored fact as the timeline needs it."""

    seq: int
    kind: str
    id: str
    type: str
    occurred_at: str
    actor: str
    event_id: str
    traceparent: str
    body: dict[str, Any]


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a pod's life.

    position      of the fact; for an explanation that of the newest fact it was based on
    stream        "ev" or "explanations"
    step          submitted, changed, gated, unschedulable, abandoned, nominated, renounced, placed, started, stopped,
                  suppressed, unsuppressed, evicting, evicted, kept, released, deleted
    sentence      what happened, for a person
    explanation   of a decision: nodes considered and feasible, exclusions, top scores; null otherwise
    body          the whole body
    """

    position: int
    stream: str
    step: str
    type: str
    occurred_at: str
    actor: str
    event_id: str
    trace_id: str
    sentence: str
    explanation: dict[str, Any] | None
    body: dict[str, Any]


STEPS = {
    "PodSpecAdded": "submitted",
    "PodSpecChanged": "changed",
    "PodSpecDeleted": "deleted",
    "PodPlaced": "placed",
    "PodReleased": "released",
    "PodBound": "bound",
    "PodBindFailed": "bind failed",
    "PodsStarted": "started",
    "PodsStopped": "stopped",
    "BeCpuSuppressed": "suppressed",
    "BeCpuReleased": "unsuppressed",
    "PodsEvictedByAgent": "evicted",
    "InterferenceDetected": "disturbed",
    "InterferenceEnded": "undisturbed",
    "KnobsChanged": "knobs",
    "AgentStopped": "agent stopped",
    "PodUnschedulable": "unschedulable",
    "DecisionAbandoned": "abandoned",
    "PodGated": "gated",
    "PodNominated": "nominated",
    "PodNominationCleared": "renounced",
    "PodEvictionRequested": "evicting",
    "PodEvicted": "evicted",
    "PodEvictionFailed": "kept",
}


def pod_timeline(facts: Iterable[Fact], explanations: Iterable[ExplanationRow]) -> list[TimelineEntry]:
    """All steps of one pod, oldest first."""
    keyed = [((fact.seq, 0, 0), _entry_of_fact(fact)) for fact in facts]
    known = 0
    for row in sorted(explanations, key=lambda explanation: explanation.seq):
        known = max(known, row.based_on)
        body: dict[str, Any] = msgspec.json.decode(row.body)
        entry = TimelineEntry(
            position=row.based_on,
            stream="explanations",
            step=STEPS[row.type],
            type=row.type,
            occurred_at=row.occurred_at,
            actor=row.actor,
            event_id=row.event_id,
            trace_id=trace_id(row.traceparent),
            sentence=body.get("message") or body.get("reason") or row.type,
            explanation=body.get("explanation"),
            body=body,
        )
        keyed.append(((known, 1, row.seq), entry))
    return [entry for _, entry in sorted(keyed, key=lambda pair: pair[0])]


def _entry_of_fact(fact: Fact) -> TimelineEntry:
    return TimelineEntry(
        position=fact.seq,
        stream="ev",
        step=STEPS.get(fact.type, fact.type),
        type=fact.type,
        occurred_at=fact.occurred_at,
        actor=fact.actor,
        event_id=fact.event_id,
        trace_id=trace_id(fact.traceparent),
        sentence=summarise(fact.type, fact.kind, fact.id, fact.body),
        explanation=fact.body.get("explanation"),
        body=fact.body,
    )


def trace_id(traceparent: str) -> str:
    """The trace id of a W3C trace context, "" when there is none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""


def summarise(type_name: str, kind: str, id_: str, body: dict[str, Any]) -> str:
    """A fact in one sentence; its type and aggregate when there is nothing better to say."""
    match type_name:
        case "PodSpecAdded":
            return f"{_named(body)} was submitted"
        case "PodSpecChanged":
            return f"{_named(body)} was changed"
        case "PodSpecDeleted":
            return f"pod {body.get('namespace')}/{body.get('name')} was deleted"
        case "PodPlaced":
            explanation: dict[str, Any] = body.get("explanation") or {}
            feasible, considered = explanation.get("nodes_feasible", 0), explanation.get("nodes_considered", 0)
            return (
                f"pod {body.get('namespace')}/{body.get('name')} was placed on {body.get('node')}"
                f" ({feasible} of {considered} nodes were feasible)"
            )
        case "PodReleased":
            return (
                f"pod {body.get('namespace')}/{body.get('name')} was released from {body.get('node')}:"
                f" {body.get('reason')}"
            )
        case "PodNominated":
            displaced = ", ".join(f"{each['namespace']}/{each['name']}" for each in body.get("victims", ()))
            cost = f", once these are gone: {displaced}" if displaced else ""
            return f"pod {body.get('namespace')}/{body.get('name')} was promised node {body.get('node')}{cost}"
        case "PodNominationCleared":
            name = f"{body.get('namespace')}/{body.get('name')}"
            return f"pod {name} is not promised node {body.get('node')} any more: {body.get('reason')}"
        case "PodEvictionRequested":
            said = body.get("message") or body.get("reason")
            return f"pod {body.get('namespace')}/{body.get('name')} is to leave {body.get('node')}: {said}"
        case "PodEvicted":
            return f"pod {id_} {'was gone already' if body.get('gone') else 'was evicted'}"
        case "PodEvictionFailed":
            return f"pod {id_} was not evicted: {body.get('reason')} {body.get('message', '')}".rstrip()
        case "QuotaStatusComputed":
            return f"quota {body.get('name')} stands differently"
        case "ScheduleExplanationComputed":
            answer = "is over" if body.get("expired") else body.get("failed_message") or "all have nodes"
            return f"explanation {body.get('namespace')}/{body.get('name')}: {answer}"
        case "ClusterTopologyComputed":
            return f"the network has {len(body.get('domains', ()))} domains"
        case "GangPhaseChanged":
            return f"gang {body.get('namespace')}/{body.get('name')} is {body.get('phase')}"
        case "PodBound":
            found = " (it was found so)" if body.get("observed") else ""
            return f"the API server bound pod {id_} to {body.get('node')}{found}"
        case "PodBindFailed":
            return f"the API server refused to bind pod {id_} to {body.get('node')}: {body.get('reason')}"
        case "NodeResourcesTaken":
            return f"{_count(body)} took resources of node {_name(id_)}"
        case "NodeResourcesReturned":
            return f"{_count(body)} returned resources to node {_name(id_)}"
        case "PodsStarted":
            return f"{_count(body)} started on node {_name(id_)}"
        case "PodsStopped":
            return f"{_count(body)} stopped on node {_name(id_)}"
        case "NodeSpecAdded" | "NodeSpecChanged" | "NodeSpecDeleted":
            what = {"NodeSpecAdded": "registered", "NodeSpecChanged": "changed", "NodeSpecDeleted": "is gone"}
            return f"node {_name(id_)} {what[type_name]}"
        case "NodeOvercommitComputed":
            batch = body.get("batch_cpu_milli")
            mid = body.get("mid_cpu_milli")
            offered = "no batch resources" if batch is None else f"{cores(batch)} cores of batch cpu"
            besides = f" and {cores(mid)} of mid cpu" if mid else ""
            return f"node {_name(id_)} offers {offered}{besides} ({body.get('reason')})"
        case "NodeSloRendered":
            return f"node {_name(id_)} got a new NodeSLO"
        case "NodeMetricPolicyRendered":
            spec: dict[str, Any] = body.get("spec") or {}
            interval = spec.get("reportIntervalSeconds")
            return f"the agent of node {_name(id_)} shall report every {interval} s"
        case "NodeRatiosComputed":
            normalization, amplification = body.get("cpu_normalization"), body.get("amplification")
            why: dict[str, str] = body.get("faults") or {}
            faults = "".join(f"; {fault}" for fault in why.values())
            return (
                f"node {_name(id_)}: cpu normalization {normalization or 'as it is'},"
                f" amplification {amplification or 'none'}{faults}"
            )
        case "NodeDevicesComputed":
            given: dict[str, int] = body.get("resources") or {}
            names = ", ".join(f"{name} {amount}" for name, amount in sorted(given.items()))
            return f"devices of node {_name(id_)} give it {names or 'nothing'}"
        case "NodeHealthAssessed":
            because = ", ".join(body.get("reasons") or ()) or "nothing stands out"
            return (
                f"node {_name(id_)} is {body.get('level')} ({because}): weight {body.get('reported_weight')},"
                f" water levels {_offsets(body.get('offsets'))}"
            )
        case "MassAbnormalityChanged":
            if not body.get("active"):
                return "no more nodes look abnormal than may be lowered"
            abnormal = f"{body.get('abnormal')} of {body.get('nodes')} nodes look abnormal"
            return f"{abnormal}, only {body.get('cap')} may be lowered"
        case "ConfigWarned":
            warnings: dict[str, str] = body.get("warnings") or {}
            return f"configuration {_name(id_)}: " + ("; ".join(warnings.values()) or "nothing to look at any more")
        case "QuotaProfileRendered":
            quota = f"{body.get('quota_namespace')}/{body.get('quota_name')}"
            if body.get("fault"):
                return f"quota profile {_name(id_)} cannot be rendered: {body.get('fault')}"
            return f"quota profile {_name(id_)}: {quota} is as large as its {body.get('nodes', 0)} nodes"
        case "RecommendationComputed":
            amounts = "; ".join(_recommended(container) for container in body.get("containers") or ())
            return f"{body.get('target') or _name(id_)} should request {amounts or 'nothing yet'} ({body.get('cause')})"
        case "RecommendationDropped":
            return f"recommendation {_name(id_)} is gone"
        case "AgentStarted":
            return f"the agent of node {_name(id_)} started ({body.get('host')})"
        case "BeCpuSuppressed":
            return (
                f"best-effort pods of node {_name(id_)}: cpu {_quota(body.get('old_quota_us'))}"
                f" -> {_quota(body.get('new_quota_us'))}; {body.get('reason')}"
            )
        case "BeCpuReleased":
            return f"best-effort pods of node {_name(id_)} are no longer held back; {body.get('reason')}"
        case "PodsEvictedByAgent":
            victims: list[dict[str, Any]] = body.get("pods") or []
            names = ", ".join(f"{pod.get('namespace')}/{pod.get('name')}" for pod in victims)
            return f"the agent of node {_name(id_)} evicted {names} ({body.get('feature')}): {body.get('reason')}"
        case "InterferenceDetected":
            steps: list[str] = body.get("mitigation") or []
            mitigation = "; ".join(steps)
            return (
                f"pod {body.get('namespace')}/{body.get('name')} on node {_name(id_)} is disturbed:"
                f" {body.get('signal')} {body.get('value')} reached {body.get('threshold')}"
                f"{'; ' + mitigation if mitigation else ''}"
            )
        case "InterferenceEnded":
            return f"a disturbance on node {_name(id_)} ended: {body.get('signal')} of {body.get('pod_uid')}"
        case "KnobsChanged":
            return f"the agent of node {_name(id_)} wrote {body.get('writes')} times to {_knobs(body)}"
        case "AgentStopped":
            return f"the agent of node {_name(id_)} stopped; its pods go on"
        case "EventSkipped":
            return f"fold {id_} passes over event {body.get('seq')}: {body.get('reason')}"
        case _:
            return f"{type_name} of {kind} {_name(id_)}"


def _offsets(offsets: dict[str, int] | None) -> str:
    lowered = ", ".join(f"{name} {offset:+d}" for name, offset in sorted((offsets or {}).items()) if offset)
    return lowered or "as configured"


def _recommended(container: dict[str, Any]) -> str:
    target: dict[str, int] = container.get("target") or {}
    cpu, memory = target.get("cpu_milli", 0), target.get("memory_bytes", 0)
    return f"{container.get('name')} {cores(cpu)} cores and {gibibytes(memory)}"


def _named(body: dict[str, Any]) -> str:
    obj: dict[str, Any] = body.get("object") or {}
    meta: dict[str, Any] = obj.get("metadata") or {}
    return f"pod {meta.get('namespace', '')}/{meta.get('name', '')}"


def _count(body: dict[str, Any]) -> str:
    number = len(body.get("pods") or ())
    return "1 pod" if number == 1 else f"{number} pods"


def _knobs(body: dict[str, Any]) -> str:
    number = len(body.get("changes") or ()) + int(body.get("omitted") or 0)
    return "1 knob" if number == 1 else f"{number} knobs"


def _quota(quota_us: Any) -> str:
    return cfs_quota_text(quota_us if isinstance(quota_us, int) else -1)


def _name(token: str) -> str:
    return token.replace("_", ".").replace("=", "/")
