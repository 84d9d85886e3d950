"""Add the entries for pods that profiles match to a webhook configuration object.

    mpod-create           names us                            fails closed   installed
    mpod-create-others    names us not, and is not matched    fails open     installed; the last condition is added
    mpod-create-matched   names us not, and is matched        fails closed   added

The same holds for `vpod`. The manifests own what is installed, and the manager what it adds, so that `kubectl apply
--server-side` of the manifests meets no conflict. Without a matched pod, nothing is added. If the installed entry for
the others was removed, nothing is added either: all pods fail closed or open as the user wants it.

Source:
    decision 0055
"""

from collections.abc import Sequence
from typing import Final, cast

from koord_manager.domain.admission.concerned import NO_POD, Matched, negated
from koord_manager.domain.admission.request import JsonObject

_DOMAIN: Final = ".koordinator.sh"
_NAMES: Final = ("mpod-create", "vpod")
"""In the order of the fields of `Matched`."""
MATCHED: Final = "koordinator.sh-matched"
UNMATCHED: Final = "koordinator.sh-unmatched"


def without_matched(entries: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the entries as they were installed, without what `with_matched` adds."""
    added = {_named(name, "matched") for name in _NAMES}
    return [_without_condition(entry) for entry in entries if entry.get("name") not in added]


def with_matched(entries: Sequence[JsonObject], matched: Matched) -> list[JsonObject]:
    """Return installed entries with those for matched pods."""
    found = list(entries)
    for name, expression in zip(_NAMES, matched, strict=True):
        by_name = {entry.get("name"): number for number, entry in enumerate(found)}
        closed, opened = by_name.get(_named(name)), by_name.get(_named(name, "others"))
        if closed is None or opened is None or expression == NO_POD:
            continue
        conditions = _conditions(found[opened])
        added = {"name": MATCHED, "expression": expression}
        found.append({**found[closed], "name": _named(name, "matched"), "matchConditions": [*conditions, added]})
        rest = {"name": UNMATCHED, "expression": negated(expression)}
        found[opened] = {**found[opened], "matchConditions": [*conditions, rest]}
    return found


def matched_in(entries: Sequence[JsonObject]) -> Matched:
    """Return the expressions that `with_matched` has put into these entries."""
    expressions = {
        entry.get("name"): str(each.get("expression"))
        for entry in entries
        for each in _conditions(entry)
        if each.get("name") == MATCHED
    }
    return Matched(*(expressions.get(_named(name, "matched"), NO_POD) for name in _NAMES))


def _named(name: str, kind: str = "") -> str:
    return f"{name}-{kind}{_DOMAIN}" if kind else f"{name}{_DOMAIN}"


def _without_condition(entry: JsonObject) -> JsonObject:
    before = _conditions(entry)
    kept = [each for each in before if each.get("name") != UNMATCHED]
    if len(kept) == len(before):
        return entry
    rest = {field: value for field, value in entry.items() if field != "matchConditions"}
    return {**entry, "matchConditions": kept} if kept else rest


def _conditions(entry: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", entry.get("matchConditions") or [])
