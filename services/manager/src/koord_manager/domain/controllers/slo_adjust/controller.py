"""Assess the health of all nodes, limit the number of lowered nodes, and record what changed.

The next assessment of a node starts from the log, so it continues after a restart and is the same in a replay. Small
changes of the abnormality are not recorded; the next run finds them again.

Source:
    manager spec, 16.2 to 16.4
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import msgspec
from koordcore.events.envelope import Draft, name_from_token
from koordcore.events.nodepolicy import SLO_ADJUST, MassAbnormalityChanged, NodeHealthAssessed
from koordcore.protocol import keys
from koordcore.protocol.config.sections import SectionName
from koordcore.state.aggregates import ControllerState, NodeHealth, NodePolicyState
from koordcore.values import codec

from koord_manager.domain.cluster.amounts import node_capacity
from koord_manager.domain.cluster.nodes import is_told
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import HEALTH
from koord_manager.domain.controllers.configuration import (
    NodeInputs,
    NodePolicies,
    SloAdjustPolicy,
    policy_draft,
    present_inputs,
)
from koord_manager.domain.controllers.node_resources.decide import degradation
from koord_manager.domain.controllers.slo_adjust import assessment
from koord_manager.domain.controllers.slo_adjust.assessment import Guarded, NodeWeight, guard_weights, node_signals
from koord_manager.domain.controllers.slo_adjust.facts import (
    health_text,
    healthy_again,
    is_adjusted,
    switched_off_drafts,
)

SMALLEST_MOVE: Final = 0.001
"""Smallest change of the abnormality that is recorded."""
WRITTEN_WEIGHT_STEP: Final = 5
LOOKS_AT_ONCE: Final = 200
"""Nodes evaluated in one cycle."""
_EXAMPLES: Final = 10
_OPTED_OUT: Final = "false"


class Seen(NamedTuple):
    """The assessment of one node in one run, with its inputs."""

    at: NodeInputs
    found: assessment.Assessment | None  # None for a node that is excluded from health and counts as healthy
    signals: dict[str, float]  # name of a signal -> measured value
    stale: bool  # whether the usage report of the node is missing or too old


class HealthController:
    """Assesses the health of all nodes every `intervalSeconds`.

    All results are facts in the log. So a new leader starts without any other state.
    """

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._reset_at: datetime | None = None
        """When no lowered node was found after health was switched off; None if one was found or nobody has looked."""
        self._is_looking = False
        self._seen: dict[str, Seen] = {}

    def drafts(self, policies: NodePolicies, view: ManagerView, now: datetime) -> list[Draft]:
        """Continue the run, and return its facts when it is complete; otherwise return an empty list.

        Each cycle assesses a part of the nodes, so that a large cluster does not block other tasks. If a node cannot
        be assessed, its health stays.
        """
        policy = policies.slo_adjust
        if not policy.enable:
            return self._switched_off(policy, view, now)
        self._reset_at = None
        queue = view.queue
        if not self._is_looking:
            if self._last is not None and (now - self._last).total_seconds() < policy.interval_seconds:
                return []
            self._last = now
            self._is_looking, self._seen = True, {}
            queue.resync(HEALTH, view.nodes())
        for token in queue.take(HEALTH, LOOKS_AT_ONCE):
            at = present_inputs(policies, view, token, now)
            if at is None:
                queue.forget(HEALTH, token)
                continue
            look = queue.attempt(HEALTH, token, partial(look_at_health, at))
            if look is not None:
                self._seen[token] = look
        if queue.depth(HEALTH):
            return []
        self._is_looking = False
        present = {token: look for token, look in self._seen.items() if view.node(token) is not None}
        return health_drafts(policies.slo_adjust, view, present)

    def _switched_off(self, policy: SloAdjustPolicy, view: ManagerView, now: datetime) -> list[Draft]:
        """Return the facts that reset all lowered nodes. What the log does not store is returned again.

        If there is none, look again every `intervalSeconds`, because another leader may have lowered nodes meanwhile.
        """
        self._is_looking, self._seen = False, {}
        if self._reset_at is not None and (now - self._reset_at).total_seconds() < policy.interval_seconds:
            return []
        view.queue.take(HEALTH)
        drafts = switched_off_drafts(view)
        self._reset_at = None if drafts else now
        return [draft for draft in drafts if not view.queue.is_backing_off(HEALTH, draft.ref.id)]


def health_drafts(policy: SloAdjustPolicy, view: ManagerView, seen: Mapping[str, Seen]) -> list[Draft]:
    """Return the facts of one complete run: the changed health of nodes.

    A further fact follows if it changed whether more nodes look abnormal than `maxAbnormalRatio` permits to lower.
    """
    guarded = guard(policy, seen)
    drafts = [
        policy_draft(view, token, event)
        for token, look in seen.items()
        if (event := health_event(look, guarded.weights[token])) is not None
    ]
    state = view.state.of_kind(ControllerState).get(SLO_ADJUST.id)
    if guarded.is_mass_abnormal != (state is not None and state.mass_abnormal):
        event = MassAbnormalityChanged(
            active=guarded.is_mass_abnormal,
            abnormal=len(guarded.abnormal),
            cap=guarded.cap,
            nodes=len(seen),
            examples=[name_from_token(token) for token in guarded.abnormal[:_EXAMPLES]],
        )
        drafts.append(Draft(SLO_ADJUST, event, view.state.last_seq(SLO_ADJUST)))
    return drafts


def guard(policy: SloAdjustPolicy, seen: Mapping[str, Seen]) -> Guarded:
    """Limit the number of nodes with a lowered weight to `maxAbnormalRatio` of the assessed nodes."""
    return guard_weights(
        policy.max_abnormal_ratio,
        [
            NodeWeight(
                token,
                look.found.state.abnormality if look.found else 0.0,
                look.found.weight if look.found else assessment.FULL_WEIGHT,
            )
            for token, look in seen.items()
        ],
    )


def offsets_of(health: NodeHealth | None) -> assessment.Offsets:
    """Return the percent points that health adds to the thresholds of a node, at most 0; zeros if it has no health."""
    return (
        assessment.Offsets(health.offsets.get("cpu", 0), health.offsets.get("memory", 0))
        if health
        else assessment.Offsets()
    )


def look_at_health(at: NodeInputs) -> Seen:
    published = at.published
    if published is not None and not is_told(at.view.state, at.token, published, NodeHealthAssessed):
        published = msgspec.structs.replace(published, health=None)  # that of an earlier node of the name
        at = at._replace(published=published)
    if at.node.metadata.labels.get(keys.SLO_ADJUST) == _OPTED_OUT:
        return Seen(at, None, {}, stale=False)
    evictions = at.view.evictions_by_agent(at.token)
    signals = node_signals(at.report, node_capacity(at.node), published, evictions, at.now)
    stale = degradation(at.report, at.policies.colocation(at.token, at.node), at.now) is not None
    found = assessment.assess(at.policies.slo_adjust, previous_state(published), signals, stale=stale)
    return Seen(at, found, signals, stale)


def previous_state(published: NodePolicyState | None) -> assessment.HealthState | None:
    health = published.health if published else None
    if health is None:
        return None
    return assessment.HealthState(
        health.abnormality, assessment.Level(health.level), offsets_of(health), health.healthy_rounds
    )


def health_event(look: Seen, reported: int) -> NodeHealthAssessed | None:
    """Return the event with the health of a node, or None if the published health is good enough.

    `reported` is the weight to publish, after the number of nodes with a lowered weight was limited.
    """
    before = look.at.published.health if look.at.published else None
    if look.found is None:
        return healthy_again(before) if before is not None and is_adjusted(before) else None
    state = look.found.state
    cause = _cause(before, look.found, reported)
    if cause is None:
        return None
    effective = assessment.effective_thresholds(look.at.policies.slo_adjust, state.offsets, base_thresholds(look.at))
    reasons = [*(("stale",) if look.stale else ()), *look.found.severities]
    offsets = {"cpu": state.offsets.cpu, "memory": state.offsets.memory}
    return NodeHealthAssessed(
        level=str(state.level),
        previous_level=before.level if before else "",
        abnormality=state.abnormality,
        weight=look.found.weight,
        reported_weight=reported,
        offsets=offsets,
        healthy_rounds=state.healthy_rounds,
        signals=look.signals,
        reasons=reasons,
        stale=look.stale,
        effective={
            "cpuReclaimThresholdPercent": effective.cpu_reclaim,
            "memoryReclaimThresholdPercent": effective.memory_reclaim,
            "cpuSuppressThresholdPercent": effective.cpu_suppress,
            "memoryEvictThresholdPercent": effective.memory_evict,
        },
        annotation=(
            health_text(str(state.level), reported, state.abnormality, reasons, offsets)
            if _is_worth_a_write(before, str(state.level), reported, offsets)
            else ""
        ),
        cause=cause,
        config_version=look.at.policies.version,
    )


def base_thresholds(at: NodeInputs) -> assessment.Thresholds:
    """Return the four thresholds of a node as configured, before health lowers them (manager spec, 16.4)."""
    colocation = at.policies.configured(at.token, at.node)
    threshold = at.policies.config.sections[SectionName.RESOURCE_THRESHOLD].strategy_for(at.node.metadata.labels)
    return assessment.Thresholds(
        colocation.cpu_reclaim_threshold_percent,
        colocation.memory_reclaim_threshold_percent,
        _percent(threshold, "cpuSuppressThresholdPercent"),
        _percent(threshold, "memoryEvictThresholdPercent"),
    )


def _percent(strategy: Mapping[str, object], field: str) -> int:
    value = strategy.get(field)
    return value if isinstance(value, int) else 0


def _cause(before: NodeHealth | None, found: assessment.Assessment, reported: int) -> str | None:
    """Return the cause to record the health of a node again, such as a changed level; None if the record stays.

    A node that was always healthy is not recorded.
    """
    state = found.state
    if before is None:
        if state.level is not assessment.Level.HEALTHY:
            return "level"
        return "smoothing" if state.abnormality >= SMALLEST_MOVE else None
    if str(state.level) != before.level:
        return "level"
    if state.offsets != offsets_of(before):
        return "offsets"
    if found.weight != before.weight and abs(found.weight - before.weight) >= WRITTEN_WEIGHT_STEP:
        return "weight"
    if (reported == found.weight) != (before.reported_weight == before.weight):
        return "guard"
    counts_rounds = state.offsets != assessment.Offsets() and state.healthy_rounds != before.healthy_rounds
    if counts_rounds or abs(state.abnormality - before.abnormality) >= SMALLEST_MOVE:
        return "smoothing"
    return None


def _is_worth_a_write(before: NodeHealth | None, level: str, weight: int, offsets: dict[str, int]) -> bool:
    """Return whether the annotation has to change: level or offsets differ, or the weight by at least 5."""
    if before is None or not before.annotation:
        return level != assessment.Level.HEALTHY or weight != assessment.FULL_WEIGHT or any(offsets.values())
    shown = codec.decode(before.annotation, dict[str, object])
    shown_weight = shown.get("weight")
    return (
        shown.get("level") != level
        or shown.get("offsets") != offsets
        or not isinstance(shown_weight, int)
        or abs(weight - shown_weight) >= WRITTEN_WEIGHT_STEP
    )
