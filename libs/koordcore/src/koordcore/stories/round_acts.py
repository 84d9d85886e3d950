"""Decisions of the descheduler's rounds for the audit: jobs to create, nodes to close, and what was refused.

The facts of the jobs, evictions and nodes themselves are the outcomes.

Source:
    descheduler spec, 5.1, 7.2, 12
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from koordcore.events.descheduling.decisions import (
    DryRunMovesChanged,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.stories.closed_nodes import closers

_REFUSED: Final = "the manager or the log refused it"


class RoundAct(NamedTuple):
    """A decision of a round, or the refusal of its effect.

    Attributes:
        action: `job_create`, `evict_request`, `cordon` or `patch_deletion_cost`, as in the audit.
        decision: `allowed`, `refused`, `done`, `failed` or `dry_run`.
        fields: Further fields of the audit record.
    """

    action: str
    decision: str
    fields: dict[str, Any]


def round_acts(
    event: RoundDecided | RoundMovesAdded | RoundCarriedOut | DryRunMovesChanged | RefusalsChanged,
    decided: list[RoundMove],
) -> Iterator[RoundAct]:
    """Yield one act for each decision of a round, or refused effect, that a fact records.

    An eviction without a job gives no act `allowed` here, because a fact of its own records it.

    Args:
        event: The fact.
        decided: The moves that the round has decided before the fact.
    """
    if isinstance(event, DryRunMovesChanged):
        for move in event.chosen:
            yield RoundAct("evict_request", "dry_run", {**_subject(move), "reasons": [move.reason]})
        return
    if isinstance(event, RefusalsChanged):
        for each in event.refused:
            reasons = [text for text in (*each.codes, each.text, each.move.reason) if text]
            yield RoundAct("evict_request", "refused", {**_subject(each.move), "reasons": reasons})
        return
    if isinstance(event, RoundCarriedOut):
        refused = frozenset(event.refused)
        for move in decided:
            if move.uid in refused:
                action = "job_create" if move.job else "evict_request"
                yield RoundAct(action, "failed", {**_subject(move), "reasons": [move.reason, _REFUSED]})
        return
    if isinstance(event, RoundDecided):
        for node, by in closers(event).items():
            after = {"spec.unschedulable": "true"}
            yield RoundAct("cordon", "allowed", {**by._asdict(), "node": node, "after": after})
    for move in event.moves:
        if move.job:
            yield RoundAct("job_create", "allowed", {**_subject(move), "reasons": [move.reason]})


def _subject(move: RoundMove) -> dict[str, Any]:
    return {
        "round": move.round,
        "profile": move.profile,
        "plugin": move.plugin,
        "namespace": move.namespace,
        "pod": move.name,
        "uid": move.uid,
        "node": move.node,
        "job": move.job,
        "inputs": move.inputs,
    }
