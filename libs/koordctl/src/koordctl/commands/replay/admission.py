"""The lines of `koord replay --rerun-manager` about admission."""

from collections.abc import Iterator

from koord_manager.domain.what_if.admission import AdmissionFate
from koord_manager.domain.what_if.admission_outcome import Outcome

from koordctl.render.output import console, show_table
from koordctl.what_if.admission import AdmissionComparison, differing_fields, title

_MOST_NAMED = 20
_MOST_LETTERS = 60


def show_admission(found: AdmissionComparison) -> None:
    """Print how many admission decisions the re-run made, and the objects that it decided differently.

    Nothing is printed if the log contains no decision of admission.
    """
    tally = found.tally
    if not tally.recorded and not found.not_reviewed:
        return
    console.print(
        f"{tally.recorded:,} decisions of admission recorded; under the recorded profiles and gates,"
        f" {tally.rerun:,} were repeated and {tally.same:,} gave the recorded result",
        highlight=False,
    )
    if tally.not_retained:
        console.print(
            f"{tally.not_retained:,} of them were not repeated: their input is no longer retained", highlight=False
        )
    if found.not_reviewed:
        console.print(
            f"{found.not_reviewed:,} pods lack the changes of the recorded profiles: no webhook was called, or"
            " the decision is no longer retained",
            highlight=False,
        )
    if found.unexplained:
        show_table(["with the recorded settings", "", "decision", "reason"], _rows(found.unexplained))
    if not found.fates:
        return
    show_table(
        ["what differs", "objects"],
        [
            ["changed differently", len(found.changed)],
            ["denied instead of admitted", len(found.denied)],
            ["admitted instead of denied", len(found.admitted)],
            ["denied by other rules", len(found.denied_by_other_rules)],
        ],
    )
    denied = [*found.denied, *found.admitted, *found.denied_by_other_rules]
    if denied:
        show_table(["object", "", "decision", "reason"], _rows(denied))
    if found.changed:
        show_table(["object", "", "decision", "reason"], _rows(found.changed))
        fields = sorted(differing_fields(found.changed).items(), key=lambda one: (-one[1], one[0]))
        rows = [[field, _cut(before), _cut(after), count] for (field, before, after), count in fields[:_MOST_NAMED]]
        show_table(["field", "recorded", "re-run", "objects"], rows)
    if max(len(denied), len(found.changed)) > _MOST_NAMED:
        console.print("more: -o json", highlight=False)


def _rows(fates: list[AdmissionFate]) -> Iterator[list[str]]:
    for fate in fates[:_MOST_NAMED]:
        yield [title(fate), "recorded", *_decision_and_reason(fate.recorded)]
        yield ["", "re-run", *_decision_and_reason(fate.rerun)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def _decision_and_reason(outcome: Outcome) -> tuple[str, str]:
    if not outcome.allowed:
        return "denied", outcome.message or ", ".join(outcome.rules)
    return ("changed", ", ".join(outcome.steps)) if outcome.steps else ("admitted", "-")
