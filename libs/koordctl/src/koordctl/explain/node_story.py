"""The state of a node with the terms of what was decided about it, told from the events alone. Pure.

`commands/explain.py` fetches the events, `story_text.py` prints what is computed here.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.agents.nodestate import (
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
from koordcore.events.agents.observation import NodeUsageReported, Usage
from koordcore.events.envelope import StoredEvent
from koordcore.events.management.nodepolicy import OvercommitTerms
from koordcore.events.objects.mirror import NodeSpecAdded, NodeSpecChanged
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.cluster import evolve
from koordcore.values.resources import parse_amounts

from koordctl.render.units import duration_text

LAST_CHANGES: Final = 5
LAST_PROTECTION: Final = 8


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


class NodeSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node used by one report of its agent.

    at          RFC 3339, the run's clock
    pods        measured in it; None: not known
    """

    at: str
    node: Usage
    system: Usage | None = None
    best_effort: Usage = Usage()
    pods: int | None = None


class NodeStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node with the terms of what was decided about it.

    terms           resource -> terms of the last published overcommit; empty: none, or withdrawn
    slo             the NodeSLO in force; None: not rendered
    policy          everything that the manager decided for it; None: nothing yet
    changes         newest last, at most five
    protection      evictions, interference, knobs and the agent's stops, newest last, at most eight
    contended       pods that are disturbed, with the signal
    sample          its newest report; None: none yet
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
    sample: NodeSample | None = None


def node_story(
    name: str,
    spec: StoredEvent | None,
    policy: Iterable[StoredEvent],
    state: Iterable[StoredEvent],
    sample: NodeSample | None,
) -> NodeStory:
    """The story of a node.

    spec      newest event of `nodespec.<n>`
    policy    events of `nodepolicy.<n>`; state: of `nodestate.<n>`; both in order
    sample    of its newest report
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
    allocatable: dict[str, int] = {}
    if isinstance(registered, NodeSpecAdded | NodeSpecChanged):
        allocatable = parse_amounts(registered.object.status.allocatable)
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
        sample=sample,
    )


def sample_of(report: NodeUsageReported) -> NodeSample | None:
    """The sample of a report; None: it has no usage yet."""
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
                f"{event.signal} of {event.pod_uid} ended after {duration_text(event.lasted_seconds)}",
            )
        case KnobsChanged():
            most = ", ".join(f"{change.knob} {change.old} -> {change.new}" for change in event.changes[:2])
            lost = sum(len(change.lost) for change in event.changes)
            what = "knobs"
            how = f"{event.failed} refused, {lost} plans lost"
            sentence = f"{event.writes} writes in {duration_text(event.seconds)} ({how}): {most}"
        case AgentStopped():
            what, sentence = "stopped", f"the agent stopped; {len(event.left)} knobs of classes stay as they are"
        case _:
            return None
    return Protection(at=stored.occurred_at, position=stored.seq, what=what, sentence=sentence)


def _change(stored: StoredEvent, old_us: int, new_us: int, reason: str, terms: dict[str, int]) -> Change:
    return Change(at=stored.occurred_at, position=stored.seq, old_us=old_us, new_us=new_us, reason=reason, terms=terms)
