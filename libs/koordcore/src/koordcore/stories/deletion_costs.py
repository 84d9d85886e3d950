"""Changes of the deletion costs of pods by rounds of the descheduler, and what became of them, for audit and stories.

Source:
    descheduler spec, 9.2 (4), 12
"""

from collections.abc import Iterator
from typing import NamedTuple

from koordcore.events.descheduling.decisions import DeletionCostsCarriedOut, DeletionCostsDecided, PodCost


class CostAct(NamedTuple):
    """The decision to change the deletion cost of one pod, or the outcome of the change.

    Attributes:
        cost: The change.
        decision: `allowed`, `done` or `failed`, as in the audit.
        reason: Why the pod keeps its deletion cost; "" if it does not.
    """

    cost: PodCost
    decision: str
    reason: str = ""


def cost_acts(
    event: DeletionCostsDecided | DeletionCostsCarriedOut, decided: DeletionCostsDecided | None
) -> Iterator[CostAct]:
    """Yield what a fact records, one act per pod.

    Args:
        event: The fact.
        decided: The changes that are decided and not carried out before the fact; None if there are none.
    """
    if isinstance(event, DeletionCostsDecided):
        yield from (CostAct(each, "allowed") for each in event.costs)
        return
    for each in decided.costs if decided is not None else ():
        reason = event.refused.get(each.uid, "")
        yield CostAct(each, "failed" if reason else "done", reason)


def cost_sentence(event: DeletionCostsDecided | DeletionCostsCarriedOut, uid: str) -> str | None:
    """Return what a fact says about one pod; None if it says nothing about it.

    Args:
        event: The fact.
        uid: Uid of the pod.
    """
    if isinstance(event, DeletionCostsCarriedOut):
        return f"not changed: {event.refused[uid]}" if uid in event.refused else None
    ranked = f"ranked by {event.plugin} (profile {event.profile})"
    return next((f"{each.before or 'none'} -> {each.after}, {ranked}" for each in event.costs if each.uid == uid), None)
