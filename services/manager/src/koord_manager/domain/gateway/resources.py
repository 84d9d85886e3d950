"""The resources of the API server that are mirrored, and which fields of their objects enter the log.

Source:
    event-bus spec, 2.1; protocol spec, 9; manager spec, 2.5
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from koordcore.protocol.crd.catalogue import resource_versions

_STORAGE = "storage.k8s.io"


class Intake(StrEnum):
    TYPED = "typed"  # Write a fact with a typed part of the object (pods, nodes ...)
    CUSTOM = "custom"  # Write a fact with the object as JSON
    # Write a fact with metadata and only those fields that placement reads (owners, services, storage).
    TRIMMED = "trimmed"
    METRIC = "metric"  # As `KNOWN`, and publish the status as a usage report (NodeMetric of Koordinator's node agent)
    # Write no fact. Remember the uid and spec in memory, because this manager writes the object (NodeSLO).
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    group: str  # API group, or empty for the core group
    version: str
    plural: str  # Plural name of the kind in the ids of its facts
    kind: str
    namespaced: bool
    intake: Intake  # How objects of the resource enter the log
    field_selector: str = ""  # Field selector that restricts the list, or empty for all objects
    namespace: str = ""  # Namespace to which the list is restricted, or empty for all
    # Plural name in the API of the API server; empty if it is `plural`. Two groups may use one name.
    served_as: str = ""
    has_sections: bool = False  # Whether the resource is slo-controller-config, whose sections are validated one by one

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        return collection_path(self, self.namespace)

    @property
    def name(self) -> str:
        """Name of the resource in logs and metrics, such as `pods` or `configmaps(metadata.name=x)`."""
        return f"{self.plural}({self.field_selector})" if self.field_selector else self.plural


def collection_path(resource: Mirrored, namespace: str = "") -> str:
    """Return the path of a resource's collection; an empty namespace for all, and for cluster-scoped resources."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    plural = resource.served_as or resource.plural
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _of(group: str, plural: str, kind: str, intake: Intake, *, namespaced: bool = True) -> Mirrored:
    return Mirrored(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced, intake=intake)


PODS = _of("", "pods", "Pod", Intake.TYPED)
NODES = _of("", "nodes", "Node", Intake.TYPED, namespaced=False)
NAMESPACES = _of("", "namespaces", "Namespace", Intake.TYPED, namespaced=False)
PRIORITY_CLASSES = _of("scheduling.k8s.io", "priorityclasses", "PriorityClass", Intake.TYPED, namespaced=False)
OTHERS = (
    _of("policy", "poddisruptionbudgets", "PodDisruptionBudget", Intake.CUSTOM),
    _of("", "services", "Service", Intake.TRIMMED),
    _of("apps", "replicasets", "ReplicaSet", Intake.TRIMMED),
    _of("apps", "deployments", "Deployment", Intake.TRIMMED),
    _of("apps", "statefulsets", "StatefulSet", Intake.TRIMMED),
    _of("apps", "daemonsets", "DaemonSet", Intake.TRIMMED),
    _of("batch", "jobs", "Job", Intake.TRIMMED),
    _of("", "replicationcontrollers", "ReplicationController", Intake.TRIMMED),
    replace(_of("apps.kruise.io", "clonesets", "CloneSet", Intake.TRIMMED), version="v1alpha1"),
    replace(
        _of("apps.kruise.io", "advancedstatefulsets", "StatefulSet", Intake.TRIMMED),
        version="v1beta1",
        served_as="statefulsets",
    ),
    _of(_STORAGE, "storageclasses", "StorageClass", Intake.TRIMMED, namespaced=False),
    _of(_STORAGE, "csidrivers", "CSIDriver", Intake.TRIMMED, namespaced=False),
    _of(_STORAGE, "csinodes", "CSINode", Intake.TRIMMED, namespaced=False),
    _of(_STORAGE, "volumeattachments", "VolumeAttachment", Intake.TRIMMED, namespaced=False),
    _of(_STORAGE, "csistoragecapacities", "CSIStorageCapacity", Intake.TRIMMED),
    _of("", "persistentvolumes", "PersistentVolume", Intake.TRIMMED, namespaced=False),
    _of("", "persistentvolumeclaims", "PersistentVolumeClaim", Intake.TRIMMED),
)


def config_map(namespace: str, name: str, *, has_sections: bool = False) -> Mirrored:
    """Return a resource that lists and watches one ConfigMap only, because the manager may not read other ConfigMaps.

    `has_sections`: whether it is slo-controller-config, whose sections are validated one by one.
    """
    return Mirrored(
        group="",
        version="v1",
        plural="configmaps",
        kind="ConfigMap",
        namespaced=True,
        intake=Intake.TYPED,
        field_selector=f"metadata.name={name}",
        namespace=namespace,
        has_sections=has_sections,
    )


def custom_resources(*, take_node_metrics: bool) -> tuple[Mirrored, ...]:
    """Return the custom resources of Koordinator's protocol that are mirrored.

    Args:
        take_node_metrics: Whether Koordinator's own node agent writes the status of NodeMetric objects. Then they
            become usage reports; otherwise this manager writes them.
    """
    return tuple(
        Mirrored(
            group=item.group,
            version=item.version,
            plural=item.plural,
            kind=item.kind,
            namespaced=item.scope == "Namespaced",
            intake=_intake(item.plural, take_node_metrics=take_node_metrics),
        )
        for item in resource_versions()
        if item.served and item.version == "v1alpha1"
    )


def _intake(plural: str, *, take_node_metrics: bool) -> Intake:
    match plural:
        case "nodeslos":
            return Intake.KNOWN
        case "nodemetrics":
            return Intake.METRIC if take_node_metrics else Intake.KNOWN
        case _:
            return Intake.CUSTOM


def mirrored_resources(
    *,
    slo_config: tuple[str, str],
    other_configs: tuple[tuple[str, str], ...] = (),
    take_node_metrics: bool,
    namespace: str = "",
) -> tuple[Mirrored, ...]:
    """Return every mirrored resource, in the order in which they are first listed: referenced kinds before their users.

    Args:
        slo_config: Namespace and name of slo-controller-config.
        other_configs: Namespace and name of further ConfigMaps.
        take_node_metrics: Whether Koordinator's own node agent writes the status of NodeMetric objects.
        namespace: Namespace to which namespaced kinds are restricted, or empty for all (flag `--namespace`).
    """
    found = (
        NAMESPACES,
        PRIORITY_CLASSES,
        config_map(*slo_config, has_sections=True),
        *(config_map(where, name) for where, name in other_configs),
        NODES,
        *custom_resources(take_node_metrics=take_node_metrics),
        *OTHERS,
        PODS,
    )
    if not namespace:
        return found
    return tuple(_within(item, namespace) for item in found)


def _within(item: Mirrored, namespace: str) -> Mirrored:
    return replace(item, namespace=namespace) if item.namespaced and not item.namespace else item
