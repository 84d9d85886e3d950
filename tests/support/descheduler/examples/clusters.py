"""A cluster for each example in examples/descheduler: which pods its configuration moves, and which it leaves alone.

The nodes of an example carry a label with its name, and its pods may only run there. So the clusters of all examples
are one cluster without influence on each other. The objects are as an API server has stored them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from koordcore.values.timestamps import rfc3339

Json = dict[str, Any]

EXAMPLE: Final = "example"
"""Label of a node: the example to which it belongs."""
WEEK: Final = 7 * 86400.0
DAY: Final = 86400.0
HOUR: Final = 3600.0
LEAVES: Final = "leaves"
"""Annotation of a pod that the example moves."""
USAGE: Final = "usage-milli"
"""Annotation of a pod: the milli-cores that it uses."""


@dataclass(frozen=True, kw_only=True)
class ExampleCluster:
    """The cluster of one example.

    Attributes:
        name: The label of its nodes.
        file: Name of the file of the example, without its ending.
        nodes: The nodes.
        pods: The pods. An annotation marks those that the example moves.
        number: How many of the marked pods it moves; 0: all of them.
        closed: Names of the nodes that it closes for new pods.
        away: Whether the successors of moved pods must not return to the same node.
        costs: Names of pods -> deletion costs that it sets.
    """

    name: str
    file: str
    nodes: Sequence[Json]
    pods: Sequence[Json]
    number: int = 0
    closed: frozenset[str] = frozenset()
    away: bool = False
    costs: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def leaving(self) -> frozenset[str]:
        """Return the uids of the pods that the example may move."""
        return frozenset(pod["metadata"]["uid"] for pod in self.pods if LEAVES in pod["metadata"]["annotations"])

    @property
    def moved(self) -> int:
        """Return how many pods the example moves."""
        return self.number or len(self.leaving)


class Builder:
    """Builds the objects of one example.

    Args:
        file: Name of the file of the example, without its ending.
        now: The present time.
        prefix: Prefix of the names of all objects, so that the objects of an example may exist twice.
    """

    def __init__(self, file: str, now: datetime, prefix: str = "") -> None:
        self.file = file
        self.name = prefix + file
        self._now = now
        self._prefix = prefix

    def cluster(
        self,
        nodes: Sequence[Json],
        pods: Sequence[Json],
        *,
        number: int = 0,
        closed: frozenset[str] = frozenset(),
        away: bool = False,
        costs: Mapping[str, str] | None = None,
    ) -> ExampleCluster:
        """Return the cluster of these objects. See `ExampleCluster`."""
        return ExampleCluster(
            name=self.name,
            file=self.file,
            nodes=nodes,
            pods=pods,
            number=number,
            closed=closed,
            away=away,
            costs=costs or {},
        )

    def node(
        self,
        number: int,
        *,
        taints: Sequence[Json] = (),
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Json:
        """Return a node with 4 cores and 8 GiB."""
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        name = self.place(number)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": self._ago(2 * WEEK),
                "labels": {"kubernetes.io/hostname": name, EXAMPLE: self.name, **(labels or {})},
                "annotations": annotations or {},
            },
            "spec": {"taints": [*taints]},
            "status": {
                "capacity": amounts,
                "allocatable": dict(amounts),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def place(self, number: int) -> str:
        """Return the name of a node."""
        return f"{self.name}-{number}"

    def pod(
        self,
        name: str,
        node: int,
        *,
        namespace: str = "",
        owner: str = "web",
        kind: str = "ReplicaSet",
        age: float = HOUR,
        cpu: str = "100m",
        memory: str = "64Mi",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        phase: str = "Running",
        status: Json | None = None,
        leaves: bool = False,
        **spec: Any,
    ) -> Json:
        """Return a pod on a node that has run since it was created. `owner` "": a pod without a controller."""
        name, namespace = self._prefix + name, namespace or self.name
        version = "batch/v1" if kind == "Job" else "v1" if kind == "ReplicationController" else "apps/v1"
        owner = owner and self._prefix + owner
        reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": uid_of(namespace, owner)}
        requests = {"cpu": cpu, "memory": memory} if cpu else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{self.name}-{namespace}-{name}",
                "creationTimestamp": self._ago(age),
                "labels": labels or {},
                "annotations": {**(annotations or {}), **({LEAVES: "true"} if leaves else {})},
                "ownerReferences": [{**reference, "controller": True}] if owner else [],
            },
            "spec": {
                "nodeName": self.place(node),
                "nodeSelector": {EXAMPLE: self.name},
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
                **spec,
            },
            "status": {
                "phase": phase,
                "startTime": self._ago(age),
                "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
                **(status or {}),
            },
        }

    def _ago(self, seconds: float) -> str:
        return rfc3339(self._now - timedelta(seconds=seconds))


def uid_of(namespace: str, owner: str) -> str:
    """Return the uid of a controller."""
    return f"{namespace}-{owner}"


def owners_of(pods: Sequence[Json]) -> list[Json]:
    """Return the ReplicaSets of pods, with as many replicas as they have pods."""
    counts: dict[tuple[str, str], int] = {}
    for pod in pods:
        for reference in pod["metadata"]["ownerReferences"]:
            if reference["kind"] == "ReplicaSet":
                key = pod["metadata"]["namespace"], reference["name"]
                counts[key] = counts.get(key, 0) + 1
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": name, "uid": uid_of(namespace, name)},
            "spec": {"replicas": count, "selector": {"matchLabels": {"owner": name}}},
            "status": {"replicas": count},
        }
        for (namespace, name), count in counts.items()
    ]
