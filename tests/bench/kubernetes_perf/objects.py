"""Nodes, pods and other objects of the rows, as documents for the API server.

Small nodes and pods are those of scheduler_perf. Nodes have 4 CPUs, 32 Gi and 110 pods, pods request 100m and 500 Mi.
One set of nodes serves all rows, so the one domain of `affinity` is a region, and not a zone.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from bench.kubernetes_perf.api import INITIAL_NAMESPACE, NAMESPACE
from bench.scheduler_perf.hardware import shares
from bench.scheduler_perf.objects import HOSTNAME, ZONE, ZONES, node_name, pod_affinity, spread
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from support.scheduler.devices import board, device
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.reservations import reservation

Json = dict[str, Any]
Make = Callable[[str, int], Json]
"""A pod of a name, and its number among its like."""

REGION: Final = "topology.kubernetes.io/region"
GANG: Final = 8
_SMALL: Final = {"cpu": "4", "memory": "32Gi", "pods": "110"}
_LARGE: Final = {
    "cpu": "64",
    "memory": "256Gi",
    "pods": "110",
    "koordinator.sh/gpu-core": "800",
    "koordinator.sh/gpu-memory": "640Gi",
    "koordinator.sh/gpu-memory-ratio": "800",
}


def encoded(document: Json) -> bytes:
    """Return a document as JSON."""
    return msgspec.json.encode(document)


def namespace_documents(name: str) -> list[Json]:
    """Return a namespace, with the ServiceAccount without which the API server accepts no pod."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, account]


def small_node(number: int) -> Json:
    """Return a node of 4 CPUs; zones are given out in turn, and all nodes are in one region."""
    return _node(number, _SMALL)


def large_node(number: int) -> Json:
    """Return a node of 64 CPUs and 8 GPUs."""
    return _node(number, _LARGE)


def _node(number: int, amounts: Json) -> Json:
    name = node_name(number)
    labels = {HOSTNAME: name, ZONE: ZONES[number % len(ZONES)], REGION: "region-1"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def topology(number: int) -> Json:
    """Return the NodeResourceTopology of a large node: two zones of 16 cores with two threads."""
    return node_topology(node_name(number), sockets=2, zones_per_socket=1, cores_per_zone=16)


def devices(number: int) -> Json:
    """Return the Device object of a large node: 8 GPUs in two zones."""
    return device(node_name(number), board(nics=False))


def plain(name: str, _number: int, **spec: Any) -> Json:
    """Return a pod without a constraint; `spec` are further fields of its spec."""
    amounts = {"cpu": "100m", "memory": "500Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": amounts, "requests": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def coloured(colour: str, **spec: Any) -> Make:
    """Return a maker of pods of a colour; `spec` are further fields of their spec."""

    def make(name: str, number: int) -> Json:
        document = plain(name, number, **spec)
        document["metadata"]["labels"] = {"color": colour}
        return document

    return make


def _drawn(colour: str, kind: str, key: str, *, required: bool) -> Make:
    namespaces = (NAMESPACE, INITIAL_NAMESPACE)
    return coloured(colour, affinity=pod_affinity(kind, colour, key, required=required, namespaces=namespaces))


TOGETHER: Final = _drawn("blue", "podAffinity", REGION, required=True)
"""Pods that must be in the region of pods of their colour. All nodes are in it."""
APART: Final = _drawn("green", "podAntiAffinity", HOSTNAME, required=True)
RATHER_TOGETHER: Final = _drawn("red", "podAffinity", HOSTNAME, required=False)
RATHER_APART: Final = _drawn("yellow", "podAntiAffinity", HOSTNAME, required=False)
SPREAD: Final = coloured("blue", topologySpreadConstraints=spread("blue", unsatisfiable="DoNotSchedule"))
RATHER_SPREAD: Final = coloured("blue", topologySpreadConstraints=spread("blue", unsatisfiable="ScheduleAnyway"))


def in_gang(name: str, number: int) -> Json:
    """Return a pod of a gang of 8."""
    document = plain(name, number)
    gang = f"gang-{name.rpartition('-')[0]}-{number // GANG}"
    document["metadata"]["annotations"] = {keys.GANG_NAME: gang, keys.GANG_MIN_AVAILABLE: str(GANG)}
    return document


def owner(name: str, number: int) -> Json:
    """Return a pod that may use the Reservations."""
    document = plain(name, number)
    document["metadata"]["labels"] = {"app": "web"}
    return document


def reserved(name: str, _number: int) -> Json:
    """Return a Reservation for one such pod."""
    document = reservation(name, {"cpu": "100m", "memory": "500Mi"}, allocateOnce=False)
    for key in ("uid", "creationTimestamp"):
        del document["metadata"][key]
    document["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.10"
    return document


def whole_cores(name: str, _number: int) -> Json:
    """Return a pod that binds two whole cores."""
    return _document(name, lsr_pod("cores", 4, required="FullPCPUs"))


_SHARES: Final = tuple(shares())


def gpu_share(name: str, number: int) -> Json:
    """Return a pod that asks for 20 to 80 percent of one GPU."""
    return _document(name, _SHARES[number % len(_SHARES)])


def _document(name: str, pod: Pod) -> Json:
    """Return a typed pod as a document, with a name. Of its priority only the class is given to the API server."""
    found: Json = codec.to_builtins(pod)
    found["metadata"] = {key: found["metadata"][key] for key in ("labels", "annotations") if key in found["metadata"]}
    found["metadata"]["name"] = name
    if found["spec"].pop("priority", 0):
        found["spec"]["priorityClassName"] = "koord-prod"
    for container in found["spec"]["containers"]:
        container["image"] = "registry.k8s.io/pause:3.10"
        requests = container["resources"]["requests"]
        container["resources"]["limits"] = {key: requests[key] for key in requests if "/" in key}
    return {"apiVersion": "v1", "kind": "Pod", **found}
