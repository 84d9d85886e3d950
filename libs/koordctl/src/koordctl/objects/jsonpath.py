r"""Templates of `-o jsonpath=...` and paths of `--sort-by`, as kubectl reads them. This module is pure.

    {range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}

A missing key gives nothing. The values of a map are in the order of the document; kubectl's order is random.

Source:
    client-go, util/jsonpath; kubectl, cmd/get: RelaxedJSONPathExpression
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from koordcore.values.invalid import InvalidInput

_TERMINATORS: Final = frozenset(" .,[]$@{}\n")
_KEY: Final = re.compile(r"^'([^']*)'$")
_SLICE: Final = re.compile(r"^(-?\d*)(:-?\d*)?(:-?\d*)?$")
_COMPARED: Final = re.compile(r"^([^!<>=]+)([!<>=]+)(.+?)$", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?[\d.]+")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_RELAXED: Final = re.compile(r"^\{\.?([^{}]+)\}$|^\.?([^{}]+)$")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


class Constant(NamedTuple):
    value: object


class Field(NamedTuple):
    name: str


class Slice(NamedTuple):
    begin: int | None
    end: int | None
    step: int | None
    is_index: bool  # Whether it names one item


class Filter(NamedTuple):
    left: "Path"
    comparison: str  # "": the left side exists
    right: "Path"


class Union(NamedTuple):
    paths: list["Path"]


class Wildcard(NamedTuple):
    """All values below a map or list."""


class Recursive(NamedTuple):
    """All maps and lists below, and the value itself."""


class Word(NamedTuple):
    text: str  # `range` or `end`


Node: TypeAlias = Constant | Field | Slice | Filter | Union | Wildcard | Recursive | Word
Path: TypeAlias = list[Node]


class Template(NamedTuple):
    """A parsed template: texts and paths in their order."""

    parts: list[str | Path]

    def render(self, value: object) -> str:
        """Raises InvalidInput if the template does not fit the value."""
        text, _ = _rendered(self.parts, 0, value, depth=0)
        return text

    def find(self, value: object) -> list[object]:
        """The values of the first path."""
        first: Path | None = next((part for part in self.parts if not isinstance(part, str)), None)
        return [] if first is None else _walk(first, [value])


def parse_template(text: str) -> Template:
    """Raises InvalidInput if the text is not a template."""
    parts: list[str | Path] = []
    while text:
        before, brace, rest = text.partition("{")
        if before:
            parts.append(before)
        if not brace:
            break
        action = _Action(rest)
        parts.append(action.parse())
        text = rest[action.at :]
    return Template(parts)


def parse_path(text: str) -> Template:
    """The path of `--sort-by`, with or without braces and the first dot.

    Raises:
        InvalidInput: The text is not a path.
    """
    found = _RELAXED.match(text)
    if found is None:
        raise InvalidInput("a path such as .metadata.name or {.metadata.name}", text, "--sort-by")
    return parse_template("{." + (found[1] or found[2]) + "}")


class _Action:
    """The reader of one action, up to its closing brace."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nodes: Path = []

    def parse(self) -> Path:
        while True:
            rest = self.text[self.at :]
            if not rest or rest[0] == "\n":
                raise _invalid("unclosed action", self.text)
            if rest[0] == "}":
                self.at += 1
                return self.nodes
            self._step(rest)

    def _step(self, rest: str) -> None:
        if rest.startswith("[?("):
            self._filter()
        elif rest.startswith(".."):
            if self.nodes and isinstance(self.nodes[-1], Recursive):
                raise _invalid("invalid multiple recursive descent", self.text)
            self.at += 2
            self.nodes.append(Recursive())
            if rest[2:3].isalnum() or rest[2:3] == "_":
                self.nodes.append(self._field())
        elif rest[0] in " @$":
            self.at += 1
        elif rest[0] == "[":
            self._array()
        elif rest[0] in "\"'":
            self._quoted(rest[0])
        elif rest[0] == ".":
            self.at += 1
            self.nodes.append(self._field())
        elif number := _NUMBER.match(rest):
            self.at += number.end()
            self.nodes.append(Constant(_number(number[0])))
        elif rest[0].isalnum() or rest[0] == "_":
            self._word()
        else:
            raise _invalid(f"unrecognized character {rest[0]!r}", self.text)

    def _name(self) -> str:
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] not in _TERMINATORS:
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.at = min(self.at, len(self.text))
        return self.text[begin : self.at]

    def _field(self) -> Node:
        name = self._name()
        return Wildcard() if name == "*" else Field(name.replace("\\", ""))

    def _word(self) -> None:
        word = self._name()
        if word in ("true", "false"):
            self.nodes.append(Constant(word == "true"))
        elif word in ("range", "end"):
            self.nodes.append(Word(word))
        else:
            raise _invalid(f"unrecognized identifier {word}", self.text)

    def _quoted(self, quote: str) -> None:
        end = self.at + 1
        while end < len(self.text) and (self.text[end] != quote or self.text[end - 1] == "\\"):
            end += 1
        if end >= len(self.text):
            raise _invalid("unterminated quoted string", self.text)
        self.nodes.append(Constant(_ESCAPE.sub(_unescaped, self.text[self.at + 1 : end])))
        self.at = end + 1

    def _array(self) -> None:
        end = self.text.find("]", self.at)
        if end < 0:
            raise _invalid("unterminated array", self.text)
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        if "," in inside:
            self.nodes.append(Union([_Action(f"[{each.strip()}]}}").parse() for each in inside.split(",")]))
        elif key := _KEY.match(inside):
            self.nodes += _Action(f".{key[1]}}}").parse()
        else:
            self.nodes.append(_slice(":" if inside == "*" else inside))

    def _filter(self) -> None:
        end, quote = self.at + 3, ""
        while end < len(self.text) and (quote or self.text[end] != ")"):
            each = self.text[end]
            if each in "\"'" and self.text[end - 1] != "\\":
                quote = "" if quote == each else quote or each
            end += 1
        if self.text[end : end + 2] != ")]":
            raise _invalid("unterminated filter", self.text)
        inside = self.text[self.at + 3 : end]
        self.at = end + 2
        sides = _COMPARED.match(inside)
        if sides is None:
            self.nodes.append(Filter(_Action(inside + "}").parse(), "", []))
            return
        if sides[2] not in _COMPARISONS:
            raise _invalid(f"unrecognized filter operator {sides[2]}", inside)
        self.nodes.append(Filter(_Action(sides[1] + "}").parse(), sides[2], _Action(sides[3] + "}").parse()))


def _invalid(rule: str, text: object) -> InvalidInput:
    return InvalidInput(f"a JSONPath template ({rule})", text, "jsonpath")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise _invalid("cannot parse number", text) from None


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(found[3], found[3])


def _slice(text: str) -> Slice:
    found = _SLICE.match(text)
    if found is None or text in ("", "-"):
        raise _invalid("invalid array index", text)
    begin, end, step = (part.lstrip(":") if part else "" for part in found.groups())
    return Slice(*(int(part) if part else None for part in (begin, end, step)), is_index=found[2] is None)


def _walk(path: Sequence[Node], values: list[object]) -> list[object]:
    for node in path:
        values = _step(node, values)
    return values


def _step(node: Node, values: list[object]) -> list[object]:
    match node:
        case Constant():
            return [node.value for _ in values]
        case Field():
            return [each[node.name] for each in map(_as_map, values) if each is not None and node.name in each]
        case Slice():
            return [item for each in values if each is not None for item in _sliced(node, each)]
        case Filter():
            return [item for each in values for item in _filtered(node, each)]
        case Union():
            return [item for path in node.paths for item in _walk(path, values)]
        case Wildcard():
            return [item for each in values for item in _below(each)]
        case Recursive():
            return [item for each in values for item in _descended(each)]
        case Word():
            return values


def _as_map(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _below(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _descended(value: object) -> Iterable[object]:
    below = list(_below(value))
    if below:
        yield value
        for each in below:
            yield from _descended(each)


def _sliced(node: Slice, value: object) -> list[object]:
    if not isinstance(value, list):
        raise _invalid(f"{type(value).__name__} is not an array", json.dumps(value))
    items = cast("list[object]", value)
    length = len(items)
    begin = (node.begin or 0) + (length if (node.begin or 0) < 0 else 0)
    end = begin + 1 if node.is_index else length if node.end is None else node.end
    if end < 0:
        end += length
    if begin == end:
        return []
    if not (0 <= begin < length and 0 <= end <= length):
        raise _invalid(f"array index out of bounds, length {length}", node.begin if node.is_index else node.end)
    if begin > end or (node.step is not None and node.step <= 0):
        raise _invalid("starting index is greater than ending index, or the step is not positive", node.begin)
    return items[begin : end : node.step or 1]


def _filtered(node: Filter, value: object) -> Iterable[object]:
    if not isinstance(value, list):
        raise _invalid("only an array can be filtered", json.dumps(value))
    for item in cast("list[object]", value):
        left = _walk(node.left, [item])
        if not node.comparison:
            if left:
                yield item
            continue
        right = _walk(node.right, [item])
        if left and right and _holds(node.comparison, left, right):
            yield item


def _holds(comparison: str, left: list[object], right: list[object]) -> bool:
    if len(left) > 1 or len(right) > 1:
        raise _invalid("can only compare one element at a time", json.dumps(left if len(left) > 1 else right))
    one, other = left[0], right[0]
    if type(one) is not type(other) or not isinstance(one, str | int | float):
        raise _invalid("incompatible types for comparison", f"{json.dumps(one)} {comparison} {json.dumps(other)}")
    return _COMPARISONS[comparison](one, other)


def _rendered(parts: Sequence[str | Path], at: int, value: object, *, depth: int) -> tuple[str, int]:
    """The text of the parts from `at` to the end of the block, and the place after it."""
    shown: list[str] = []
    while at < len(parts):
        part = parts[at]
        at += 1
        if isinstance(part, str):
            shown.append(part)
        elif Word("end") in part:
            if not depth:
                raise _invalid("not in range, nothing to end", "{end}")
            return "".join(shown), at
        elif Word("range") in part:
            after = _end_of_block(parts, at)
            shown += (_rendered(parts, at, each, depth=depth + 1)[0] for each in _walk(part, [value]))
            at = after
        else:
            shown.append(" ".join(map(_text, _walk(part, [value]))))
    return "".join(shown), at


def _end_of_block(parts: Sequence[str | Path], at: int) -> int:
    depth = 1
    while at < len(parts) and depth:
        part = parts[at]
        at += 1
        if not isinstance(part, str):
            depth += (Word("range") in part) - (Word("end") in part)
    return at


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # As Go's encoder, which expects that the text may become part of a page.
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
