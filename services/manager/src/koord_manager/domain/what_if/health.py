"""Assess the health of nodes in a what-if run.

If `slo-adjust-config` is the recorded one, each recorded assessment is repeated with its signals (`step_again`). If
another one is tried, `TriedHealth` assesses all nodes at the interval of the tried section.

Source:
    manager spec, 16
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from koordcore.events.nodepolicy import MassAbnormalityChanged, NodeHealthAssessed
from koordcore.events.observation import NodeUsageReported
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.configuration import NodeInputs, NodePolicies
from koord_manager.domain.controllers.slo_adjust import controller
from koord_manager.domain.controllers.slo_adjust.assessment import FULL_WEIGHT, NodeWeight, assess, guard_weights
from koord_manager.domain.controllers.slo_adjust.facts import healthy_again, is_adjusted

OFF: Final = "off"
CHANGES_THRESHOLDS: Final = frozenset(("level", "offsets", OFF))
PoliciesInForce = Mapping[str, NodePolicyState]


class HealthStep(NamedTuple):
    """A new health of one node (`token`) in a what-if run, and the event that would publish it."""

    token: str
    event: NodeHealthAssessed


def step_again(at: NodeInputs, recorded: NodeHealthAssessed) -> NodeHealthAssessed | None:
    """Repeat the recorded assessment of a node with its recorded signals; return its event, or None if nothing changes.

    If the computed weight is the recorded one, the recorded result of the limit on lowered nodes applies too.
    """
    published = at.published
    if recorded.cause == OFF:
        before = published.health if published else None
        return healthy_again(before) if before is not None and is_adjusted(before) else None
    policy = at.policies.slo_adjust
    if not policy.enable:
        return None
    found = assess(policy, controller.previous_state(published), recorded.signals, stale=recorded.stale)
    reported = recorded.reported_weight if found.weight == recorded.weight else found.weight
    return controller.health_event(controller.Seen(at, found, recorded.signals, recorded.stale), reported)


def repeat_guard(
    policies: NodePolicies, view: ManagerView, in_force: PoliciesInForce, recorded: MassAbnormalityChanged
) -> MassAbnormalityChanged:
    """Repeat the check whether more nodes look abnormal than may be lowered, with the health of the re-run.

    The names of example nodes are taken from the recorded event.
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
    """Assesses the health of all nodes in a what-if run that tries another `slo-adjust-config`.

    The inputs are the usage reports that the stream still has.
    """

    def __init__(self, view: ManagerView, policies: NodePolicies) -> None:
        # Whether, in the last assessment, more nodes looked abnormal than `maxAbnormalRatio` permits to lower. None
        # before the first assessment.
        self.mass_abnormal: bool | None = None
        self._view = view
        self._policies = policies
        self._last: datetime | None = None

    def is_due(self, now: str) -> bool:
        """Return whether `intervalSeconds` have passed since the last assessment, if any. `now`: RFC 3339."""
        return (
            self._last is None
            or (datetime.fromisoformat(now) - self._last).total_seconds() >= self._policies.slo_adjust.interval_seconds
        )

    def round(
        self, in_force: PoliciesInForce, newest: Mapping[str, NodeUsageReported], now: str
    ) -> Iterator[HealthStep]:
        """Assess all nodes with a report once, and yield each node whose health changes. `now`: RFC 3339.

        If the tried section switches health off, every unhealthy node becomes healthy.
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
            token: controller.look_at_health(
                NodeInputs(view, token, node, policies, in_force.get(token), newest[token], self._last)
            )
            for token in view.nodes()
            if token in newest and (node := view.node(token)) is not None
        }
        guarded = controller.guard(policy, seen)
        self.mass_abnormal = guarded.is_mass_abnormal
        for token, look in seen.items():
            event = controller.health_event(look, guarded.weights[token])
            if event is not None:
                yield HealthStep(token, event)


def is_alike(found: MassAbnormalityChanged, recorded: MassAbnormalityChanged) -> bool:
    """Return whether two results about abnormal nodes are equal, apart from the names of example nodes."""
    return msgspec.structs.replace(found, examples=[]) == msgspec.structs.replace(recorded, examples=[])
