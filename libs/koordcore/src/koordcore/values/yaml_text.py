"""Decode YAML texts from outside, within limits that are checked before any value is built.

The scan reads the events of libyaml's parser, which keeps its own stack. The composer that follows recurses in C, so it
must not see a deep text. Values have JSON's types, and mean what they mean to Go's parser (`yaml_scalars`): dates stay
text, and tags such as `!!binary` are left to the caller. A key that occurs twice in one mapping is an error.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import yaml
from yaml.constructor import ConstructorError

from koordcore.values import yaml_scalars
from koordcore.values.invalid import InvalidInput, joined
from koordcore.values.text_limits import MAX_DEPTH, UNIQUE

MAX_BYTES: Final = 4 * 1024 * 1024  # Longest YAML text
MAX_DOCUMENTS: Final = 20_000
# Most values of a YAML text. The composer keeps about 600 bytes for each of them until the text is decoded.
MAX_VALUES: Final = 200_000
MAX_DIGITS: Final = 1000  # Longest text of a number: digits take time with the square of their number

YamlError = yaml.YAMLError  # The text is not YAML


class _Loader(yaml.CSafeLoader):
    """YAML loader in which scalars and keys mean what they mean to Go's parser, and numbers have a limit."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern, firsts in yaml_scalars.PLAIN if first in firsts]
        for first in {first for _, _, firsts in yaml_scalars.PLAIN for first in firsts}
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        members: dict[Any, Any] = {}
        construct = cast("Callable[..., object]", self.construct_object)  # pyright: ignore[reportUnknownMemberType]
        for key, value in node.value:
            name = yaml_scalars.key(construct(key, deep=True))
            if not isinstance(name, str):
                raise ConstructorError(problem="a key that is no text", problem_mark=key.start_mark)
            members[name] = construct(value, deep=deep)
        return members


def _scalar(read: Callable[[str], object], longest: int | None = None) -> Callable[[_Loader, yaml.ScalarNode], object]:
    def construct(loader: _Loader, node: yaml.ScalarNode) -> object:
        text = loader.construct_scalar(node)
        if longest is not None and len(text) > longest:
            problem = f"a number of {len(text)} characters, at most {longest} are allowed"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark)
        return read(text)

    return construct


_Loader.add_constructor(yaml_scalars.BOOL, _scalar(yaml_scalars.boolean))
_Loader.add_constructor(yaml_scalars.INT, _scalar(yaml_scalars.integer, MAX_DIGITS))
_Loader.add_constructor(yaml_scalars.FLOAT, _scalar(yaml_scalars.real, MAX_DIGITS))
for _tag in (yaml_scalars.MERGE, yaml_scalars.TIMESTAMP):
    _Loader.add_constructor(_tag, _scalar(str))


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


class _Dumper(yaml.SafeDumper):
    """Quotes every text that Go's parser or YAML 1.1 would read as something else."""


_Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *_Loader.yaml_implicit_resolvers.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}


def dump_yaml(value: object) -> str:
    """Return JSON-like values as a YAML text that `load_yaml` and kubectl read as the same values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


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

    __slots__ = ("_awaits_key", "_keys", "_step", "anchor", "deepest", "values")

    def __init__(self, event: yaml.CollectionStartEvent) -> None:
        self.anchor = event.anchor
        self.values = 1
        self.deepest = 0  # Depth of its deepest value
        self._keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
        self._awaits_key = True
        self._step: str | int = -1 if self._keys is None else ""

    @property
    def step(self) -> str | int:
        """Key or index of the value that was begun last."""
        return self._step

    def begin(self, event: yaml.NodeEvent) -> bool:
        """Note that a key or a value of this container begins. Return False if it is a key that occurred before."""
        if self._keys is None:
            assert isinstance(self._step, int)
            self._step += 1
            return True
        if not self._awaits_key:
            self._awaits_key = True
            return True
        self._awaits_key = False
        if not isinstance(event, yaml.ScalarEvent):
            self._step = "?"
            return True
        self._step = event.value
        if event.value in self._keys:
            return event.value == _MERGE and event.implicit[0]
        self._keys.add(event.value)
        return True


_MERGE: Final = "<<"


def check_yaml(text: str | bytes) -> None:
    """Check length, depth, number of values, number of documents and keys of a YAML text before it is composed. Keys
    count as values. An alias counts as what it repeats.

    Raises:
        InvalidInput: A limit is exceeded, or a key occurs twice in one mapping. The error has the place, except for the
            length: `line 3, column 7`, or of a key its path.
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
        if self._open and isinstance(event, yaml.NodeEvent) and not self._open[-1].begin(event):
            path = joined("", tuple(container.step for container in self._open))
            raise InvalidInput(UNIQUE, f"it again at {place_of(event.start_mark)}", path)
        match event:
            case yaml.ScalarEvent():
                self._add(_Size(1, 0), event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = _Size(1, 0)
            case yaml.CollectionStartEvent():
                self._values += 1
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._open.append(_Open(event))
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
