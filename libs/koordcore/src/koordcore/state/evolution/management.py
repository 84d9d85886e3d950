"""Apply events of the manager: node policies, health, quotas of profiles, recommendations."""

from typing import Any, Final

import msgspec

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.nodepolicy import (
    MassAbnormalityChanged,
    NodeDevicesComputed,
    NodeHealthAssessed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.events.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.state.aggregates import (
    ControllerState,
    NodeHealth,
    NodePolicyState,
    QuotaProfileState,
    RecommendationState,
)
from koordcore.state.fold import Evolve, dropped


def _policy(state: NodePolicyState | None, at: StoredEvent, **changed: Any) -> NodePolicyState:
    return msgspec.structs.replace(state or NodePolicyState(seq=at.seq), seq=at.seq, **changed)


def _overcommit_computed(
    state: NodePolicyState | None, event: NodeOvercommitComputed, at: StoredEvent
) -> NodePolicyState:
    return _policy(
        state,
        at,
        batch_cpu_milli=event.batch_cpu_milli,
        batch_memory_bytes=event.batch_memory_bytes,
        reason=event.reason,
        terms=event.terms,
        computed_at=at.occurred_at,
        mid_cpu_milli=event.mid_cpu_milli,
        mid_memory_bytes=event.mid_memory_bytes,
        mid_terms=event.mid_terms,
        normalization=event.normalization,
        origin=event.origin,
        third_party=event.third_party,
        zones=event.zones,
        overcommit_seq=at.seq,
    )


def _slo_rendered(state: NodePolicyState | None, event: NodeSloRendered, at: StoredEvent) -> NodePolicyState:
    return _policy(state, at, slo=event.spec, slo_config_version=event.config_version, slo_fault=event.fault)


def _metric_policy_rendered(
    state: NodePolicyState | None, event: NodeMetricPolicyRendered, at: StoredEvent
) -> NodePolicyState:
    return _policy(state, at, metric_policy=event.spec)


def _ratios_computed(state: NodePolicyState | None, event: NodeRatiosComputed, at: StoredEvent) -> NodePolicyState:
    kept = state.cpu_normalization if state else None
    return _policy(
        state,
        at,
        cpu_normalization=kept if event.cpu_normalization is None else event.cpu_normalization,
        amplification=event.amplification,
        ratio_faults=event.faults,
        ratios_computed=True,
    )


def _devices_computed(state: NodePolicyState | None, event: NodeDevicesComputed, at: StoredEvent) -> NodePolicyState:
    return _policy(
        state, at, devices=event.resources, device_labels=event.labels, devices_computed=True, devices_seq=at.seq
    )


def _health_assessed(state: NodePolicyState | None, event: NodeHealthAssessed, at: StoredEvent) -> NodePolicyState:
    before = state.health if state else None
    return _policy(
        state,
        at,
        health=NodeHealth(
            level=event.level,
            abnormality=event.abnormality,
            weight=event.weight,
            reported_weight=event.reported_weight,
            offsets=event.offsets,
            healthy_rounds=event.healthy_rounds,
            reasons=event.reasons,
            effective=event.effective,
            annotation=event.annotation or (before.annotation if before else ""),
        ),
        health_seq=at.seq,
    )


def _quota_profile_rendered(
    state: QuotaProfileState | None, event: QuotaProfileRendered, at: StoredEvent
) -> QuotaProfileState:
    if event.fault and state is not None:
        return msgspec.structs.replace(state, seq=at.seq, fault=event.fault)
    return QuotaProfileState(
        seq=at.seq,
        quota_namespace=event.quota_namespace,
        quota_name=event.quota_name,
        labels=event.labels,
        annotations=event.annotations,
        min=event.min,
        max=event.max,
        fault=event.fault,
    )


def _recommendation_computed(
    _: RecommendationState | None, event: RecommendationComputed, at: StoredEvent
) -> RecommendationState:
    return RecommendationState(
        seq=at.seq,
        target=event.target,
        mode=event.mode,
        containers=event.containers,
        conditions=event.conditions,
        pods=event.pods,
        updated_at=at.occurred_at,
        spec_version=event.spec_version,
    )


OF_THE_MANAGER: Final[dict[type[Event], Evolve]] = {
    NodeOvercommitComputed: _overcommit_computed,
    NodeSloRendered: _slo_rendered,
    NodeMetricPolicyRendered: _metric_policy_rendered,
    NodeRatiosComputed: _ratios_computed,
    NodeDevicesComputed: _devices_computed,
    NodeHealthAssessed: _health_assessed,
    MassAbnormalityChanged: lambda _, event, at: ControllerState(seq=at.seq, mass_abnormal=event.active),
    QuotaProfileRendered: _quota_profile_rendered,
    QuotaProfileDropped: dropped,
    RecommendationComputed: _recommendation_computed,
    RecommendationDropped: dropped,
}
