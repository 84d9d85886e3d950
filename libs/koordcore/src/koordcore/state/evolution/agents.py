"""Apply events of node agents and CRI proxies."""

from typing import Final

import msgspec

from koordcore.events.criproxy import HookServerFailed, HookServersChanged, ProxyFactsDropped
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.nodestate import (
    AgentFactLeftOut,
    AgentStarted,
    AgentStopped,
    BeCpuReleased,
    BeCpuSuppressed,
    ContainerHookApplied,
    ContainerHookFailed,
    ContainersOomKilled,
    DeviceInventoryChanged,
    HookRegistrationChanged,
    InterferenceDetected,
    InterferenceEnded,
    KnobsChanged,
    NodeProblemsReported,
    NodeTopologyReported,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.state.aggregates import CriProxyState, NodeAgentState
from koordcore.state.fold import Evolve

# Maximum number of evictions in the state of an agent; the manager reads those of the last ten minutes.
MAX_EVICTIONS: Final = 32
_OF_BEST_EFFORT: Final = "BE"  # Begin of the names of the features that evict best-effort pods


def _agent_started(state: NodeAgentState | None, event: AgentStarted, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(
        base, seq=at.seq, host=event.host, started_at=at.occurred_at, starts=base.starts + 1, contended={}
    )


def _pods_started(state: NodeAgentState | None, event: PodsStarted, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, running=sorted({*base.running, *event.pods}))


def _pods_stopped(state: NodeAgentState | None, event: PodsStopped, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    gone = set(event.pods)
    evicting = {uid: reason for uid, reason in base.evicting.items() if uid not in gone} if base.evicting else {}
    running = sorted(set(base.running).difference(gone))
    return msgspec.structs.replace(base, seq=at.seq, running=running, evicting=evicting)


def _be_suppressed(state: NodeAgentState | None, event: BeCpuSuppressed, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, be_quota_us=event.new_quota_us, suppression_reason=event.reason)


def _be_released(state: NodeAgentState | None, event: BeCpuReleased, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, be_quota_us=-1, suppression_reason=event.reason)


def _interference_detected(
    state: NodeAgentState | None, event: InterferenceDetected, at: StoredEvent
) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    contended = {**base.contended, event.contention: f"{event.namespace}/{event.name} {event.signal}"}
    return msgspec.structs.replace(base, seq=at.seq, contended=contended)


def _interference_ended(state: NodeAgentState | None, event: InterferenceEnded, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    contended = {name: what for name, what in base.contended.items() if name != event.contention}
    return msgspec.structs.replace(base, seq=at.seq, contended=contended)


def _agent_evicted(state: NodeAgentState | None, event: PodsEvictedByAgent, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    evicting = {**base.evicting, **{pod.uid: f"{event.feature}: {event.reason}" for pod in event.pods}}
    recent = base.be_evictions
    if event.feature.startswith(_OF_BEST_EFFORT):
        recent = [*recent, (at.occurred_at, len(event.pods))][-MAX_EVICTIONS:]
    return msgspec.structs.replace(
        base, seq=at.seq, evicting=evicting, evicted=base.evicted + len(event.pods), be_evictions=recent
    )


def _agent_seen(state: NodeAgentState | None, _: Event, at: StoredEvent) -> NodeAgentState:
    """Only the position of the aggregate moves: the fact is for explanations."""
    return msgspec.structs.replace(state or NodeAgentState(seq=at.seq), seq=at.seq)


def _topology_reported(state: NodeAgentState | None, event: NodeTopologyReported, at: StoredEvent) -> NodeAgentState:
    return msgspec.structs.replace(state or NodeAgentState(seq=at.seq), seq=at.seq, topology=event)


def _devices_changed(state: NodeAgentState | None, event: DeviceInventoryChanged, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    before = {each.key: each.healthy for each in base.devices.devices} if base.devices is not None else {}
    since: dict[str, str] = {}
    for device in event.devices:
        is_same = device.key in before and before[device.key] == device.healthy
        since[device.key] = base.health_since[device.key] if is_same else at.occurred_at
    return msgspec.structs.replace(base, seq=at.seq, devices=event, health_since=since)


def _hook_servers_changed(state: CriProxyState | None, event: HookServersChanged, at: StoredEvent) -> CriProxyState:
    base = state or CriProxyState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, servers=event.servers)


def _hook_server_failed(state: CriProxyState | None, _: HookServerFailed, at: StoredEvent) -> CriProxyState:
    """Only the position of the aggregate moves: the fact is for the story of the pod."""
    return msgspec.structs.replace(state or CriProxyState(seq=at.seq), seq=at.seq)


def _proxy_facts_dropped(state: CriProxyState | None, event: ProxyFactsDropped, at: StoredEvent) -> CriProxyState:
    base = state or CriProxyState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, dropped=base.dropped + event.facts)


OF_AGENTS: Final[dict[type[Event], Evolve]] = {
    AgentStarted: _agent_started,
    AgentStopped: _agent_seen,
    AgentFactLeftOut: _agent_seen,
    NodeProblemsReported: _agent_seen,
    PodsStarted: _pods_started,
    PodsStopped: _pods_stopped,
    BeCpuSuppressed: _be_suppressed,
    BeCpuReleased: _be_released,
    KnobsChanged: _agent_seen,
    ContainersOomKilled: _agent_seen,
    ContainerHookApplied: _agent_seen,
    ContainerHookFailed: _agent_seen,
    HookRegistrationChanged: _agent_seen,
    HookServersChanged: _hook_servers_changed,
    HookServerFailed: _hook_server_failed,
    ProxyFactsDropped: _proxy_facts_dropped,
    PodsEvictedByAgent: _agent_evicted,
    InterferenceDetected: _interference_detected,
    InterferenceEnded: _interference_ended,
    NodeTopologyReported: _topology_reported,
    DeviceInventoryChanged: _devices_changed,
}
