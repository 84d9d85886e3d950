"""Node selector terms, taints and tolerations of Kubernetes, evaluated for one node or one object.

Source: scheduler-core spec, 5.4 and 5.5.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from koordcore.protocol.objects import LabelSelectorRequirement, NodeSelectorTerm, Taint, Toleration

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT64: Final = 1 << 63
NAME_FIELD: Final = "metadata.name"


def is_met(requirement: LabelSelectorRequirement, value: str | None) -> bool:
    """Return whether a node with this value of the requirement's label meets the requirement. NotIn is met without the
    label. Gt and Lt are not met unless both sides are integers. `value`: the node's value of the label; None if the
    node does not have the label.

    Source: scheduler-core spec, 5.5.
    """
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            limit = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
            number = None if value is None else _integer(value)
            if limit is None or number is None:
                return False
            return number > limit if requirement.operator == "Gt" else number < limit
        case _:
            return False


def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def term_matches_one(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node with these labels and this name meets every expression of the term. False for a term
    without expressions, and for an expression about another field than `metadata.name`.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    return all(each.key == NAME_FIELD and is_met(each, name) for each in term.match_fields) and all(
        is_met(each, labels.get(each.key)) for each in term.match_expressions
    )


NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration matches the taint. The effect of the toleration must be empty or that of the taint.
    Its key must be that of the taint, or empty with operator Exists. Its operator must be Exists, or Equal with the
    value of the taint.

    Source: scheduler-core spec, 5.4.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether any of the tolerations matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


class TolerationIndex:
    """The tolerations of one pod, found by key, value and effect, for pods with many tolerations and many taints.

    An API server limits neither. Looking at each toleration for each taint of each node would stop the scheduler.
    """

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._exists: set[tuple[str, str]] = set()  # Key and effect
        self._equal: set[tuple[str, str, str]] = set()  # Key, effect and value
        for each in tolerations:
            if each.operator == "Exists":
                self._exists.add((each.key, each.effect))
            elif each.operator in ("", "Equal"):
                self._equal.add((each.key, each.effect, each.value))

    def tolerates(self, taint: Taint) -> bool:
        """Return what `is_tolerated` returns."""
        for key in ("", taint.key):
            for effect in ("", taint.effect):
                if (key, effect) in self._exists or (key, effect, taint.value) in self._equal:
                    return True
        return False

    def first_untolerated(self, taints: Sequence[Taint]) -> int | None:
        """Return the index of the first NoSchedule or NoExecute taint that is not tolerated; None if there is none."""
        for index, taint in enumerate(taints):
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not self.tolerates(taint):
                return index
        return None

    def intolerable_preferences(self, taints: Sequence[Taint]) -> int:
        """Return the number of PreferNoSchedule taints that no toleration matches."""
        return sum(1 for taint in taints if taint.effect == PREFER_NO_SCHEDULE and not self.tolerates(taint))


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int | None:
    """Return the index of the first NoSchedule or NoExecute taint that is not tolerated, or None if there is none."""
    for index, taint in enumerate(taints):
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations):
            return index
    return None
