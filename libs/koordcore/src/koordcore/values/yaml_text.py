"""Decode YAML texts from outside, within limits that are checked before any value is built.

The scan reads the events of libyaml's parser, which keeps its own stack. The composer that follows recurses in C, so it
must not see a deep text. Values have JSON's types: dates stay text, and tags such as `!!binary` are left to the caller.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import yaml
from yaml.constructor import ConstructorError

from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import MAX_DEPTH

MAX_BYTES: Final = 4 * 1024 * 1024  # Longest YAML text
MAX_DOCUMENTS: Final = 20_000
# Most values of a YAML text. The composer keeps about 600 bytes for each of them until the text is decoded.
MAX_VALUES: Final = 200_000
MAX_DIGITS: Final = 1000  # Longest text of a number: `1:1:1...` with base 60 takes time with the square of its length

YamlError = yaml.YAMLError  # The text is not YAML


class _Loader(yaml.CSafeLoader):
    """YAML loader in which dates stay text, and numbers have a limit."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _limited(construct: Callable[[_Loader, yaml.ScalarNode], object]) -> Callable[[_Loader, yaml.ScalarNode], object]:
    def number(loader: _Loader, node: yaml.ScalarNode) -> object:
        if len(node.value) > MAX_DIGITS:
            problem = f"a number of {len(node.value)} characters, at most {MAX_DIGITS} are allowed"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark)
        return construct(loader, node)

    return number


_Loader.add_constructor("tag:yaml.org,2002:int", _limited(yaml.CSafeLoader.construct_yaml_int))
_Loader.add_constructor("tag:yaml.org,2002:float", _limited(yaml.CSafeLoader.construct_yaml_float))


def load_yaml(text: str | bytes) -> Any:
    """Decode a YAML text with one document. None for an empty text.

    Raises:
        InvalidInput: The text exceeds a limit (`check_yaml`), or a value cannot be built, such as a wrong number.
        YamlError: The text is not YAML, or has several documents.
    """
    check_yaml(text)
    return _built(lambda: yaml.load(text, Loader=_Loader))  # noqa: S506  a subclass of the safe loader


def load_yaml_documents(text: str | bytes) -> list[Any]:
    """Decode all documents of a YAML text. None for an empty document. It raises as `load_yaml`."""
    check_yaml(text)
    return _built(lambda: list(yaml.load_all(text, Loader=_Loader)))


def compose_yaml(text: str | bytes) -> list[yaml.Node]:
    """Return the nodes of all documents of a YAML text. It raises as `load_yaml`."""
    check_yaml(text)
    return _built(lambda: list(yaml.compose_all(text, Loader=_Loader)))


def _built(build: Callable[[], Any]) -> Any:
    try:
        return build()
    except (RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput | UnicodeDecodeError):
            raise
        raise InvalidInput("YAML with JSON's values", str(error)) from error


class _Size(NamedTuple):
    """Size of a value with all that its aliases repeat."""

    values: int
    depth: int  # Containers inside each other, itself included


class _Open:
    """A container whose end was not read yet."""

    __slots__ = ("anchor", "deepest", "values")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1
        self.deepest = 0  # Depth of its deepest value


def check_yaml(text: str | bytes) -> None:
    """Check length, depth, number of values and number of documents of a YAML text before it is composed. Keys count
    as values. An alias counts as what it repeats.

    Raises:
        InvalidInput: A limit is exceeded. The error has the place (`line 3, column 7`), except for the length.
        YamlError: The text is not YAML.
    """
    length = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if length > MAX_BYTES:
        raise InvalidInput(f"at most {MAX_BYTES} bytes of YAML", f"{length} bytes")
    scan = _Scan()
    for event in yaml.parse(text, Loader=_Loader):
        scan.see(event)


class _Scan:
    def __init__(self) -> None:
        self._documents = 0
        self._values = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Size | None] = {}  # None: the value has not ended yet

    def see(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._add(_Size(1, 0), event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = _Size(1, 0)
            case yaml.CollectionStartEvent():
                self._values += 1
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._open.append(_Open(event.anchor))
                self._check(len(self._open), event)
            case yaml.CollectionEndEvent():
                ended = self._open.pop()
                size = _Size(ended.values, ended.deepest + 1)
                if ended.anchor is not None:
                    self._anchors[ended.anchor] = size
                self._values -= size.values  # `_add` counts them again
                self._add(size, event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > MAX_DOCUMENTS:
                    raise _refused(f"at most {MAX_DOCUMENTS} documents", "more documents", event)
                self._anchors.clear()
            case _:
                pass

    def _alias(self, event: yaml.AliasEvent) -> None:
        size = self._anchors.get(event.anchor or "", _Size(1, 0))  # the composer refuses an unknown anchor
        if size is None:
            raise _refused("a value that does not contain itself", f"*{event.anchor}", event)
        self._check(len(self._open) + size.depth, event)
        self._add(size, event)

    def _add(self, size: _Size, event: yaml.Event) -> None:
        """Count a value that has ended."""
        self._values += size.values
        if self._open:
            around = self._open[-1]
            around.values += size.values
            around.deepest = max(around.deepest, size.depth)
        self._check(0, event)

    def _check(self, depth: int, event: yaml.Event) -> None:
        if self._values > MAX_VALUES:
            raise _refused(f"at most {MAX_VALUES} values of YAML", "more values", event)
        if depth > MAX_DEPTH:
            raise _refused(f"nested at most {MAX_DEPTH} deep", f"{depth} deep", event)


def _refused(rule: str, value: str, event: yaml.Event) -> InvalidInput:
    return InvalidInput(rule, value, place_of(event.start_mark))


def place_of(mark: Any) -> str:
    """Format the line and column of a mark of YAML as editors count them, from 1."""
    return f"line {mark.line + 1}, column {mark.column + 1}"
