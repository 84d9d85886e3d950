"""Machines and loads of the synthetic cluster, and the objects that they are to Kubernetes and to agents."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from koordcore.events.nodestate import Suspect
from koordcore.protocol.objects import (
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
)
from support.projector.synthetic_hardware import SyntheticHardware

GIB = 1 << 30


@dataclass
class Machine:
    """A node, with what is held of it."""

    name: str
    cpu: int
    memory: int
    gpus: int
    cpu_held: int = 0
    memory_held: int = 0
    gpus_held: int = 0
    batch_cpu: int = 0
    batch_memory: int = 0
    batch_cpu_held: int = 0
    batch_memory_held: int = 0
    quota_us: int = -1
    unschedulable: bool = False
    phase: float = 0.0
    hardware: SyntheticHardware | None = None
    pods: dict[str, "Load"] = field(default_factory=lambda: dict[str, Load]())


@dataclass
class Load:
    """A pod, with the share of its requests that it uses."""

    uid: str
    namespace: str
    name: str
    qos: str
    cpu: int
    memory: int
    gpus: int
    share: float
    machine: Machine | None = None
    attempts: int = 0
    queued_at: str = ""
    ends: datetime | None = None


def node_of(machine: Machine) -> Node:
    """The node that a machine is."""
    amounts: Quantities = {"cpu": machine.cpu // 1000, "memory": f"{machine.memory // GIB}Gi", "pods": 110}
    if machine.gpus:
        amounts["nvidia.com/gpu"] = machine.gpus
    labels = {"kubernetes.io/hostname": machine.name, "topology.kubernetes.io/zone": f"zone-{machine.name[5]}"}
    return Node(
        metadata=ObjectMeta(name=machine.name, labels=labels),
        spec=NodeSpec(unschedulable=machine.unschedulable),
        status=NodeStatus(capacity=dict(amounts), allocatable=dict(amounts)),
    )


def pod_of(load: Load) -> Pod:
    """The pod that a load is."""
    labels = {"app": load.name.rsplit("-", 1)[0], "koordinator.sh/qosClass": load.qos}
    requests: Quantities = {"cpu": f"{load.cpu}m", "memory": load.memory}
    priority = 9000
    if load.qos == "BE":
        requests = {"kubernetes.io/batch-cpu": load.cpu, "kubernetes.io/batch-memory": load.memory}
        priority = 5000
    elif load.gpus:
        requests["nvidia.com/gpu"] = load.gpus
    container = Container(
        name="main", image="registry.example/app:1", resources=ResourceRequirements(requests=requests)
    )
    return Pod(
        metadata=ObjectMeta(name=load.name, namespace=load.namespace, uid=load.uid, labels=labels),
        spec=PodSpec(containers=[container], priority=priority),
    )


def spare_reservation(uid: str, created: str) -> dict[str, Any]:
    """A Reservation of two CPUs that no pod takes."""
    container = {"name": "main", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "spare", "uid": uid, "creationTimestamp": created},
        "spec": {
            "ttl": "0s",
            "owners": [{"labelSelector": {"matchLabels": {"app": "spare"}}}],
            "template": {"spec": {"containers": [container]}},
        },
    }


def suspect_of(load: Load, score: float) -> Suspect:
    """A load as an interference names it."""
    return Suspect(
        uid=load.uid, namespace=load.namespace, name=load.name, qos=load.qos, score=score, cpu_milli=load.cpu
    )


def arrived(share: float) -> float:
    """How many of all pods have been submitted after that share of the time: a morning's ramp."""
    return min(1.0, 1.08 / (1 + math.exp(-7 * (share - 0.38))) - 0.06)


def hash_text(text: str) -> int:
    """The same number for the same text in every process (unlike `hash`)."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % (1 << 128)
    return value or 1
