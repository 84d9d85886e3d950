"""The facts about the health of a node: the text of its annotation, and the fact that ends its health.

Health ends if it is switched off, if the node is excluded, and if the node was deleted and another one has its name.

Source:
    manager spec, 16.4
"""

from koordcore.events.envelope import Draft
from koordcore.events.nodepolicy import SLO_ADJUST, MassAbnormalityChanged, NodeHealthAssessed
from koordcore.state.aggregates import ControllerState, NodeHealth
from koordcore.values import codec

from koord_manager.domain.cluster.nodes import is_told
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.configuration import policy_draft
from koord_manager.domain.controllers.slo_adjust import assessment


def health_text(level: str, weight: int, abnormality: float, reasons: list[str], offsets: dict[str, int]) -> str:
    """Return the JSON text of the node's annotation `slo-health`.

    Args:
        weight: Weight of the node, of 100.
        abnormality: Smoothed abnormality, from 0 to 1.
        reasons: Names of the signals above their lower bound, worst first.
        offsets: `cpu` and `memory` -> percent points that are added to thresholds, at most 0.
    """
    shown = {
        "level": level,
        "weight": weight,
        "abnormality": round(abnormality, 2),
        "reasons": reasons,
        "offsets": offsets,
    }
    return codec.encode(shown).decode()


def is_adjusted(health: NodeHealth) -> bool:
    """Return whether the health of a node has an effect: a level other than Healthy, a lower weight or threshold."""
    return (
        health.level != assessment.Level.HEALTHY
        or health.reported_weight != assessment.FULL_WEIGHT
        or any(health.offsets.values())
    )


def healthy_again(before: NodeHealth | None) -> NodeHealthAssessed:
    """Return the event that a node is healthy: full weight and no lowered threshold.

    Its cause is "off": health is off for the node, or it was the health of an earlier node of the name.
    """
    offsets = {"cpu": 0, "memory": 0}
    return NodeHealthAssessed(
        level=str(assessment.Level.HEALTHY),
        previous_level=before.level if before else "",
        abnormality=0.0,
        weight=assessment.FULL_WEIGHT,
        reported_weight=assessment.FULL_WEIGHT,
        offsets=offsets,
        annotation=health_text(str(assessment.Level.HEALTHY), assessment.FULL_WEIGHT, 0.0, [], offsets),
        cause="off",
    )


def reset_drafts(view: ManagerView, token: str) -> list[Draft]:
    """Return the fact that a node which returned is healthy, if an earlier node of its name was left unhealthy.

    The fact is due also while health is switched off, because a deleted node is not reset then.
    """
    published = view.policy(token)
    health = published.health if published is not None else None
    if view.node(token) is None or health is None or not is_adjusted(health):
        return []
    if is_told(view.state, token, published, NodeHealthAssessed):
        return []
    return [policy_draft(view, token, healthy_again(health))]


def switched_off_drafts(view: ManagerView) -> list[Draft]:
    """Return the facts that reset every lowered node after health was switched off."""
    drafts: list[Draft] = []
    for token in view.nodes():
        published = view.policy(token)
        if published is not None and published.health is not None and is_adjusted(published.health):
            drafts.append(policy_draft(view, token, healthy_again(published.health)))
    state = view.state.of_kind(ControllerState).get(SLO_ADJUST.id)
    if state is not None and state.mass_abnormal:
        event = MassAbnormalityChanged(active=False, abnormal=0, cap=0, nodes=len(view.nodes()))
        drafts.append(Draft(SLO_ADJUST, event, state.seq))
    return drafts
