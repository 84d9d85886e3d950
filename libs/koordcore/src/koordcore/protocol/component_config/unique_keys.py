"""Keys that occur twice in one object of a YAML or JSON text. Decoders silently keep the last one."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

import yaml

from koordcore.values.invalid import InvalidInput

_RULE: Final = "a key that occurs once in its object"


def check_unique_keys(text: bytes) -> Iterator[InvalidInput]:
    """Yield an error for each key that occurs twice in one object, at every level.

    Args:
        text: A text that is valid YAML or JSON.
    """
    if text.lstrip()[:1] in (b"{", b"["):
        repeated: list[str] = []
        if _is_json(text, repeated):
            yield from (InvalidInput(_RULE, key, key) for key in repeated)
            return
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        yield InvalidInput(f"YAML or JSON whose keys can be compared ({type(error).__name__})", "", "document")
        return
    for document in documents:
        yield from _repeated(document)


def _is_json(text: bytes, repeated: list[str]) -> bool:
    """Return whether a text is JSON, and add its repeated keys to a list."""

    def check(pairs: list[tuple[str, object]]) -> None:
        counts = Counter(key for key, _ in pairs)
        repeated.extend(key for key, count in counts.items() if count > 1)

    try:
        json.loads(text, object_pairs_hook=check)
    except (ValueError, RecursionError):
        return False
    return True


def _repeated(root: yaml.Node) -> Iterator[InvalidInput]:
    waiting: list[tuple[yaml.Node, str]] = [(root, "")]
    seen: set[int] = set()
    while waiting:
        node, path = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                where = f"{path}.{name}" if path else name
                if name in keys:
                    yield InvalidInput(_RULE, f"line {key.start_mark.line + 1}", where)
                keys.add(name)
                waiting.append((value, where))
