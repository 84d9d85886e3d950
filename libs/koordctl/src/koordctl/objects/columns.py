"""The columns of `koord get` for each kind of object.

If the definition of a resource declares columns, they are shown as in kubectl. Other kinds have columns of our own.
Amounts are written as in `units.py`. Columns of type date are not shown. This module is pure.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from koordcore.protocol import keys
from koordcore.protocol.drains import DRAIN_NODE
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

from koordctl.render.output import field
from koordctl.render.units import amount_text

Item: TypeAlias = dict[str, Any]
Columns: TypeAlias = list[str]
Rows: TypeAlias = list[list[object]]
CLUSTER_SCOPED: Final = ("Node", "Namespace", "PriorityClass")
NAMESPACED: Final = ("Pod", "ConfigMap", "Deployment", "Job")
NODE_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "batch-cpu": BATCH_CPU, "batch-memory": BATCH_MEMORY}
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "ClusterNetworkTopology": {"layers": "spec.networkTopologySpec", "nodes-seen": "status.detailStatus"},
    "ConfigMap": {"keys": "data"},
    "PriorityClass": {"value": "value"},
    "Deployment": {"replicas": "spec.replicas"},
    "Job": {"parallelism": "spec.parallelism"},
    "Namespace": {},
}
"""Kind -> column -> path below the object, in the form of a definition's `jsonPath`."""
COUNTED: Final = ("keys", "zones", "layers", "nodes-seen", "drivers")
"""Columns that show the number of entries."""
AMOUNTS: Final = ("cpu", "memory")
"""Last step of a path whose value is an amount of that resource."""
_STEP: Final = re.compile(r"(?:\\.|[^.\\])+")
DEFAULTS: Final = {"replicas": 1, "parallelism": 1, "value": 0}


def _annotation(key: str) -> str:
    return f"metadata.annotations.{key.replace('.', chr(92) + '.')}"


WIDE: Final[dict[str, dict[str, str]]] = {
    "PodMigrationJob": {
        "by": _annotation(keys.EVICT_TRIGGER),
        "plan": _annotation(keys.MOVE_PLAN),
    }
}
"""Kind -> columns of `-o wide` besides those of the definition."""


def object_table(kind: str, items: Sequence[Item], *, wide: bool, silent: Container[str] = ()) -> tuple[Columns, Rows]:
    """The headers and rows of `koord get` for objects of one kind. A cell is None without a value.

    Args:
        silent: Names of nodes whose newest usage report is too old.
    """
    if kind == "Pod":
        return _pods(items, wide=wide)
    if kind == "Node":
        return _nodes(items, wide=wide, silent=silent)
    from koordcore.protocol.crd import accepted_kinds

    resource = next((found for found in accepted_kinds() if found.kind == kind and found.stored), None)
    declared = [column for column in resource.columns if column.type != "date"] if resource is not None else []
    paths = {column.name.lower(): column.json_path for column in declared} or COLUMNS.get(kind, {})
    paths = {**paths, **(WIDE.get(kind, {}) if wide else {})}
    names = ["name"] if is_cluster_scoped(kind) else ["namespace", "name"]
    # A definition may have a column of its own called `name`, of what the object is about.
    heads = [f"target-{column}" if column in names else column for column in paths]
    return [*names, *heads], [
        [
            *(field(item, f"metadata.{name}") for name in names),
            *(_cell(column, _value(item, path)) for column, path in paths.items()),
        ]
        for item in items
    ]


def is_cluster_scoped(kind: str) -> bool:
    if kind in (*CLUSTER_SCOPED, *NAMESPACED):
        return kind in CLUSTER_SCOPED
    from koordcore.protocol.crd import accepted_kinds  # only now: it reads the definitions of all custom resources

    return any(resource.kind == kind and resource.scope == "Cluster" for resource in accepted_kinds())


def _value(item: Item, path: str) -> object:
    r"""The value at a path such as `.a.b.c`, with amounts as text. A dot inside a key is written `\.`."""
    steps = [step.replace("\\", "") for step in _STEP.findall(path)]
    value: object = item
    for step in steps:
        value = cast("Mapping[str, object]", value).get(step) if isinstance(value, Mapping) else None
    if steps[-1] in AMOUNTS and isinstance(value, str | int):
        try:
            return amount_text(steps[-1], parse_amounts({steps[-1]: value})[steps[-1]])
        except InvalidInput:
            return value
    return value


def _cell(column: str, value: object) -> object:
    """A value as text on one line; a column in `COUNTED` shows the number of entries."""
    if column in COUNTED:
        return len(cast("Sequence[object]", value or ()))
    if value in (None, "", {}, []):
        return DEFAULTS.get(column)
    if isinstance(value, list):
        return ",".join(str(each) for each in cast("list[object]", value))
    return str(value).lower() if isinstance(value, bool) else value


def _pods(items: Sequence[Item], *, wide: bool) -> tuple[Columns, Rows]:
    from koordcore.protocol.objects import Pod
    from koordcore.protocol.qos import qos
    from koordcore.values import codec

    columns = ["namespace", "name", "status", "qos", "node"] + (["priority", "uid"] if wide else [])
    return columns, [
        [
            field(item, "metadata.namespace"),
            field(item, "metadata.name"),
            _pod_status(item),
            qos(codec.convert(item, Pod)),
            field(item, "spec.nodeName") or None,
            *([field(item, "spec.priority"), field(item, "metadata.uid")] if wide else []),
        ]
        for item in items
    ]


def _pod_status(item: Item) -> str:
    if field(item, "spec.nodeName"):
        return "Running" if field(item, "status.phase") == "Running" else "Placed"
    return "Pending"


def _node_status(item: Item, *, is_silent: bool) -> str:
    found = ["SchedulingDisabled" if field(item, "spec.unschedulable") else "Ready"]
    if any(taint["key"] == DRAIN_NODE for taint in field(item, "spec.taints", [])):
        found.append("ClosedByDrain")
    if is_silent:
        found.append("NoReport")
    return ",".join(found)


def _nodes(items: Sequence[Item], *, wide: bool, silent: Container[str]) -> tuple[Columns, Rows]:
    rows: Rows = []
    for item in items:
        allocatable = parse_amounts(field(item, "status.allocatable", {}))
        held = {name: allocatable.get(resource) for name, resource in NODE_AMOUNTS.items()}
        rows.append(
            [
                field(item, "metadata.name"),
                _node_status(item, is_silent=field(item, "metadata.name") in silent),
                *(None if held[name] is None else amount_text(NODE_AMOUNTS[name], held[name] or 0) for name in held),
                *([",".join(f"{k}={v}" for k, v in field(item, "metadata.labels", {}).items())] if wide else []),
            ]
        )
    return ["name", "status", *NODE_AMOUNTS, *(["labels"] if wide else [])], rows
