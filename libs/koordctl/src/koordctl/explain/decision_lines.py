"""A scheduler's decision in a few lines: how many nodes, who refused them and why, who scored best, what would help.

Pure. What one line says, no other repeats.
"""

from collections.abc import Sequence
from typing import Final

from koordcore.events.scheduling.diagnosis import Diagnosis, PreemptionDiagnosis
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import Victim

TOP: Final = 3
NODES_NAMED: Final = 5
VICTIMS_SUGGESTION: Final = "WaitingVictimReleased"
"""The suggestion that says again what the preemption says: to wait for its victims."""
_PREEMPTION_PART: Final = " preemption: "


def headline(message: str, diagnosis: Diagnosis | None) -> str:
    """A verdict's message without its part on preemption, where the diagnosis tells of it."""
    told = diagnosis is not None and diagnosis.preemption is not None
    return message.partition(_PREEMPTION_PART)[0] if told else message


def explanation_lines(why: PlacementExplanation, diagnosis: Diagnosis | None = None) -> list[str]:
    """How many nodes, who excluded how many and why, the best scores and their parts, and what it was based on.

    diagnosis    of the same attempt; its failures are told instead of the exclusions: they say the same by node
    """
    lines = [f"{why.nodes_considered} nodes considered, {why.nodes_feasible} feasible"]
    if diagnosis is not None:
        lines += diagnosis_lines(diagnosis)
    if diagnosis is None or not diagnosis.failures:
        for exclusion in why.exclusions:
            if exclusion.excluded:
                reasons = ", ".join(f"{count} {reason}" for reason, count in _most_first(exclusion.reasons))
                lines.append(f"{exclusion.plugin} excluded {exclusion.excluded}: {reasons}")
    for place, score in enumerate(why.top[:TOP], 1):
        parts = " + ".join(f"{plugin} {value}" for plugin, value in _most_first(score.parts) if value) or "0"
        lines.append(f"score {place}. {score.node} {score.total} = {parts}")
    return lines


def basis_line(why: PlacementExplanation) -> str:
    """What was known when it was decided."""
    facts, samples = why.based_on.ev, why.based_on.obs
    observed = f", observations up to {samples}" if samples else ""
    return f"based on facts up to {facts}{observed}, policy {why.policy_version}"


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Why there is no node, node group by node group; what preemption could do; what would help."""
    lines: list[str] = []
    if diagnosis.pre_filter_message:
        lines.append(f"before any node: {diagnosis.pre_filter_message}")
    for failure in diagnosis.failures:
        shown = ", ".join(failure.nodes[:NODES_NAMED])
        more = f" and {failure.count - NODES_NAMED} more" if failure.count > NODES_NAMED else ""
        helps = "pods that leave may help" if failure.preempt_might_help else "no pod that leaves helps"
        lines.append(f"{failure.count} x {failure.plugin}: {failure.reason} ({helps}): {shown}{more}")
        lines += [f"  {detail}" for detail in failure.details]
    if diagnosis.already_waiting:
        nodes = ", ".join(f"{node} {count}" for node, count in sorted(diagnosis.waiting_on.items()))
        lines.append(f"{diagnosis.already_waiting} pods of gangs wait with a node: {nodes}")
    if not diagnosis.is_root_cause:
        lines.append("it fails because its gang group had failed already")
    preemption, suggestion = diagnosis.preemption, diagnosis.suggestion
    if preemption is not None:
        lines += _preemption_lines(preemption)
    displaces = preemption is not None and bool(preemption.victims)
    if suggestion is not None and not (displaces and suggestion.type == VICTIMS_SUGGESTION):
        lines.append(f"suggestion: {suggestion.message} ({suggestion.type})")
    return lines


def _preemption_lines(preemption: PreemptionDiagnosis) -> list[str]:
    if preemption.victims:
        found = f"{preemption.node} is free once {victims_text(preemption.victims)} left"
        return [f"preemption: {found} ({preemption.plugin}, {preemption.examined} nodes tried)"]
    return [f"preemption: {preemption.failed_message}"] if preemption.failed_message else []


def victims_text(victims: Sequence[Victim]) -> str:
    """`a and b have`, for a sentence; what violates a budget says so."""
    names = [
        f"{each.namespace}/{each.name}{' (against its disruption budget)' if each.violates_budget else ''}"
        for each in victims
    ]
    return f"{names[0]} has" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} have"


def _most_first(counts: dict[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
