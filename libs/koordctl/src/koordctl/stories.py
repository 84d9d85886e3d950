"""Why things are as they are, told from the events alone: the life of a pod, the state of a node. Pure.

`commands/explain.py` fetches the events and prints what is computed here.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.diagnosis import Diagnosis
from koordcore.events.envelope import StoredEvent
from koordcore.events.explanation import PlacementExplanation
from koordcore.events.gateway import PodBindFailed, PodBound, PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.mirror import NodeSpecAdded, NodeSpecChanged, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.nodepolicy import OvercommitTerms
from koordcore.events.nodestate import (
    AgentStarted,
    AgentStopped,
    BeCpuReleased,
    BeCpuSuppressed,
    InterferenceDetected,
    InterferenceEnded,
    KnobsChanged,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PodNominated, PodNominationCleared, PodPlaced, PodReleased, Victim
from koordcore.events.verdict import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.cluster import evolve
from koordcore.values.resources import parse_amounts

TOP = 3
LAST_CHANGES = 5
LAST_PROTECTION = 8
NODES_NAMED = 5


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a pod.

    at              RFC 3339, the writer's clock
    stored_at_ns    when the log stored it, real time
    position        in the facts stream; 0 for a verdict, which is no fact
    """

    what: str
    at: str
    stored_at_ns: int
    position: int = 0
    by: str = ""
    sentence: str = ""
    attempt: int = 0
    explanation: PlacementExplanation | None = None
    diagnosis: Diagnosis | None = None
    trace: str = ""


class PodStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole life of one pod.

    status          Pending, Placed, Running, Deleted
    usage           of the node's last report; None: not reported
    wait_ms         from submission to first placement, real milliseconds; None: not placed yet
    """

    namespace: str
    name: str
    uid: str
    status: str
    node: str = ""
    requests: dict[str, int] = {}
    qos: str = ""
    moments: list[Moment] = []
    usage: Usage | None = None
    usage_at: str = ""
    wait_ms: float | None = None


def pod_story(
    uid: str,
    facts: Iterable[StoredEvent],
    verdicts: Iterable[StoredEvent],
    node_events: Iterable[StoredEvent],
    report: StoredEvent | None,
) -> PodStory:
    """The story of a pod.

    facts         events of `podspec.<uid>`, `pod.<uid>` and `eviction.<uid>`, in any order
    verdicts      of `why.pod.<uid>`
    node_events   of `nodestate.<node>` of its node, from the placement on
    report        the newest report of its node
    """
    namespace = name = node = ""
    status = "Pending"
    requests: dict[str, int] = {}
    moments: list[Moment] = []
    submitted_ns = placed_ns = 0
    for stored in sorted(facts, key=lambda event: event.seq):
        event = CATALOGUE.read(stored)
        match event:
            case PodSpecAdded() | PodSpecChanged():
                namespace, name = event.object.metadata.namespace, event.object.metadata.name
                requests = pod_requests(event.object)
                submitted_ns = submitted_ns or stored.stored_at_ns
                moments.append(_moment("submitted" if isinstance(event, PodSpecAdded) else "changed", stored))
            case PodSpecDeleted():
                status = "Deleted"
                moments.append(_moment("deleted", stored))
            case PodPlaced():
                node, status = event.node, "Placed"
                placed_ns = placed_ns or stored.stored_at_ns
                moments.append(
                    _moment("placed", stored, f"on {event.node}", attempt=event.attempt, why=event.explanation)
                )
            case PodBound():
                moments.append(_moment("bound", stored, f"to {event.node}"))
            case PodBindFailed():
                moments.append(_moment("not bound", stored, f"to {event.node}: {event.reason}: {event.message}"))
            case PodReleased():
                node, status = "", "Deleted" if event.reason == "deleted" else "Pending"
                moments.append(_moment("released", stored, f"from {event.node}: {event.reason}"))
            case PodNominated() | PodNominationCleared() | PodEvictionRequested() | PodEvicted() | PodEvictionFailed():
                moments.append(_moment(*_displacement(event, stored)))
            case _:
                pass
    for stored in verdicts:
        event = CATALOGUE.read(stored)
        match event:
            case PodUnschedulable():
                refused = _moment(
                    "refused", stored, event.message, attempt=event.attempt, why=event.explanation, fact=False
                )
                moments.append(msgspec.structs.replace(refused, diagnosis=event.diagnosis))
            case PodGated():
                moments.append(_moment("gated", stored, event.message, fact=False))
            case DecisionAbandoned():
                moments.append(_moment("abandoned", stored, event.reason, attempt=event.attempt, fact=False))
            case _:
                pass
    for stored in node_events:
        event = CATALOGUE.read(stored)
        match event:
            case PodsStarted() if uid in event.pods:
                status = "Running" if node else status
                moments.append(_moment("started", stored, f"by the agent of {stored.ref.id.replace('_', '.')}"))
            case PodsStopped() if uid in event.pods:
                moments.append(_moment("stopped", stored))
            case _:
                pass
    moments.sort(key=lambda moment: moment.stored_at_ns)
    sample = _usage_of(uid, report)
    return PodStory(
        namespace=namespace,
        name=name,
        uid=uid,
        status=status,
        node=node,
        requests=requests,
        qos=sample.qos if sample else "",
        moments=moments,
        usage=sample.usage if sample and node else None,
        usage_at=_updated_at(report) if sample and node else "",
        wait_ms=(placed_ns - submitted_ns) / 1e6 if placed_ns and submitted_ns else None,
    )


def _displacement(
    event: PodNominated | PodNominationCleared | PodEvictionRequested | PodEvicted | PodEvictionFailed,
    stored: StoredEvent,
) -> tuple[str, StoredEvent, str]:
    """What a pod was promised at the cost of others, or what it has to give up."""
    match event:
        case PodNominated():
            cost = f", once {_named(event.victims)} left" if event.victims else ""
            return "nominated", stored, f"to {event.node} by {event.plugin}{cost}"
        case PodNominationCleared():
            return "renounced", stored, f"{event.node} is not promised any more: {event.reason}"
        case PodEvictionRequested():
            return "evicting", stored, f"{event.reason}: {event.message}" if event.message else event.reason
        case PodEvicted():
            return "evicted", stored, "it was gone already" if event.gone else ""
        case PodEvictionFailed():
            return "kept", stored, f"not evicted, {event.reason}: {event.message}".removesuffix(": ")


def _named(victims: Sequence[Victim]) -> str:
    """`a and b have`, for a sentence; what violates a budget says so."""
    names = [
        f"{each.namespace}/{each.name}{' (against its disruption budget)' if each.violates_budget else ''}"
        for each in victims
    ]
    return f"{names[0]} has" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} have"


def _moment(
    what: str,
    stored: StoredEvent,
    sentence: str = "",
    *,
    attempt: int = 0,
    why: PlacementExplanation | None = None,
    fact: bool = True,
) -> Moment:
    parts = stored.traceparent.split("-")
    return Moment(
        what=what,
        at=stored.occurred_at,
        stored_at_ns=stored.stored_at_ns,
        position=stored.seq if fact else 0,
        by=stored.actor,
        sentence=sentence,
        attempt=attempt,
        explanation=why,
        trace=parts[1] if len(parts) > 1 else "",
    )


def _report(stored: StoredEvent | None) -> NodeUsageReported | None:
    event = CATALOGUE.read(stored) if stored is not None else None
    return event if isinstance(event, NodeUsageReported) else None


def _usage_of(uid: str, stored: StoredEvent | None) -> PodUsage | None:
    report = _report(stored)
    return next((pod for pod in report.pods if pod.uid == uid), None) if report else None


def _updated_at(stored: StoredEvent | None) -> str:
    report = _report(stored)
    return report.updated_at if report else ""


def explanation_lines(why: PlacementExplanation) -> list[str]:
    """An explanation in a few lines: how many nodes, who excluded how many and why, the best scores and their parts."""
    lines = [f"{why.nodes_considered} nodes considered, {why.nodes_feasible} feasible"]
    for exclusion in why.exclusions:
        if exclusion.excluded:
            reasons = ", ".join(f"{count} {reason}" for reason, count in _most_first(exclusion.reasons))
            lines.append(f"{exclusion.plugin} excluded {exclusion.excluded}: {reasons}")
    for place, score in enumerate(why.top[:TOP], 1):
        parts = " + ".join(f"{plugin} {value}" for plugin, value in _most_first(score.parts) if value) or "0"
        lines.append(f"score {place}. {score.node} {score.total} = {parts}")
    facts, samples = why.based_on.ev, why.based_on.obs
    observed = f", observations up to {samples}" if samples else ""
    lines.append(f"based on facts up to {facts}{observed}, policy {why.policy_version}")
    return lines


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Why there is no node, node group by node group; what preemption could do; what would help."""
    lines: list[str] = []
    if diagnosis.pre_filter_message:
        lines.append(f"before any node: {diagnosis.pre_filter_message}")
    for failure in diagnosis.failures:
        shown = ", ".join(failure.nodes[:NODES_NAMED])
        more = f" and {failure.count - NODES_NAMED} more" if failure.count > NODES_NAMED else ""
        helps = "pods that leave may help" if failure.preempt_might_help else "no pod that leaves helps"
        lines.append(f"{failure.count} x {failure.plugin}: {failure.reason} ({helps}): {shown}{more}")
    if diagnosis.already_waiting:
        nodes = ", ".join(f"{node} {count}" for node, count in sorted(diagnosis.waiting_on.items()))
        lines.append(f"{diagnosis.already_waiting} pods of gangs wait with a node: {nodes}")
    if not diagnosis.is_root_cause:
        lines.append("it fails because its gang group had failed already")
    preemption = diagnosis.preemption
    if preemption is not None and preemption.victims:
        lines.append(
            f"preemption: {preemption.node} is free once {_named(preemption.victims)} left"
            f" ({preemption.plugin}, {preemption.examined} nodes tried)"
        )
    elif preemption is not None and preemption.failed_message:
        lines.append(f"preemption: {preemption.failed_message}")
    if diagnosis.suggestion is not None:
        lines.append(f"suggestion: {diagnosis.suggestion.message} ({diagnosis.suggestion.type})")
    return lines


def _most_first(counts: dict[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the best-effort quota. `old_us` and `new_us` per 100 ms, -1 = unlimited."""

    at: str
    position: int
    old_us: int
    new_us: int
    reason: str
    terms: dict[str, int] = {}


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the agent did besides the quota, or that happened to a pod, in a sentence."""

    at: str
    position: int
    what: str
    sentence: str


class NodeStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node now, with the terms of what was decided about it.

    terms           resource -> terms of the last published overcommit; empty: none, or withdrawn
    slo             the NodeSLO in force; None: not rendered
    policy          everything that the manager decided for it; None: nothing yet
    changes         newest last, at most five
    protection      evictions, interference, knobs and the agent's stops, newest last, at most eight
    contended       pods that are disturbed now, with the signal
    """

    name: str
    allocatable: dict[str, int] = {}
    host: str = ""
    agent_starts: int = 0
    batch_cpu_milli: int | None = None
    batch_memory_bytes: int | None = None
    overcommit_reason: str = ""
    overcommit_at: str = ""
    terms: dict[str, OvercommitTerms] = {}
    slo: dict[str, Any] | None = None
    policy: NodePolicyState | None = None
    be_quota_us: int = -1
    changes: list[Change] = []
    protection: list[Protection] = []
    contended: list[str] = []
    running: int = 0
    node_usage: Usage | None = None
    system_usage: Usage | None = None
    be_usage: Usage = Usage()
    reported_at: str = ""
    pods_reported: int = 0


def node_story(
    name: str,
    spec: StoredEvent | None,
    policy: Iterable[StoredEvent],
    state: Iterable[StoredEvent],
    report: StoredEvent | None,
) -> NodeStory:
    """The story of a node.

    spec      newest event of `nodespec.<n>`
    policy    events of `nodepolicy.<n>`; state: of `nodestate.<n>`; both in order
    report    its newest report
    """
    registered = CATALOGUE.read(spec) if spec is not None else None
    decided: NodePolicyState | None = None
    for stored in policy:
        event = CATALOGUE.read(stored)
        state_after = evolve(decided, event, stored) if event is not None else decided
        decided = state_after if isinstance(state_after, NodePolicyState) else decided
    host, starts, running = "", 0, set[str]()
    changes: list[Change] = []
    protection: list[Protection] = []
    contended: dict[str, str] = {}
    for stored in state:
        event = CATALOGUE.read(stored)
        told = protection_of(stored)
        if told is not None:
            protection.append(told)
        match event:
            case AgentStarted():
                host, starts = event.host, starts + 1
                contended.clear()
            case InterferenceDetected():
                contended[event.contention] = f"{event.namespace}/{event.name} {event.signal}"
            case InterferenceEnded():
                contended.pop(event.contention, None)
            case PodsStarted():
                running.update(event.pods)
            case PodsStopped():
                running.difference_update(event.pods)
            case BeCpuSuppressed():
                changes.append(_change(stored, event.old_quota_us, event.new_quota_us, event.reason, event.terms))
            case BeCpuReleased():
                changes.append(_change(stored, event.old_quota_us, -1, event.reason, {}))
            case _:
                pass
    sample = _report(report)
    allocatable: dict[str, int] = {}
    if isinstance(registered, NodeSpecAdded | NodeSpecChanged):
        allocatable = parse_amounts(registered.object.status.allocatable)
    best_effort = [pod.usage for pod in sample.pods if pod.qos == "BE"] if sample else []
    return NodeStory(
        name=name,
        allocatable=allocatable,
        host=host,
        agent_starts=starts,
        batch_cpu_milli=decided.batch_cpu_milli if decided else None,
        batch_memory_bytes=decided.batch_memory_bytes if decided else None,
        overcommit_reason=decided.reason if decided else "",
        overcommit_at=decided.computed_at if decided else "",
        terms=decided.terms if decided else {},
        slo=decided.slo if decided else None,
        policy=decided,
        be_quota_us=changes[-1].new_us if changes else -1,
        changes=changes[-LAST_CHANGES:],
        protection=protection[-LAST_PROTECTION:],
        contended=sorted(contended.values()),
        running=len(running),
        node_usage=sample.node_usage if sample else None,
        system_usage=sample.system_usage if sample else None,
        be_usage=Usage(sum(usage.cpu_milli for usage in best_effort), sum(usage.memory_bytes for usage in best_effort)),
        reported_at=sample.updated_at if sample else "",
        pods_reported=len(sample.pods) if sample else 0,
    )


def protection_of(stored: StoredEvent) -> Protection | None:
    """What an agent's fact says about protection besides the quota; None for other facts."""
    event = CATALOGUE.read(stored)
    match event:
        case PodsEvictedByAgent():
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in event.pods)
            what, sentence = "evicted", f"{event.feature} took {names}: {event.reason}"
        case InterferenceDetected():
            suspects = ", ".join(f"{s.namespace}/{s.name} {s.score:.0%}" for s in event.suspects[:3]) or "nobody"
            mitigation = "; ".join(event.mitigation) or "only reported"
            what = "disturbed"
            sentence = (
                f"{event.namespace}/{event.name}: {event.signal} {event.value:g} reached {event.threshold:g};"
                f" suspects {suspects}; {mitigation}"
            )
        case InterferenceEnded():
            what, sentence = (
                "undisturbed",
                f"{event.signal} of {event.pod_uid} ended after {event.lasted_seconds:.0f} s",
            )
        case KnobsChanged():
            most = ", ".join(f"{change.knob} {change.old} -> {change.new}" for change in event.changes[:2])
            lost = sum(len(change.lost) for change in event.changes)
            what = "knobs"
            sentence = (
                f"{event.writes} writes in {event.seconds:.0f} s ({event.failed} refused, {lost} plans lost): {most}"
            )
        case AgentStopped():
            what, sentence = "stopped", f"the agent stopped; {len(event.left)} knobs of classes stay as they are"
        case _:
            return None
    return Protection(at=stored.occurred_at, position=stored.seq, what=what, sentence=sentence)


def _change(stored: StoredEvent, old_us: int, new_us: int, reason: str, terms: dict[str, int]) -> Change:
    return Change(at=stored.occurred_at, position=stored.seq, old_us=old_us, new_us=new_us, reason=reason, terms=terms)


def quota(microseconds: int) -> str:
    """A cfs quota per 100 ms as cores."""
    return "unlimited" if microseconds < 0 else f"{microseconds / 100_000:g} cores"
