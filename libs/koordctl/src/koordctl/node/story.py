"""The explanation of a node: its state with the terms of the decisions about it, from events alone. Pure.

`explain` fetches the events. `lines` prints the result.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events import nodestate as node_events
from koordcore.events.envelope import StoredEvent
from koordcore.events.nodepolicy import OvercommitTerms
from koordcore.events.objects import NodeSpecAdded, NodeSpecChanged
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.drains import DRAIN_NODE, NODE_PLANNING
from koordcore.protocol.node_conditions import PRESSURES, READY, is_bad
from koordcore.protocol.objects import Node, NodeCondition
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.cluster import evolve
from koordcore.stories.hardware import NodeHardware
from koordcore.stories.pod import oom_kill_text
from koordcore.values.resources import amount_of, parse_amounts, parse_resources

from koordctl.render.units import duration_text

LAST_CHANGES: Final = 5
LAST_PROTECTION: Final = 8


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the CPU quota of all best-effort pods of a node."""

    at: str  # RFC 3339 time of the event
    position: int  # Position of the event in the log
    old_us: int  # Quota before, in µs per 100 ms; -1 means unlimited
    new_us: int  # Quota afterwards, in the same form
    reason: str  # Reason of the change, as a sentence
    terms: dict[str, int] = {}  # Numbers from which the new quota was computed; empty if it was lifted


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """One action of the agent that protected pods, except changes of the best-effort quota."""

    at: str  # RFC 3339 time of the event
    position: int  # Position of the event in the log
    what: str  # Kind of the action or event, for example an eviction
    sentence: str  # Description of the action


class NodeSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measured usage of a node in one report of its agent."""

    at: str  # RFC 3339 time of the report
    node: Usage
    system: Usage | None = None  # Usage outside of pods, or None if unknown
    best_effort: Usage = Usage()  # Usage of best-effort pods
    pods: int | None = None  # Number of measured pods, or None if unknown


class NodeStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that `koord explain node` shows of a node."""

    name: str
    # Allocatable amounts: milli-cores, bytes, or counts, or empty if the node is deleted.
    allocatable: dict[str, int] = {}
    # Part of `allocatable` that the node's reservation keeps from pods; empty without one.
    kept_back: dict[str, int] = {}
    ready: str = "True"  # Status of its condition Ready: "True", "False" or "Unknown"; "True" without the condition
    problem_conditions: list[str] = []  # Its bad conditions with their reasons: "MemoryPressure (Evicting)"
    # Its conditions that are True and not of Kubernetes. Whether that is good, only who reports them knows.
    other_conditions: list[str] = []
    cordoned: bool = False  # Whether it is closed for new pods by `spec.unschedulable`
    drain: str = ""  # Name of the drain that closed it; empty if none did
    taints: list[str] = []  # Its taints as kubectl shows them: "key=value:effect"
    host: str = ""  # Host of its agent, or empty if it has none
    agent_starts: int = 0  # Number of starts of its agent
    batch_cpu_milli: int | None = None  # Published batch CPU, or None if there is none
    batch_memory_bytes: int | None = None  # Published batch memory, or None if there is none
    overcommit_reason: str = ""  # Reason of the last publication
    overcommit_at: str = ""  # Time of the last publication
    # Resource -> terms of the last published overcommit, or empty if there is none.
    terms: dict[str, OvercommitTerms] = {}
    slo: dict[str, Any] | None = None  # The NodeSLO in force, or None if none was rendered
    policy: NodePolicyState | None = None  # Everything that the manager decided about the node, or None if nothing
    be_quota_us: int = -1  # Best-effort quota in µs per 100 ms; -1 is unlimited
    changes: list[Change] = []  # The last five changes of the quota, newest last
    # The last eight evictions, cases of interference, writes and stops of the agent, newest last.
    protection: list[Protection] = []
    contended: list[str] = []  # Pods that suffer interference, with the signal
    problems: list[str] = []  # Lasting problems since its agent started, one sentence each
    running: int = 0  # Number of running pods
    sample: NodeSample | None = None  # Usage in the newest report, or None if there is none
    # Sockets, zones, cores and devices with the pods that hold them, or None if nothing is reported.
    hardware: NodeHardware | None = None


def node_story(
    name: str,
    spec: StoredEvent | None,
    policy: Iterable[StoredEvent],
    state: Iterable[StoredEvent],
    sample: NodeSample | None,
) -> NodeStory:
    """Compute what `koord explain node` shows from events.

    Args:
        spec: Newest event of `nodespec.<n>`; None if there is none.
        policy: Events of `nodepolicy.<n>`, in order.
        state: Events of `nodestate.<n>`, in order.
        sample: Usage in its newest report; None without a report.
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
    problems: list[str] = []
    for stored in state:
        event = CATALOGUE.read(stored)
        told = protection_of(stored)
        if told is not None:
            protection.append(told)
        match event:
            case node_events.AgentStarted():
                host, starts = event.host, starts + 1
                contended.clear()
                problems = []
            case node_events.NodeProblemsReported():
                problems = event.problems
            case node_events.InterferenceDetected():
                contended[event.contention] = f"{event.namespace}/{event.name} {event.signal}"
            case node_events.InterferenceEnded():
                contended.pop(event.contention, None)
            case node_events.PodsStarted():
                running.update(event.pods)
            case node_events.PodsStopped():
                running.difference_update(event.pods)
            case node_events.BeCpuSuppressed():
                changes.append(_change(stored, event.old_quota_us, event.new_quota_us, event.reason, event.terms))
            case node_events.BeCpuReleased():
                changes.append(_change(stored, event.old_quota_us, -1, event.reason, {}))
            case _:
                pass
    allocatable: dict[str, int] = {}
    kept_back: dict[str, int] = {}
    of_object: dict[str, Any] = {}
    if isinstance(registered, NodeSpecAdded | NodeSpecChanged):
        allocatable = parse_amounts(registered.object.status.allocatable)
        kept_back = _kept_back(registered.object)
        of_object = _openness(registered.object)
    return NodeStory(
        name=name,
        **of_object,
        allocatable=allocatable,
        kept_back=kept_back,
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
        problems=problems,
        running=len(running),
        sample=sample,
    )


def _openness(node: Node) -> dict[str, Any]:
    """The fields of a `NodeStory` that say whether new pods may come."""
    ready = next((each for each in node.status.conditions if each.type == READY), None)
    others = [
        each
        for each in node.status.conditions
        if each.type != READY and each.type not in PRESSURES and each.status == "True"
    ]
    taints = node.spec.taints
    return {
        "ready": "True" if ready is None else ready.status,
        "problem_conditions": [_condition_text(each) for each in node.status.conditions if is_bad(each)],
        "other_conditions": [_condition_text(each) for each in others],
        "cordoned": node.spec.unschedulable,
        "drain": next((each.value for each in taints if each.key == DRAIN_NODE), "")
        or node.metadata.labels.get(NODE_PLANNING, ""),
        "taints": [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in taints],
    }


def _condition_text(condition: NodeCondition) -> str:
    return condition.type + (f" ({condition.reason})" if condition.reason else "")


def _kept_back(node: Node) -> dict[str, int]:
    allocatable = parse_resources(node.status.allocatable)
    for_pods = trim_allocatable(allocatable, node_reservation(node.metadata.annotations))
    kept = {name: amount_of(name, quantity) - amount_of(name, for_pods[name]) for name, quantity in allocatable.items()}
    return {name: amount for name, amount in kept.items() if amount}


def sample_of(report: NodeUsageReported) -> NodeSample | None:
    """None if the report contains no usage yet."""
    if report.node_usage is None:
        return None
    best_effort = [pod.usage for pod in report.pods if pod.qos == "BE"]
    return NodeSample(
        at=report.updated_at,
        node=report.node_usage,
        system=report.system_usage,
        best_effort=Usage(
            sum(usage.cpu_milli for usage in best_effort), sum(usage.memory_bytes for usage in best_effort)
        ),
        pods=len(report.pods),
    )


def protection_of(stored: StoredEvent) -> Protection | None:
    """None if the event records neither a protective action nor kills by the kernel.

    Changes of the best-effort quota are none.
    """
    event = CATALOGUE.read(stored)
    match event:
        case node_events.PodsEvictedByAgent():
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in event.pods)
            what, sentence = "evicted", f"{names} by {event.feature}: {event.reason}"
        case node_events.ContainersOomKilled():
            kills = (f"{kill.namespace}/{kill.name} {oom_kill_text(kill)}" for kill in event.kills)
            what, sentence = "oom-killed", f"for lack of memory: {', '.join(kills)}"
        case node_events.InterferenceDetected():
            suspects = ", ".join(f"{s.namespace}/{s.name} {s.score:.0%}" for s in event.suspects[:3]) or "none"
            mitigation = "; ".join(event.mitigation) or "no mitigation"
            what = "interference"
            sentence = (
                f"{event.namespace}/{event.name}: {event.signal} {event.value:g} reached {event.threshold:g};"
                f" suspects {suspects}; {mitigation}"
            )
        case node_events.InterferenceEnded():
            what, sentence = (
                "ended",
                f"{event.signal} of {event.pod_uid} ended after {duration_text(event.lasted_seconds)}",
            )
        case node_events.KnobsChanged():
            most = ", ".join(f"{change.knob} {change.old} -> {change.new}" for change in event.changes[:2])
            lost = sum(len(change.lost) for change in event.changes)
            what = "knobs"
            how = f"{event.failed} refused, {lost} plans overruled"
            sentence = f"{event.writes} writes in {duration_text(event.seconds)} ({how}): {most}"
        case node_events.AgentStopped():
            what, sentence = "stopped", f"the agent stopped; {len(event.left)} knobs of classes keep their values"
        case _:
            return None
    return Protection(at=stored.occurred_at, position=stored.seq, what=what, sentence=sentence)


def _change(stored: StoredEvent, old_us: int, new_us: int, reason: str, terms: dict[str, int]) -> Change:
    return Change(at=stored.occurred_at, position=stored.seq, old_us=old_us, new_us=new_us, reason=reason, terms=terms)
