"""The annotation scheduling-hint of a pod: nodes to use, and plugins that shall give what other annotations name.

Source: scheduler-core spec, 11.2, 11.3; scheduler-fine-grained spec, 1.3 (designated allocation)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.objects import KubeStruct
from koordcore.values.invalid import InvalidInput


class _Written(KubeStruct):
    node_names: list[str] = []
    preferred_node_names: list[str] = []
    extensions: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class Hint:
    required: frozenset[str] = frozenset()  # The only candidate nodes; empty for all nodes
    preferred: tuple[str, ...] = ()  # Nodes that are tried first, in this order
    # Names of plugins that shall give the pod exactly the CPUs or devices that its annotations name, instead of
    # choosing them. A plugin is named by a key of `extensions`.
    designating: frozenset[str] = frozenset()
    problem: str = ""  # Why the annotation is invalid; "" if it is valid


def scheduling_hint(annotations: Mapping[str, str]) -> Hint | None:
    """None if there is none. The internal key takes precedence over its deprecated alias."""
    text = annotations.get(keys.SCHEDULING_HINT) or annotations.get(keys.SCHEDULING_HINT_ALIAS)
    if not text:
        return None
    try:
        written = lenient_json.decode(text, _Written)
    except InvalidInput as error:
        return Hint(problem=str(error))
    return Hint(frozenset(written.node_names), tuple(written.preferred_node_names), frozenset(written.extensions))


def is_designated(annotations: Mapping[str, str], plugin: str) -> bool:
    """Whether the plugin must allocate exactly what the annotations of the pod name (a designated allocation)."""
    hint = scheduling_hint(annotations)
    return hint is not None and plugin in hint.designating
