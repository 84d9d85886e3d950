"""Assess the health of nodes in a re-run.

If `slo-adjust-config` is the recorded one, each recorded assessment is repeated with its signals. With another one,
`TriedHealth` assesses all nodes at its own interval.

Source:
    manager spec, 16
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple, cast

import msgspec
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.management.adjustment import MassAbnormalityChanged, NodeHealthAssessed
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.configuration.node_policies import NodePolicies
from koord_manager.domain.slo_adjust.controller import (
    Seen,
    guard,
    health_draft,
    healthy_again,
    is_adjusted,
    look_at_health,
    previous_state,
)
from koord_manager.domain.slo_adjust.guard import NodeWeight, guard_weights
from koord_manager.domain.slo_adjust.step import FULL_WEIGHT, assess

OFF: Final = "off"
CHANGES_THRESHOLDS: Final = frozenset(("level", "offsets", OFF))
PoliciesInForce = Mapping[str, NodePolicyState]


class HealthStep(NamedTuple):
    """In a re-run: the token of a node, and the event with the health that its assessment gives."""

    token: str
    event: NodeHealthAssessed


def step_again(
    policies: NodePolicies,
    view: ManagerView,
    token: str,
    published: NodePolicyState | None,
    recorded: NodeHealthAssessed,
) -> NodeHealthAssessed | None:
    """Return the assessment of a node from the recorded signals, or None if nothing changes.

    The limit on the number of lowered nodes applies as recorded.
    """
    if recorded.cause == OFF:
        before = published.health if published else None
        return healthy_again(before) if before is not None and is_adjusted(before) else None
    node, policy = view.node(token), policies.slo_adjust
    if node is None or not policy.enable:
        return None
    found = assess(policy, previous_state(published), recorded.signals, stale=recorded.stale)
    reported = recorded.reported_weight if found.weight == recorded.weight else found.weight
    seen = Seen(node, published, found, recorded.signals, recorded.stale)
    draft = health_draft(policies, policy, view, token, seen, reported)
    return cast("NodeHealthAssessed", draft.event) if draft is not None else None


def repeat_guard(
    policies: NodePolicies, view: ManagerView, in_force: PoliciesInForce, recorded: MassAbnormalityChanged
) -> MassAbnormalityChanged:
    """Return whether more nodes look abnormal than may be lowered, for the present policies of the re-run.

    The names of example nodes are taken from the recording.
    """
    tokens = view.nodes()
    if not policies.slo_adjust.enable:
        return MassAbnormalityChanged(active=False, abnormal=0, cap=0, nodes=len(tokens))
    weights: list[NodeWeight] = []
    for token in tokens:
        health = policy.health if (policy := in_force.get(token)) is not None else None
        weights.append(
            NodeWeight(token, health.abnormality if health else 0.0, health.weight if health else FULL_WEIGHT)
        )
    guarded = guard_weights(policies.slo_adjust.max_abnormal_ratio, weights)
    return MassAbnormalityChanged(
        active=guarded.is_mass_abnormal,
        abnormal=len(guarded.abnormal),
        cap=guarded.cap,
        nodes=len(tokens),
        examples=recorded.examples,
    )


class TriedHealth:
    """Assesses all nodes of a re-run under another `slo-adjust-config`, from the reports that the stream still has.

    Attributes:
        mass_abnormal: Whether more nodes look abnormal than may be lowered, or None before the first assessment.
    """

    def __init__(self, view: ManagerView, policies: NodePolicies) -> None:
        self.mass_abnormal: bool | None = None
        self._view = view
        self._policies = policies
        self._last: datetime | None = None

    def is_tried(self, in_force: NodePolicies) -> bool:
        """Return whether the tried `slo-adjust-config` differs from the one in force."""
        return self._policies.slo_adjust != in_force.slo_adjust

    def is_due(self, now: str) -> bool:
        """Return whether the interval since the last assessment has passed."""
        return (
            self._last is None
            or (datetime.fromisoformat(now) - self._last).total_seconds() >= self._policies.slo_adjust.interval_seconds
        )

    def round(
        self, in_force: PoliciesInForce, newest: Mapping[str, NodeUsageReported], now: str
    ) -> Iterator[HealthStep]:
        """Yield the new health of every node with a report that changes.

        If health is switched off, every lowered node becomes healthy.

        Args:
            in_force: The policies of nodes.
            newest: Node token -> its newest report.
            now: The time.
        """
        self._last = datetime.fromisoformat(now)
        policies, policy, view = self._policies, self._policies.slo_adjust, self._view
        if not policy.enable:
            self.mass_abnormal = False
            for token in view.nodes():
                health = published.health if (published := in_force.get(token)) is not None else None
                if health is not None and is_adjusted(health):
                    yield HealthStep(token, healthy_again(health))
            return
        seen = {
            token: look_at_health(policies, policy, view, token, in_force.get(token), newest[token], self._last)
            for token in view.nodes()
            if token in newest
        }
        guarded = guard(policy, seen)
        self.mass_abnormal = guarded.is_mass_abnormal
        for token, look in seen.items():
            draft = health_draft(policies, policy, view, token, look, guarded.weights[token])
            if draft is not None:
                yield HealthStep(token, cast("NodeHealthAssessed", draft.event))


def is_alike(found: MassAbnormalityChanged, recorded: MassAbnormalityChanged) -> bool:
    """Return whether two results about abnormal nodes are equal, apart from the examples."""
    return msgspec.structs.replace(found, examples=[]) == msgspec.structs.replace(recorded, examples=[])
