"""The columns of `koord get` for each kind of object.

If the definition of a resource declares columns, they are shown as in kubectl. Other kinds have columns of our own.
Amounts are written as in `units.py`, times as ages. This module is pure.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, cast

from koordcore.protocol import keys
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

from koordctl.objects.statuses import node_status, pod_status
from koordctl.render.output import field
from koordctl.render.units import age_text, amount_text

Item: TypeAlias = dict[str, Any]
Columns: TypeAlias = list[str]
Rows: TypeAlias = list[list[object]]


class Owner(NamedTuple):
    """A workload."""

    kind: str
    namespace: str
    name: str


CLUSTER_SCOPED: Final = ("Node", "Namespace", "PriorityClass")
NAMESPACED: Final = ("Pod", "ConfigMap", "Deployment", "Job")
NODE_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "batch-cpu": BATCH_CPU, "batch-memory": BATCH_MEMORY}
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "ClusterNetworkTopology": {"layers": "spec.networkTopologySpec", "nodes-seen": "status.detailStatus"},
    "ConfigMap": {"keys": "data"},
    "PriorityClass": {"value": "value"},
    "Deployment": {},
    "Job": {},
    "Namespace": {},
}
"""Kind -> column -> path below the object, in the form of a definition's `jsonPath`."""
COUNTED: Final = ("keys", "zones", "layers", "nodes-seen", "drivers")
"""Columns that show the number of entries."""
AMOUNTS: Final = ("cpu", "memory")
"""Last step of a path whose value is an amount of that resource."""
_STEP: Final = re.compile(r"(?:\\.|[^.\\])+")
DEFAULTS: Final = {"value": 0}
WANTED: Final = {
    "Deployment": "spec.replicas",
    "Job": "spec.parallelism",
    "ReplicaSet": "spec.replicas",
    "StatefulSet": "spec.replicas",
}
"""Kind of a workload -> path of the number of pods that it wants."""
_OF_NODES: Final = re.compile(r"\d+/\d+ nodes are available: ")


def _annotation(key: str) -> str:
    return f"metadata.annotations.{key.replace('.', chr(92) + '.')}"


WIDE: Final[dict[str, dict[str, str]]] = {
    "PodMigrationJob": {
        "by": _annotation(keys.EVICT_TRIGGER),
        "plan": _annotation(keys.MOVE_PLAN),
    }
}
"""Kind -> columns of `-o wide` besides those of the definition."""


class Beside(NamedTuple):
    """What a table shows besides the objects."""

    now: datetime | None = None  # The moment that is shown, for ages; None: unknown
    silent: Container[str] = ()  # Names of nodes whose newest usage report is too old
    reasons: Mapping[str, str] = {}  # Uid of a pending pod -> why it has no node
    ready: Mapping[Owner, int] = {}  # Workload -> number of its pods that run


_NOTHING: Final = Beside()


def object_table(
    kind: str, items: Sequence[Item], *, wide: bool, beside: Beside = _NOTHING, labels: bool = False
) -> tuple[Columns, Rows]:
    """The headers and rows of `koord get` for objects of one kind. A cell is None without a value.

    `labels`: whether to add a column with all labels.
    """
    if kind == "Pod":
        columns, rows = _pods(items, beside, wide=wide)
    elif kind == "Node":
        columns, rows = _nodes(items, beside, wide=wide)
    else:
        columns, rows = _others(kind, items, beside, wide=wide)
    if not labels:
        return columns, rows
    return [*columns, "labels"], [[*row, labels_text(item)] for row, item in zip(rows, items, strict=True)]


def _others(kind: str, items: Sequence[Item], beside: Beside, *, wide: bool) -> tuple[Columns, Rows]:
    paths, dates = _paths(kind, wide=wide)
    names = ["name"] if is_cluster_scoped(kind) else ["namespace", "name"]
    # A definition may have a column of its own called `name`, of what the object is about.
    heads = [f"target-{column}" if column in names else column for column in paths]
    counts = ["ready"] if kind in WANTED else []
    return [*names, *counts, *heads, *dates, "age"], [
        [
            *(field(item, f"metadata.{name}") for name in names),
            *(_ready(kind, item, beside.ready) for _ in counts),
            *(_cell(column, _value(item, path)) for column, path in paths.items()),
            *(age_text(_text(_value(item, path)), beside.now) for path in dates.values()),
            _age(item, beside),
        ]
        for item in items
    ]


def _paths(kind: str, *, wide: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Column -> path, and the same for columns that show how long ago something was."""
    wider = WIDE.get(kind, {}) if wide else {}
    if kind in COLUMNS:
        return {**COLUMNS[kind], **wider}, {}
    from koordcore.protocol.crd import accepted_kinds

    resource = next((found for found in accepted_kinds() if found.kind == kind and found.stored), None)
    declared = resource.columns if resource is not None else ()
    paths = {column.name.lower(): column.json_path for column in declared if column.type != "date"}
    dates = {column.name.lower(): column.json_path for column in declared if column.type == "date"}
    return {**paths, **wider}, {name: path for name, path in dates.items() if name != "age"}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _age(item: Item, beside: Beside) -> str | None:
    return age_text(field(item, "metadata.creationTimestamp") or "", beside.now)


def labels_text(item: Item) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(field(item, "metadata.labels", {}).items()))


def _ready(kind: str, item: Item, running: Mapping[Owner, int]) -> str:
    owner = Owner(kind, field(item, "metadata.namespace", ""), field(item, "metadata.name", ""))
    return f"{running.get(owner, 0)}/{field(item, WANTED[kind], 1)}"


def running_pods(pods: Iterable[Item], replica_sets: Iterable[Item]) -> dict[Owner, int]:
    """Workload -> number of its pods that run. Those of a ReplicaSet are also those of its Deployment."""
    above = {
        Owner("ReplicaSet", _namespace(each), str(field(each, "metadata.name"))): _controller(each)
        for each in replica_sets
    }
    found: Counter[Owner] = Counter()
    for pod in pods:
        owner = _controller(pod) if pod_status(pod) == "Running" else None
        while owner is not None:
            found[owner] += 1
            owner = above.get(owner)
    return dict(found)


def _namespace(item: Item) -> str:
    return str(field(item, "metadata.namespace", ""))


def _controller(item: Item) -> Owner | None:
    owners = field(item, "metadata.ownerReferences", [])
    found = next((each for each in owners if each.get("controller")), None)
    return None if found is None else Owner(found["kind"], _namespace(item), found["name"])


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


def _pods(items: Sequence[Item], beside: Beside, *, wide: bool) -> tuple[Columns, Rows]:
    from koordcore.protocol.objects import Pod
    from koordcore.protocol.qos import qos
    from koordcore.values import codec

    columns = ["namespace", "name", "status", "qos", "node", "age", *(["priority", "uid"] if wide else []), "reason"]
    return columns, [
        [
            field(item, "metadata.namespace"),
            field(item, "metadata.name"),
            pod_status(item),
            qos(codec.convert(item, Pod)),
            field(item, "spec.nodeName") or None,
            _age(item, beside),
            *([field(item, "spec.priority"), field(item, "metadata.uid")] if wide else []),
            _reason(beside.reasons.get(field(item, "metadata.uid", ""), ""), wide=wide) or None,
        ]
        for item in items
    ]


def _reason(message: str, *, wide: bool) -> str:
    """Why a pod has no node: a sentence of the scheduler, or without `wide` its reasons alone."""
    if wide:
        return message
    found = _OF_NODES.match(message)
    reasons = message[found.end() :] if found else message
    return reasons.partition(". ")[0].removesuffix(".")


def _nodes(items: Sequence[Item], beside: Beside, *, wide: bool) -> tuple[Columns, Rows]:
    rows: Rows = []
    for item in items:
        allocatable = parse_amounts(field(item, "status.allocatable", {}))
        held = {name: allocatable.get(resource) for name, resource in NODE_AMOUNTS.items()}
        rows.append(
            [
                field(item, "metadata.name"),
                node_status(item, is_silent=field(item, "metadata.name") in beside.silent),
                *(None if held[name] is None else amount_text(NODE_AMOUNTS[name], held[name] or 0) for name in held),
                _age(item, beside),
                *([labels_text(item)] if wide else []),
            ]
        )
    return ["name", "status", *NODE_AMOUNTS, "age", *(["labels"] if wide else [])], rows
