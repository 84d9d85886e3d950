"""Nodes, pods and other objects of the workloads, in the shapes of kube-scheduler's scheduler_perf.

nodes   4 cpu, 32 Gi, 110 pods, zones zone-1 to zone-3 in turn
pods    one container that requests 100m and 500 Mi
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import Namespace, Node, ObjectMeta, Pod, node_from_json, pod_from_json

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
ZONES = ("zone-1", "zone-2", "zone-3")


def node_name(number: int) -> str:
    """Name of a node, from 0."""
    return f"node-{number:05d}"


def node(number: int, *, zones: Sequence[str] = ZONES, giant: bool = False) -> Node:
    """A node; zones are given out in turn. giant: with room for everything."""
    name = node_name(number)
    amounts = {"cpu": "4", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    if giant:
        amounts |= {"cpu": "100000", "memory": "100Ti", "pods": "90000"}
    return node_from_json(
        {
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zones[number % len(zones)]}},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def zone_of(name: str, zones: Sequence[str] = ZONES) -> str:
    """Zone of a node by its name."""
    return zones[int(name.rpartition("-")[2]) % len(zones)]


def namespace(name: str, labels: Mapping[str, str]) -> Namespace:
    """A namespace with labels."""
    return Namespace(metadata=ObjectMeta(name=name, labels=dict(labels)))


class PodTemplate:
    """Makes the pods of one shape; everything but their names is shared.

    spec    further fields of the pod's spec, as written in YAML
    """

    def __init__(
        self,
        *,
        cpu: str = "100m",
        memory: str = "500Mi",
        priority: int = 0,
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        requests = {"cpu": cpu, "memory": memory}
        container = {"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
        self.namespace = namespace
        self.labels = dict(labels or {})
        document = {"containers": [container], "priority": priority, "schedulerName": "koord-scheduler", **spec}
        self._spec = pod_from_json({"spec": document}).spec

    def pod(
        self,
        uid: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Pod:
        """A pod whose name is its uid."""
        meta = ObjectMeta(
            name=uid,
            namespace=namespace or self.namespace,
            uid=uid,
            labels={**self.labels, **(labels or {})},
            annotations=dict(annotations or {}),
        )
        return Pod(metadata=meta, spec=self._spec)


def pod_affinity(
    kind: str, colour: str, key: str, *, required: bool, namespaces: Sequence[str] = (), selector: Any = None
) -> dict[str, Any]:
    """`spec.affinity` with one term over pods of a colour. kind: "podAffinity" or "podAntiAffinity"."""
    term: dict[str, Any] = {"topologyKey": key, "labelSelector": {"matchLabels": {"color": colour}}}
    if namespaces:
        term["namespaces"] = list(namespaces)
    if selector is not None:
        term["namespaceSelector"] = selector
    if required:
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def node_affinity(requirement: dict[str, Any], *, fields: bool = False) -> dict[str, Any]:
    """`spec.affinity` that requires one expression over labels, or over fields."""
    term = {"matchFields" if fields else "matchExpressions": [requirement]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def spread(colour: str, *, unsatisfiable: str) -> list[dict[str, Any]]:
    """`spec.topologySpreadConstraints` over zones with a skew of 5."""
    return [
        {
            "maxSkew": 5,
            "topologyKey": ZONE,
            "whenUnsatisfiable": unsatisfiable,
            "labelSelector": {"matchLabels": {"color": colour}},
        }
    ]


def elastic_quota(name: str, *, parent: str, is_parent: bool, cpu: int, memory_gib: int) -> dict[str, Any]:
    """An ElasticQuota in a namespace of its name; its max is twice its min."""
    labels = {keys.QUOTA_PARENT: parent, keys.QUOTA_IS_PARENT: "true" if is_parent else "false"}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": name, "labels": labels},
        "spec": {
            "min": {"cpu": str(cpu), "memory": f"{memory_gib}Gi"},
            "max": {"cpu": str(2 * cpu), "memory": f"{2 * memory_gib}Gi"},
        },
    }


class PlacedOn(msgspec.Struct):
    """The part of a `PodPlaced` that is looked at."""

    node: str


node_of_placement = msgspec.json.Decoder(PlacedOn).decode
