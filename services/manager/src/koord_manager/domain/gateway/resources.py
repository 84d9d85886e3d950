"""List the resources of the API server that are mirrored, and what of each enters the log.

Source:
    event-bus spec, 2.1; protocol spec, 9; manager spec, 2.5
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from koordcore.protocol.crd.catalogue import resource_versions

NODE_METRICS = "nodemetrics"
NODE_SLOS = "nodeslos"


class Intake(StrEnum):
    """What is done with an observed object.

    Attributes:
        TYPED: It becomes a fact with a typed part of the object (pods, nodes ...).
        CUSTOM: It becomes a fact with the object as JSON.
        TRIMMED: As CUSTOM, with only the metadata and spec that placement reads (owners, services, volumes).
        METRIC: It becomes a usage report (NodeMetric of Koordinator's node agent).
        KNOWN: It becomes no fact; its uid and spec are remembered, because this manager writes it (NodeSLO).
    """

    TYPED = "typed"
    CUSTOM = "custom"
    TRIMMED = "trimmed"
    METRIC = "metric"
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """One resource that is listed and watched.

    Attributes:
        group: API group, or empty for the core group.
        field_selector: Restricts the list, or empty for everything.
        namespace: Restricts the list to one namespace, or empty for all.
        has_sections: Whether it is the ConfigMap whose sections are validated one by one.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    intake: Intake
    field_selector: str = ""
    namespace: str = ""
    has_sections: bool = False

    @property
    def api_version(self) -> str:
        """API version such as `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Path of the collection at the API server."""
        return collection_path(self, self.namespace)

    @property
    def name(self) -> str:
        """Name in logs and metrics, such as `pods` or `configmaps(metadata.name=x)`."""
        return f"{self.plural}({self.field_selector})" if self.field_selector else self.plural


def collection_path(resource: Mirrored, namespace: str = "") -> str:
    """Return the path of a resource's collection in a namespace.

    An empty namespace stands for all namespaces, and for cluster-scoped resources.
    """
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{namespace}/{resource.plural}" if namespace else f"{root}/{resource.plural}"


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
    _of("", "persistentvolumes", "PersistentVolume", Intake.TRIMMED, namespaced=False),
    _of("", "persistentvolumeclaims", "PersistentVolumeClaim", Intake.TRIMMED),
)


def config_map(namespace: str, name: str, *, has_sections: bool = False) -> Mirrored:
    """Return the resource that stands for one ConfigMap by name, because other ConfigMaps must not be read."""
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
    """Return the custom resources of the protocol.

    Args:
        take_node_metrics: Whether NodeMetric objects come from a stock node agent; else they are ours to write.
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
    """Return every mirrored resource in the order of the first list: referenced kinds come first.

    Args:
        slo_config: Namespace and name of slo-controller-config.
        other_configs: Namespace and name of further ConfigMaps.
        take_node_metrics: Whether NodeMetric objects come from a stock node agent.
        namespace: Restricts namespaced kinds to one namespace, or empty for all (flag `--namespace`).
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
