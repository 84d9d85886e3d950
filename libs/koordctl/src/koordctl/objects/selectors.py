"""The selectors `-l` and `--field-selector`, and the order of `--sort-by`, as kubectl reads them. This module is pure.

Source:
    apimachinery, pkg/labels/selector.go and pkg/fields; kubernetes, pkg/apis/core/v1/conversion.go; kubectl,
    cmd/get/sorter.go
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli

from koordctl.objects.jsonpath import parse_path
from koordctl.render.output import field

Item: TypeAlias = Mapping[str, Any]
OF_ANY: Final = ("metadata.name", "metadata.namespace")
FIELDS: Final = {
    "Pod": (
        *OF_ANY,
        "spec.nodeName",
        "spec.schedulerName",
        "spec.hostNetwork",
        "status.phase",
        "status.nominatedNodeName",
    ),
    "Node": ("metadata.name", "spec.unschedulable"),
}
"""Kind -> fields of its selector that are mirrored; other kinds: `OF_ANY`."""
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!,()<>]|[^\s=!,()<>]+)")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SIGNS: Final = frozenset("=!,()<>") | {"==", "!="}
_FIELD: Final = re.compile(r"\s*([^=!\s]+)\s*(==|=|!=)(.*)")
_DIGITS: Final = "0123456789"
_DIGITS_OR_OTHERS: Final = re.compile(r"[0-9]+|[^0-9]+")
_COMMA: Final = re.compile(r"(?<!\\),")


class Requirement(NamedTuple):
    """One part of a selector. All parts must hold."""

    key: str
    operator: str  # in, notin, exists, absent, <, >
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists" | "absent":
                return (value is not None) == (self.operator == "exists")
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return _is_beyond(value, self.operator, self.values[0])


def _is_beyond(value: str | None, operator: str, limit: str) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > int(limit) if operator == ">" else number < int(limit)


def parse_labels(text: str) -> list[Requirement]:
    """The requirements of a label selector such as `app=web,tier in (a, b),!old`.

    Raises:
        InvalidInput: The text is not a label selector.
    """
    return _Reader(text).requirements()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _TOKEN.findall(text)

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while self._tokens:
            found.append(self._requirement())
            if self._tokens and (self._next() != "," or not self._tokens):
                raise self._invalid("expected a key after ','")
        return found

    def _next(self) -> str:
        if not self._tokens:
            raise self._invalid("it ends too early")
        return self._tokens.pop(0)

    def _requirement(self) -> Requirement:
        found = self._next()
        is_absent = found == "!"
        key = self._next() if is_absent else found
        if not _KEY.fullmatch(key):
            raise self._invalid(f"{key!r} is not a label key")
        if is_absent or not self._tokens or self._tokens[0] == ",":
            return Requirement(key, "absent" if is_absent else "exists")
        match self._next():
            case "=" | "==":
                return Requirement(key, "in", (self._value(),))
            case "!=":
                return Requirement(key, "notin", (self._value(),))
            case "<" | ">" as sign:
                return Requirement(key, sign, (self._number(),))
            case "in" | "notin" as word:
                return Requirement(key, word, self._list())
            case other:
                raise self._invalid(f"found {other!r}, expected in, notin, =, ==, !=, <, >")

    def _value(self) -> str:
        if not self._tokens or self._tokens[0] == ",":
            return ""
        return self._checked(self._next())

    def _number(self) -> str:
        value = self._next()
        if not re.fullmatch(r"[+-]?\d+", value):
            raise self._invalid(f"for '<' and '>', the value must be an integer, got {value!r}")
        return value

    def _list(self) -> tuple[str, ...]:
        if self._next() != "(":
            raise self._invalid("expected '(' after in and notin")
        values: list[str] = []
        given = ""
        while (found := self._next()) != ")":
            if found == ",":
                values.append(given)
                given = ""
            elif given:
                raise self._invalid(f"found {found!r}, expected ',' or ')'")
            else:
                given = self._checked(found)
        return (*values, given)

    def _checked(self, value: str) -> str:
        if value in _SIGNS or not _VALUE.fullmatch(value):
            raise self._invalid(f"{value!r} is not a label value")
        return value

    def _invalid(self, rule: str) -> InvalidInput:
        return InvalidInput(f"a label selector such as app=web,tier in (a,b),!old ({rule})", self._text, "--selector")


def parse_fields(text: str, kind: str) -> list[Requirement]:
    """The requirements of a field selector such as `status.phase!=Running,spec.nodeName=node-1`.

    Raises:
        InvalidInput: The text is not a field selector, or the kind has no such field.
    """
    found: list[Requirement] = []
    for part in _COMMA.split(text) if text else []:
        match = _FIELD.fullmatch(part)
        if match is None:
            raise InvalidInput("a field selector such as status.phase=Running", text, "--field-selector")
        known = FIELDS.get(kind, OF_ANY)
        if match[1] not in known:
            raise InvalidInput(f"a field of {kind}: {', '.join(known)}", match[1], "--field-selector")
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        found.append(Requirement(match[1], "notin" if match[2] == "!=" else "in", (value,)))
    return found


def matches(item: Item, labels: Sequence[Requirement], fields: Sequence[Requirement]) -> bool:
    given = field(item, "metadata.labels", {})
    return all(each.holds(given) for each in labels) and all(
        each.holds({each.key: _field_text(item, each.key)}) for each in fields
    )


def _field_text(item: Item, path: str) -> str:
    value = field(item, path)
    if value is None and path in ("spec.hostNetwork", "spec.unschedulable"):
        value = False
    if value is None and path == "status.phase":
        return "Pending"
    return str(value).lower() if isinstance(value, bool) else str(value or "")


def in_order(items: Sequence[Item], path: str) -> list[Item]:
    """The objects by the value at a path; those without one come first.

    Raises:
        InvalidInput: The text is not a path, or no object has a value there.
    """
    template = parse_path(path)
    found = [(next(iter(template.find(item)), None), item) for item in items]
    if items and all(value is None for value, _ in found):
        raise InvalidInput("a path that an object has", path, "--sort-by")
    return [item for _, item in sorted(found, key=lambda each: _rank(each[0]))]


def _rank(value: object) -> tuple[object, ...]:
    """Numbers and quantities come before other texts."""
    if value is None:
        return (0,)
    if isinstance(value, int | float):
        return 1, float(value)
    try:
        return 1, float(parse_milli(str(value)))
    except InvalidInput:
        return 2, natural_key(str(value))


def natural_key(text: str) -> list[tuple[object, ...]]:
    """Texts with equal keys are equal. Digits are compared as a number and come before other characters.

    Source:
        fvbommel/sortorder, NaturalLess
    """
    found: list[tuple[object, ...]] = []
    for part in _DIGITS_OR_OTHERS.findall(text):
        if part[0] in _DIGITS:
            number = part.lstrip("0")
            found.append((0, len(number), number, len(part)))
        else:
            found.append((1, part))
    return found
