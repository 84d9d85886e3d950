"""What facts of the descheduler's rounds, each about many pods, say about one pod: ranks, and why it stays.

Source:
    descheduler spec, 9.2 (4), 12
"""

from typing import TypeAlias

from koordcore.events.descheduling.decisions import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    RefusalsChanged,
    RefusedMove,
)

OfRound: TypeAlias = DeletionCostsDecided | DeletionCostsCarriedOut | RefusalsChanged


def round_sentence(event: OfRound, uid: str) -> str | None:
    """Return what a fact says about one pod; None if it says nothing about it.

    Args:
        event: The fact.
        uid: Uid of the pod.
    """
    if isinstance(event, RefusalsChanged):
        of_pod = [each for each in event.refused if each.move.uid == uid]
        asked = "; ".join(_refusal(each) for each in of_pod)
        return f"not evicted in round {of_pod[0].move.round}: {asked}" if of_pod else None
    if isinstance(event, DeletionCostsCarriedOut):
        return f"not changed: {event.refused[uid]}" if uid in event.refused else None
    ranked = f"ranked by {event.plugin} (profile {event.profile})"
    return next((f"{each.before or 'none'} -> {each.after}, {ranked}" for each in event.costs if each.uid == uid), None)


def _refusal(refused: RefusedMove) -> str:
    move = refused.move
    numbers = {code: f" ({each.value} of {each.limit})" for code, each in move.inputs.items()}
    reasons = ", ".join(f"{code}{numbers.get(code, '')}" for code in refused.codes)
    return f"plugin {move.plugin} (profile {move.profile}) asked for it; refused: {reasons}"
