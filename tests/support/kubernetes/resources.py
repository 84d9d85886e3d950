"""Which resources the emulated API server serves: the built-in ones, and those of installed CRDs.

source    https://kubernetes.io/docs/reference/kubernetes-api/
"""

from dataclasses import dataclass, field
from typing import Any, cast

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of one API version.

    group         "" for the core group
    has_status    /status is a subresource: updates of the object leave the status alone, and the reverse
    is_custom     served for a CRD: no strategic merge patch, updates need a resourceVersion
    replicas_at   fields that lead to the replicas that /scale shows; empty: there is no scale
    schema        of a CRD's version, as written
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    has_status: bool = False
    is_custom: bool = False
    replicas_at: tuple[str, ...] = ()
    schema: Json = field(default_factory=dict[str, Any])

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1` ..."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def store_key(self) -> tuple[str, str]:
        """Objects are shared by all versions of a resource."""
        return self.group, self.plural


def _core(plural: str, kind: str, *, namespaced: bool = True, has_status: bool = False) -> Resource:
    return Resource(group="", version="v1", plural=plural, kind=kind, namespaced=namespaced, has_status=has_status)


def _of(group: str, plural: str, kind: str, *, namespaced: bool = True, has_status: bool = False) -> Resource:
    return Resource(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced, has_status=has_status)


_ADMISSION = "admissionregistration.k8s.io"
_CRDS = "apiextensions.k8s.io"

BUILT_IN = (
    _core("namespaces", "Namespace", namespaced=False, has_status=True),
    _core("nodes", "Node", namespaced=False, has_status=True),
    _core("pods", "Pod", has_status=True),
    _core("configmaps", "ConfigMap"),
    _core("secrets", "Secret"),
    _core("services", "Service", has_status=True),
    _core("serviceaccounts", "ServiceAccount"),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
    _core("persistentvolumes", "PersistentVolume", namespaced=False, has_status=True),
    _core("replicationcontrollers", "ReplicationController", has_status=True),
    _core("events", "Event"),
    _of("events.k8s.io", "events", "Event"),
    _of("apps", "replicasets", "ReplicaSet", has_status=True),
    _of("apps", "deployments", "Deployment", has_status=True),
    _of("apps", "statefulsets", "StatefulSet", has_status=True),
    _of("apps", "daemonsets", "DaemonSet", has_status=True),
    _of("batch", "jobs", "Job", has_status=True),
    _of("policy", "poddisruptionbudgets", "PodDisruptionBudget", has_status=True),
    _of("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False),
    _of("coordination.k8s.io", "leases", "Lease"),
    _of("storage.k8s.io", "storageclasses", "StorageClass", namespaced=False),
    _of("storage.k8s.io", "csidrivers", "CSIDriver", namespaced=False),
    _of("storage.k8s.io", "csinodes", "CSINode", namespaced=False),
    _of("storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False, has_status=True),
    _of("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity"),
    _of("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", namespaced=False),
    _of(_ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False),
    _of(_ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False),
    _of(_CRDS, "customresourcedefinitions", "CustomResourceDefinition", namespaced=False, has_status=True),
)


def resources_of(definition: Json) -> list[Resource]:
    """What an installed CustomResourceDefinition serves."""
    spec = cast("Json", definition["spec"])
    names = cast("Json", spec["names"])
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            has_status="status" in version.get("subresources", {}),
            is_custom=True,
            replicas_at=_fields(version.get("subresources", {}).get("scale", {}).get("specReplicasPath", "")),
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in cast("list[Json]", spec["versions"])
        if version["served"]
    ]


def _fields(path: str) -> tuple[str, ...]:
    """`.spec.replicas` as its fields."""
    return tuple(part for part in path.split(".") if part)
