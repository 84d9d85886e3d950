"""What `koord replay --rerun-manager` says of admission."""

from collections.abc import Iterator

from koord_manager.domain.what_if.admission import AdmissionFate
from koord_manager.domain.what_if.admission_outcome import Outcome

from koordctl.render.output import console, show_table
from koordctl.what_if.admission import AdmissionComparison, differing_fields, title

_MOST_NAMED = 20
_MOST_LETTERS = 60


def show_admission(found: AdmissionComparison) -> None:
    """How many were decided again, what differs, and the objects. Nothing where nothing was recorded."""
    tally = found.tally
    if not tally.recorded and not found.not_judged:
        return
    console.print(
        f"{tally.recorded:,} decisions of admission recorded, {tally.anew:,} anew, {tally.same:,} alike",
        highlight=False,
    )
    if tally.not_kept:
        console.print(
            f"{tally.not_kept:,} of them were not taken again: what they were decided on is not kept", highlight=False
        )
    if found.not_judged:
        console.print(
            f"{found.not_judged:,} pods came in otherwise than the profiles of that time say: no webhook was asked, or"
            " its verdict is lost",
            highlight=False,
        )
    if found.unexplained:
        show_table(["with what was in force", "", "decided", "why"], _rows(found.unexplained))
    if not found.fates:
        return
    show_table(
        ["what differs", "objects"],
        [
            ["changed differently", len(found.changed)],
            ["refused instead of let in", len(found.refused)],
            ["let in instead of refused", len(found.let_in)],
            ["refused by other rules", len(found.refused_otherwise)],
        ],
    )
    judged = [*found.refused, *found.let_in, *found.refused_otherwise]
    if judged:
        show_table(["object", "", "decided", "why"], _rows(judged))
    if found.changed:
        show_table(["object", "", "decided", "why"], _rows(found.changed))
        fields = sorted(differing_fields(found.changed).items(), key=lambda one: (-one[1], one[0]))
        rows = [[field, _cut(before), _cut(after), count] for (field, before, after), count in fields[:_MOST_NAMED]]
        show_table(["field", "recorded", "anew", "objects"], rows)
    if max(len(judged), len(found.changed)) > _MOST_NAMED:
        console.print("and more: -o json", highlight=False)


def _rows(fates: list[AdmissionFate]) -> Iterator[list[str]]:
    for fate in fates[:_MOST_NAMED]:
        yield [title(fate), "recorded", *_said(fate.recorded)]
        yield ["", "anew", *_said(fate.anew)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def _said(outcome: Outcome) -> tuple[str, str]:
    if not outcome.allowed:
        return "refused", outcome.message or ", ".join(outcome.rules)
    return ("changed", ", ".join(outcome.steps)) if outcome.steps else ("let in", "-")
