"""Node selector terms of Kubernetes, evaluated for one node or one object with labels and a name.

Source:
    scheduler-core spec, 5.5
"""

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol.objects import LabelSelectorRequirement, NodeSelectorTerm

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT64: Final = 1 << 63
NAME_FIELD: Final = "metadata.name"


def is_met(requirement: LabelSelectorRequirement, value: str | None) -> bool:
    """Return whether a node with this value of the requirement's label meets the requirement.

    NotIn is met without the label. Gt and Lt are not met unless both sides are integers.

    Args:
        requirement: The requirement.
        value: The node's value of the label; None if the node does not have the label.

    Source:
        scheduler-core spec, 5.5
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
    """Return whether a node with these labels and this name meets every expression of the term.

    False for a term without expressions, and for an expression about another field than `metadata.name`.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    return all(each.key == NAME_FIELD and is_met(each, name) for each in term.match_fields) and all(
        is_met(each, labels.get(each.key)) for each in term.match_expressions
    )
