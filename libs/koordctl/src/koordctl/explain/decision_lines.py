"""The lines that show one decision of the scheduler: considered nodes, reasons, scores and suggestions.

No two lines have the same content. This module is pure.
"""

from collections.abc import Sequence
from typing import Final

from koordcore.events.explanations import Diagnosis, PreemptionDiagnosis
from koordcore.events.pod import PlacementExplanation
from koordcore.stories.pod import victims_text

TOP: Final = 3
NODES_NAMED: Final = 5
VICTIMS_SUGGESTION: Final = "WaitingVictimReleased"
"""The suggestion to wait for the victims, which the preemption line already contains."""
_PREEMPTION_PART: Final = " preemption: "


def headline(message: str, diagnosis: Diagnosis | None) -> str:
    """Return the message of an explanation for the first line.

    The outcome of preemption is cut off if the diagnosis repeats it. What follows it, such as the number of
    Reservations that match, stays.
    """
    if diagnosis is None or diagnosis.preemption is None:
        return message
    reasons, _, rest = message.partition(_PREEMPTION_PART)
    failed = diagnosis.preemption.failed_message
    notes = rest.removeprefix(failed) if failed else ""
    return f"{reasons}{notes}"


def explanation_lines(found: PlacementExplanation, diagnosis: Diagnosis | None = None) -> list[str]:
    """Return the lines about the considered nodes: how many, why nodes were excluded, and the best scores.

    Args:
        found: The explanation.
        diagnosis: Diagnosis of the same attempt. Its failures replace the exclusions, which say the same by node.
    """
    lines = [f"{found.nodes_considered} nodes considered, {found.nodes_feasible} feasible"]
    if diagnosis is not None:
        lines += diagnosis_lines(diagnosis)
    if diagnosis is None or not diagnosis.failures:
        for exclusion in found.exclusions:
            if exclusion.excluded:
                reasons = ", ".join(f"{count} {reason}" for reason, count in _most_first(exclusion.reasons))
                lines.append(f"{exclusion.plugin} excluded {exclusion.excluded}: {reasons}")
    for place, score in enumerate(found.top[:TOP], 1):
        parts = " + ".join(f"{plugin} {value}" for plugin, value in _most_first(score.parts) if value) or "0"
        lines.append(f"score {place}. {score.node} {score.total} = {parts}")
    return lines


def basis_line(found: PlacementExplanation) -> str:
    """Return the line about the decision basis: positions of facts and reports, and the policy version."""
    facts, samples = found.based_on.ev, found.based_on.obs
    observed = f", observations up to {samples}" if samples else ""
    return f"based on facts up to {facts}{observed}, policy {found.policy_version}"


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the lines about why no node fits, whether preemption could help, and what the user can change."""
    lines: list[str] = []
    if diagnosis.pre_filter_message:
        lines.append(f"before filtering: {diagnosis.pre_filter_message}")
        lines += [f"  {detail}" for detail in diagnosis.pre_filter_details]
    for failure in diagnosis.failures:
        shown = ", ".join(failure.nodes[:NODES_NAMED])
        more = f" and {failure.count - NODES_NAMED} more" if failure.count > NODES_NAMED else ""
        helps = "removing pods may help" if failure.preempt_might_help else "removing pods does not help"
        lines.append(f"{failure.count} x {failure.plugin}: {failure.reason} ({helps}): {shown}{more}")
        lines += [f"  {detail}" for detail in failure.details]
    if diagnosis.already_waiting:
        nodes = ", ".join(f"{node} {count}" for node, count in sorted(diagnosis.waiting_on.items()))
        lines.append(f"{diagnosis.already_waiting} pods of its gang group wait at Permit: {nodes}")
    if not diagnosis.is_root_cause:
        lines.append("it failed because its gang group had failed before")
    preemption, suggestion = diagnosis.preemption, diagnosis.suggestion
    if preemption is not None:
        lines += _preemption_lines(preemption)
    displaces = preemption is not None and bool(preemption.victims)
    if suggestion is not None and not (displaces and suggestion.type == VICTIMS_SUGGESTION):
        lines.append(f"suggestion: {suggestion.message} ({suggestion.type})")
    return lines


def _preemption_lines(preemption: PreemptionDiagnosis) -> list[str]:
    if preemption.victims:
        outcome = f"{preemption.node} is free after {victims_text(preemption.victims)} left"
        return [f"preemption: {outcome} ({preemption.plugin}, {preemption.examined} nodes tried)"]
    return [f"preemption: {preemption.failed_message}"] if preemption.failed_message else []


def _most_first(counts: dict[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
