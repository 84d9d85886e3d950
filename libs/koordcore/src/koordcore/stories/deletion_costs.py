"""Changes of the deletion costs of pods by rounds of the descheduler, and what became of them, for the audit.

Source:
    descheduler spec, 9.2 (4), 12
"""

from collections.abc import Iterator

from koordcore.events.descheduling.decisions import DeletionCostsCarriedOut, DeletionCostsDecided
from koordcore.protocol import keys
from koordcore.stories.round_acts import RoundAct


def cost_acts(
    event: DeletionCostsDecided | DeletionCostsCarriedOut, decided: DeletionCostsDecided | None
) -> Iterator[RoundAct]:
    """Yield one act per pod whose deletion cost is to be changed, or was changed or not.

    Args:
        event: The fact.
        decided: The changes that are decided and not carried out before the fact; None if there are none.
    """
    refused = event.refused if isinstance(event, DeletionCostsCarriedOut) else None
    costs = event if isinstance(event, DeletionCostsDecided) else decided
    if costs is None:
        return
    for cost in costs.costs:
        reason = "" if refused is None else refused.get(cost.uid, "")
        decision = "allowed" if refused is None else "failed" if reason else "done"
        fields = {
            "round": costs.started_at,
            "profile": costs.profile,
            "plugin": costs.plugin,
            "namespace": cost.namespace,
            "pod": cost.name,
            "uid": cost.uid,
            "node": cost.node,
            "reasons": [reason] if reason else [],
            "before": {keys.POD_DELETION_COST: cost.before},
            "after": {keys.POD_DELETION_COST: cost.after},
        }
        yield RoundAct("patch_deletion_cost", decision, fields)
