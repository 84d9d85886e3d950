"""Counts for a pod that found no node: how many Reservations match it, and how many of them each rule forbids.

Source: scheduler-fine-grained spec, 3.5 (reasons of PostFilter).
"""

from collections.abc import Callable, Sequence
from typing import Final

from koord_scheduler.domain.plugins.reservation.entry import Entry
from koord_scheduler.domain.plugins.reservation.fit import PREFIX
from koord_scheduler.domain.plugins.reservation.matching import Match, untolerated
from koord_scheduler.domain.plugins.reservation.usable import Usable

_RULES: Final = (
    (Match.NAME_UNMATCHED, "didn't match the requested reservation name"),
    (Match.AFFINITY_UNMATCHED, "didn't match affinity rules"),
    (Match.UNSCHEDULABLE, "is unschedulable"),
    (Match.NOT_EXACT_MATCHED, "is not exact matched"),
)


def match_counts(
    usable: Usable, entry_of: Callable[[str], Entry | None], reasons_on: Callable[[int], Sequence[str]]
) -> list[str]:
    """Return phrases with numbers of Reservations: how many match the pod, and how many each rule forbids.

    Empty if no Reservation is for the pod and it requires none.

    Args:
        usable: The Reservations that are for the pod, with the result of the rules for each.
        entry_of: Returns the Reservation with a uid.
        reasons_on: Returns why the node at a position refuses the pod with its Reservations there.
    """
    results = {uid: result for uid, result in usable.results.items() if result is not Match.IGNORED}
    affinity = usable.wish.affinity
    if not results and affinity is None:
        return []
    phrases: list[tuple[int, str]] = []
    if affinity is not None and affinity.name:
        named = sum(result is not Match.NAME_UNMATCHED for result in results.values())
        phrases.append((named, "exactly matches the requested reservation name"))
    phrases += [(sum(result is rule for result in results.values()), text) for rule, text in _RULES]
    taints: dict[str, int] = {}
    for uid, result in results.items():
        entry = entry_of(uid) if result is Match.TAINT_UNTOLERATED else None
        taint = untolerated(usable.wish, entry.terms) if entry is not None and entry.terms is not None else None
        if taint is not None:
            text = f"had untolerated taint {{{taint.key}: {taint.value}}}"
            taints[text] = taints.get(text, 0) + 1
    phrases += [(count, text) for text, count in sorted(taints.items())]
    by_node: dict[str, int] = {}
    for row, there in usable.by_row.items():
        reasons = reasons_on(row)
        of_reservations = sum(reason.startswith(PREFIX) for reason in reasons)
        for reason in reasons:
            if not reason.startswith(PREFIX):
                by_node[reason] = by_node.get(reason, 0) + len(there) - of_reservations
    phrases += [(count, f"for node reason that {reason}") for reason, count in sorted(by_node.items())]
    phrases.append((len(results), "matched owner total"))
    return [f"{count} {PREFIX}{text}" for count, text in phrases if count > 0]
