"""Sentences from events of the descheduler's rounds about one pod: its rank, and why it stays on its node.

Source:
    descheduler spec, 9.2 (4), 12
"""

from typing import TypeAlias

from koordcore.events.descheduling.decisions import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    EvictionRefused,
)

OfRound: TypeAlias = DeletionCostsDecided | DeletionCostsCarriedOut | EvictionRefused


def round_sentence(event: OfRound, uid: str) -> str | None:
    """Return what an event says about one pod; None if it says nothing about it.

    Args:
        event: The event.
        uid: Uid of the pod.
    """
    if isinstance(event, EvictionRefused):
        return f"not evicted in round {event.move.round}: {_refusal(event)}" if event.move.uid == uid else None
    if isinstance(event, DeletionCostsCarriedOut):
        return f"not changed: {event.refused[uid]}" if uid in event.refused else None
    ranked = f"ranked by {event.plugin} (profile {event.profile})"
    return next((f"{each.before or 'none'} -> {each.after}, {ranked}" for each in event.costs if each.uid == uid), None)


def _refusal(refused: EvictionRefused) -> str:
    move = refused.move
    numbers = {code: f" ({each.value} of {each.limit})" for code, each in move.inputs.items()}
    reasons = ", ".join(f"{code}{numbers.get(code, '')}" for code in refused.codes)
    text = f" ({refused.text})" if refused.text else ""
    return f"plugin {move.plugin} (profile {move.profile}) asked for it; refused: {reasons}{text}"
