"""Label selectors: `matchLabels` and `matchExpressions`, which must all match.

`compile_selector` checks the syntax once; the compiled selector only matches. A missing selector means "nothing" in
config sections and NodeSLO rendering, and "no restriction" in colocation profiles. So callers state its meaning.

Source: protocol spec, 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.protocol.objects import LabelSelector
from koordcore.values.invalid import InvalidInput

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition of a label selector: operator In, NotIn, Exists or DoesNotExist for the label `key`. `values` are
    the values for In and NotIn; empty for the other operators.
    """

    key: str
    operator: Operator
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the condition. `NotIn` is met if the key is absent."""
        match self.operator:
            case Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class Selector:
    """A checked label selector. Without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


EVERYTHING: Final = Selector()  # The selector without requirements


def compile_selector(selector: LabelSelector) -> Selector:
    """Check the syntax of a label selector, and return it in the form that can match labels.

    Raises:
        InvalidInput: The operator is unknown, In or NotIn has no values, Exists or DoesNotExist has values, or a key or
            value is not valid in labels.
    """
    requirements: list[Requirement] = []
    for key, value in selector.match_labels.items():
        requirements.append(_requirement(key, Operator.IN, [value], f"matchLabels[{key}]"))
    for index, expression in enumerate(selector.match_expressions):
        path = f"matchExpressions[{index}]"
        try:
            operator = Operator(expression.operator)
        except ValueError as error:
            raise InvalidInput(
                "one of In, NotIn, Exists, DoesNotExist", expression.operator, f"{path}.operator"
            ) from error
        requirements.append(_requirement(expression.key, operator, expression.values, path))
    return Selector(tuple(requirements))


def is_matching(selector: LabelSelector | None, labels: Mapping[str, str], *, missing: bool) -> bool:
    """Return whether a label selector matches the labels. An invalid selector matches nothing. `selector`: the
    selector; None if there is none. `missing`: result if `selector` is None.

    Source: protocol spec, 1.3 (an unparseable selector makes its entry be skipped).
    """
    if selector is None:
        return missing
    try:
        return compile_selector(selector).matches(labels)
    except InvalidInput:
        return False


def _requirement(key: str, operator: Operator, values: list[str], path: str) -> Requirement:
    check_label_key(key, f"{path}.key")
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            raise InvalidInput(f"a non-empty list with operator {operator}", values, f"{path}.values")
    elif values:
        raise InvalidInput(f"empty with operator {operator}", values, f"{path}.values")
    for value in values:
        check_label_value(value, f"{path}.values")
    return Requirement(key, operator, frozenset(values))


def check_label_key(key: str, path: str = "") -> None:
    """Check a label key: `[dns-prefix/]name`, name at most 63 and prefix at most 253 characters. `path`: place of the
    key, for the error.

    Raises:
        InvalidInput: The key is invalid.
    """
    prefix, slash, name = key.rpartition("/")
    good_prefix = not slash or (0 < len(prefix) <= 253 and _DNS.fullmatch(prefix) is not None)
    if not good_prefix or _NAME.fullmatch(name) is None:
        raise InvalidInput("a label key ([dns-prefix/]name, name of at most 63 letters, digits, - _ .)", key, path)


def check_label_value(value: str, path: str = "") -> None:
    """Check a label value: empty, or up to 63 letters, digits, `-`, `_`, `.`, alphanumeric at both ends. `path`: place
    of the value, for the error.

    Raises:
        InvalidInput: The value is invalid.
    """
    if _VALUE.fullmatch(value) is None:
        raise InvalidInput("a label value (at most 63 letters, digits, - _ ., alphanumeric at both ends)", value, path)
