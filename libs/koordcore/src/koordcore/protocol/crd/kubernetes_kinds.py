"""Kubernetes kinds that are mirrored as written because placement and evictions read them.

Their schemas are open and only define the fields that are read, so other fields are not validated. Of controllers
(ReplicaSet, StatefulSet, DaemonSet) only the selectors are read; no pods are created for them.

Source:
    scheduler-core spec, 5.6 (default spreading), 5.9 (volumes), 6 (disruption budgets)
"""

from functools import lru_cache
from typing import Any, Final, Literal

from koordcore.protocol.crd.catalogue import PrinterColumn, ResourceVersion, find_resource, resource_versions
from koordcore.protocol.crd.schema import build_schema

Scope = Literal["Cluster", "Namespaced"]

_OPEN: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: Final[dict[str, Any]] = {"type": "object", "additionalProperties": {"type": "string"}}
_INT_OR_STRING: Final[dict[str, Any]] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
}
_SELECTOR: Final[dict[str, Any]] = {
    **_OPEN,
    "properties": {
        "matchLabels": _TEXTS,
        "matchExpressions": {
            "type": "array",
            "items": {
                **_OPEN,
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
_ACCESS_MODES: Final[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}


def _kind(
    group: str,
    kind: str,
    plural: str,
    short_names: tuple[str, ...],
    spec: dict[str, Any],
    columns: dict[str, str],
    *,
    required: tuple[str, ...] = (),
    scope: Scope = "Namespaced",
) -> ResourceVersion:
    """Return a kind in version v1. `columns`: name -> path below the object."""
    schema: dict[str, Any] = {
        **_OPEN,
        "required": ["spec"],
        "properties": {"spec": {**_OPEN, "required": list(required), "properties": spec}, "status": _OPEN},
    }
    return ResourceVersion(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        scope=scope,
        short_names=short_names,
        served=True,
        stored=True,
        has_status=False,
        columns=tuple(PrinterColumn(name=name, type="string", json_path=path) for name, path in columns.items()),
        schema=build_schema(schema, kind),
    )


def _controller(kind: str, short_name: str) -> ResourceVersion:
    columns = {} if kind == "DaemonSet" else {"Replicas": ".spec.replicas"}
    spec: dict[str, Any] = {"selector": _SELECTOR, "replicas": {"type": "integer", "minimum": 0}}
    return _kind("apps", kind, f"{kind.lower()}s", (short_name,), spec, columns, required=("selector",))


@lru_cache(maxsize=1)
def kubernetes_kinds() -> tuple[ResourceVersion, ...]:
    """Return the Kubernetes kinds that placement and evictions read, such as Services and budgets."""
    budget: dict[str, Any] = {
        "selector": _SELECTOR,
        "minAvailable": _INT_OR_STRING,
        "maxUnavailable": _INT_OR_STRING,
    }
    claim: dict[str, Any] = {
        "volumeName": {"type": "string"},
        "storageClassName": {"type": "string"},
        "accessModes": _ACCESS_MODES,
    }
    return (
        _kind(
            "policy",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            ("pdb",),
            budget,
            {
                "Min-Available": ".spec.minAvailable",
                "Max-Unavailable": ".spec.maxUnavailable",
                "Allowed-Disruptions": ".status.disruptionsAllowed",
            },
        ),
        _kind("", "Service", "services", ("svc",), {"selector": _TEXTS}, {}),
        _kind(
            "",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            ("pvc",),
            claim,
            {"Volume": ".spec.volumeName", "Storage-Class": ".spec.storageClassName"},
        ),
        _kind(
            "",
            "PersistentVolume",
            "persistentvolumes",
            ("pv",),
            {"nodeAffinity": _OPEN, "accessModes": _ACCESS_MODES},
            {"Storage-Class": ".spec.storageClassName"},
            scope="Cluster",
        ),
        _controller("ReplicaSet", "rs"),
        _controller("StatefulSet", "sts"),
        _controller("DaemonSet", "ds"),
    )


@lru_cache(maxsize=1)
def accepted_kinds() -> tuple[ResourceVersion, ...]:
    """Return all kinds that the log contains as `customspec`: custom resources, and some Kubernetes kinds."""
    return (*resource_versions(), *kubernetes_kinds())


def find_accepted(api_version: str, kind: str) -> ResourceVersion | None:
    """Return the served version of a kind that the log contains as `customspec`; None for other kinds."""
    found = find_resource(api_version, kind)
    if found is not None:
        return found
    return next((each for each in kubernetes_kinds() if (each.api_version, each.kind) == (api_version, kind)), None)
