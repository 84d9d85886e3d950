"""Which resources of the API server are mirrored, and what of each object enters the log.

source    event-bus spec, 2.1; protocol spec, 9; manager spec, 2.5
"""

from dataclasses import dataclass
from enum import StrEnum

from koordcore.protocol.crd.catalogue import resource_versions

NODE_METRICS = "nodemetrics"
NODE_SLOS = "nodeslos"


class Intake(StrEnum):
    """What becomes of an object that was seen.

    TYPED       a fact with the object's own subset (pods, nodes ...)
    CUSTOM      a fact with the object as JSON (`customspec`)
    TRIMMED     like CUSTOM, cut down to what placement reads of metadata and spec: owners, services, volumes
    METRIC      an observation (NodeMetric of a stock node agent)
    KNOWN       nothing: it is looked at only to know what the API server has (NodeSLO, which is ours to write)
    """

    TYPED = "typed"
    CUSTOM = "custom"
    TRIMMED = "trimmed"
    METRIC = "metric"
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """One resource that is listed and watched.

    group            "" for the core group
    field_selector   restricts what is listed, "" for everything
    namespace        restricts what is listed to one namespace, "" for all
    has_sections     the ConfigMap whose sections are judged one by one
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
        """`v1`, `apps/v1` ..."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Where the resource is listed."""
        return collection_path(self, self.namespace)

    @property
    def name(self) -> str:
        """For logs and metrics: `pods`, `configmaps(metadata.name=x)`."""
        return f"{self.plural}({self.field_selector})" if self.field_selector else self.plural


def collection_path(resource: Mirrored, namespace: str = "") -> str:
    """The path of a resource's collection; namespace "" for all of them and for cluster-scoped ones."""
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
    """One ConfigMap by name: others may hold what is nobody's business, and are not even read."""
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
    """The custom resources of the protocol, in the version that the protocol uses.

    take_node_metrics   NodeMetric objects come from a stock node agent; else they are ours to write
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
    """Everything that is mirrored, in the order in which it is listed first: what others refer to comes before them.

    slo_config    (namespace, name) of the slo-controller-config
    other_configs (namespace, name) of further ConfigMaps that are read
    namespace     restricts pods and other namespaced kinds to one namespace, "" for all (flag `--namespace`)
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
    if not item.namespaced or item.namespace:
        return item
    return Mirrored(
        group=item.group,
        version=item.version,
        plural=item.plural,
        kind=item.kind,
        namespaced=True,
        intake=item.intake,
        namespace=namespace,
    )
