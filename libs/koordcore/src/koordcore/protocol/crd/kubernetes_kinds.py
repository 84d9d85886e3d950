"""Kubernetes kinds that are mirrored as written because placement and evictions read them.

Their schemas are open and only define the fields that are read, so other fields are not validated. Of controllers
(ReplicaSet, StatefulSet, DaemonSet) only the selectors are read; no pods are created for them.

Source: scheduler-core spec, 5.6 (default spreading), 5.9 (volumes), 6 (disruption budgets).
"""

from functools import lru_cache
from typing import Any, Final, Literal

from koordcore.protocol.crd.catalogue import (
    PrinterColumn,
    ResourceVersion,
    build_schema,
    find_resource,
    resource_versions,
)

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
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_TEXT_LIST: Final[dict[str, Any]] = {"type": "array", "items": _TEXT}
_QUANTITIES: Final[dict[str, Any]] = {"type": "object", "additionalProperties": _INT_OR_STRING}


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
    return _version(group, kind, plural, short_names, schema, columns, scope)


def _version(
    group: str,
    kind: str,
    plural: str,
    short_names: tuple[str, ...],
    schema: dict[str, Any],
    columns: dict[str, str],
    scope: Scope,
) -> ResourceVersion:
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


def _storage_kinds() -> tuple[ResourceVersion, ...]:
    claim: dict[str, Any] = {
        "volumeName": _TEXT,
        "storageClassName": _TEXT,
        "accessModes": _TEXT_LIST,
        "resources": {**_OPEN, "properties": {"requests": _QUANTITIES}},
        "selector": _SELECTOR,
        "volumeMode": _TEXT,
    }
    volume: dict[str, Any] = {
        "capacity": _QUANTITIES,
        "accessModes": _TEXT_LIST,
        "claimRef": {**_OPEN, "properties": {"namespace": _TEXT, "name": _TEXT, "uid": _TEXT}},
        "storageClassName": _TEXT,
        "volumeMode": _TEXT,
        "nodeAffinity": _OPEN,
        "csi": {**_OPEN, "properties": {"driver": _TEXT}},
    }
    drivers: dict[str, Any] = {
        "type": "array",
        "items": {
            **_OPEN,
            "required": ["name"],
            "properties": {
                "name": _TEXT,
                "allocatable": {**_OPEN, "properties": {"count": {"type": "integer", "minimum": 0}}},
            },
        },
    }
    attachment: dict[str, Any] = {
        "attacher": _TEXT,
        "nodeName": _TEXT,
        "source": {**_OPEN, "properties": {"persistentVolumeName": _TEXT}},
    }
    topology: dict[str, Any] = {
        **_OPEN,
        "properties": {
            "matchLabelExpressions": {
                "type": "array",
                "items": {**_OPEN, "required": ["key"], "properties": {"key": _TEXT, "values": _TEXT_LIST}},
            }
        },
    }
    storage_class: dict[str, Any] = {
        **_OPEN,
        "required": ["provisioner"],
        "properties": {
            "provisioner": _TEXT,
            "volumeBindingMode": {"type": "string", "enum": ["Immediate", "WaitForFirstConsumer"]},
            "allowedTopologies": {"type": "array", "items": topology},
        },
    }
    capacity: dict[str, Any] = {
        **_OPEN,
        "required": ["storageClassName"],
        "properties": {
            "storageClassName": _TEXT,
            "nodeTopology": _SELECTOR,
            "capacity": _INT_OR_STRING,
            "maximumVolumeSize": _INT_OR_STRING,
        },
    }
    group = "storage.k8s.io"
    return (
        _kind(
            "",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            ("pvc",),
            claim,
            {"Status": ".status.phase", "Volume": ".spec.volumeName", "Storage-Class": ".spec.storageClassName"},
        ),
        _kind(
            "",
            "PersistentVolume",
            "persistentvolumes",
            ("pv",),
            volume,
            {
                "Capacity": ".spec.capacity.storage",
                "Status": ".status.phase",
                "Claim": ".spec.claimRef.name",
                "Storage-Class": ".spec.storageClassName",
            },
            scope="Cluster",
        ),
        _version(
            group,
            "StorageClass",
            "storageclasses",
            ("sc",),
            storage_class,
            {"Provisioner": ".provisioner", "Volume-Binding-Mode": ".volumeBindingMode"},
            "Cluster",
        ),
        _kind(group, "CSINode", "csinodes", (), {"drivers": drivers}, {"Drivers": ".spec.drivers"}, scope="Cluster"),
        _kind(
            group,
            "CSIDriver",
            "csidrivers",
            (),
            {"storageCapacity": {"type": "boolean"}},
            {"Storage-Capacity": ".spec.storageCapacity"},
            scope="Cluster",
        ),
        _kind(
            group,
            "VolumeAttachment",
            "volumeattachments",
            (),
            attachment,
            {"Attacher": ".spec.attacher", "PV": ".spec.source.persistentVolumeName", "Node": ".spec.nodeName"},
            scope="Cluster",
        ),
        _version(
            group,
            "CSIStorageCapacity",
            "csistoragecapacities",
            (),
            capacity,
            {"Storage-Class": ".storageClassName", "Capacity": ".capacity"},
            "Namespaced",
        ),
    )


@lru_cache(maxsize=1)
def kubernetes_kinds() -> tuple[ResourceVersion, ...]:
    """Return the Kubernetes kinds that placement and evictions read, such as Services and budgets."""
    budget: dict[str, Any] = {
        "selector": _SELECTOR,
        "minAvailable": _INT_OR_STRING,
        "maxUnavailable": _INT_OR_STRING,
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
        *_storage_kinds(),
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
