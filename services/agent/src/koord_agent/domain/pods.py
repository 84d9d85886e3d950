"""A pod as this node's agent sees it: names, classes, requests, the directory it lives in. Parsed once per pod object.

`monitor`, `qos` and the hosts work on these values, so that nothing in the fast loop parses quantities or labels again.
"""

from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import is_sidecar, pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import KubeQos, QosClass, kube_qos, qos, qos_raw
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, CpuSet, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli, parse_value
from koordcore.values.resources import Amounts

from koord_agent.domain.report import ReportedPod

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
SIMULATED_USAGE = "simulation.koordstream.io/usage"


@dataclass(frozen=True)
class PodOnNode:
    """One pod of this node.

    kube_qos            decides its cgroup directory; an unknown status text counts as BestEffort
    qos_label           "" = no (known) label
    qos, priority       with their defaults applied
    requests            milli-cores for cpu and batch-cpu, bytes for memory
    be_requests_milli   batch-cpu requests of its containers if it is labelled BE, else empty
    cpuset              CPUs that it owns exclusively (resource-status), empty if none or unparsable
    usage_profile       text of the simulation annotation, "" without one
    """

    uid: str
    namespace: str
    name: str
    kube_qos: KubeQos
    qos_label: str
    qos: str
    priority: str
    requests: Amounts = field(hash=False)
    be_requests_milli: tuple[int, ...]
    cpuset: CpuSet
    usage_profile: str

    @cached_property
    def is_best_effort(self) -> bool:
        """Whether suppression counts it as best effort: label BE or Kubernetes class BestEffort (agent spec, 11.1)."""
        return self.qos_label == QosClass.BE or self.kube_qos is KubeQos.BEST_EFFORT

    @cached_property
    def cpu_request_milli(self) -> int:
        """Milli-cores that it asked for, of whichever kind."""
        return self.requests.get("cpu", 0) or self.requests.get(BATCH_CPU, 0)

    @cached_property
    def memory_request_bytes(self) -> int:
        """Bytes that it asked for, of whichever kind."""
        return self.requests.get("memory", 0) or self.requests.get(BATCH_MEMORY, 0)

    @cached_property
    def reported(self) -> ReportedPod:
        """Its identity in the node's report."""
        return ReportedPod(uid=self.uid, namespace=self.namespace, name=self.name, priority=self.priority, qos=self.qos)


class _ResourceStatus(msgspec.Struct):
    """The part of the annotation resource-status that the agent reads."""

    cpuset: str = ""


def pod_on_node(pod: Pod) -> PodOnNode:
    """The agent's view of a pod object.

    raises    InvalidInput for a malformed quantity (admission refuses such pods)
    """
    kube = kube_qos(pod)
    label = qos_raw(pod)
    return PodOnNode(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        kube_qos=KubeQos(kube) if kube in set(KubeQos) else KubeQos.BEST_EFFORT,
        qos_label=label.value if label is not None else "",
        qos=qos(pod).value,
        priority=priority_class(pod).value,
        requests=pod_requests(pod),
        be_requests_milli=_batch_cpu_requests(pod) if label is QosClass.BE else (),
        cpuset=_owned_cpuset(pod),
        usage_profile=pod.metadata.annotations.get(SIMULATED_USAGE, ""),
    )


def _batch_cpu_requests(pod: Pod) -> tuple[int, ...]:
    running = [*pod.spec.containers, *(c for c in pod.spec.init_containers if is_sidecar(c))]
    requests = (container.resources.requests.get(BATCH_CPU) for container in running)
    return tuple(parse_value(request) for request in requests if request is not None)


def _owned_cpuset(pod: Pod) -> CpuSet:
    text = pod.metadata.annotations.get(keys.RESOURCE_STATUS, "")
    if not text:
        return EMPTY
    try:
        return parse_cpuset(codec.decode(text, _ResourceStatus).cpuset)
    except (codec.DecodeError, InvalidInput):
        return EMPTY


class _Reservation(msgspec.Struct):
    """The part of the annotation node reservation that suppression reads."""

    resources: dict[str, str | int | float] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


def node_reserved_milli(node: Node) -> int:
    """Milli-cores that the system keeps: max(capacity - allocatable, annotated reservation), never negative.

    In the annotation the number of reservedCPUs overrides resources.cpu; a malformed annotation counts as none.
    source    agent spec, 11.1; protocol spec, 7.2 (4)
    """
    capacity = parse_milli(node.status.capacity.get("cpu", 0))
    kubelet = capacity - parse_milli(node.status.allocatable.get("cpu", 0))
    return max(kubelet, _annotated_milli(node), 0)


def _annotated_milli(node: Node) -> int:
    text = node.metadata.annotations.get(keys.NODE_RESERVATION, "")
    if not text:
        return 0
    try:
        reservation = codec.decode(text, _Reservation)
        milli = parse_milli(reservation.resources.get("cpu", 0))
        return len(parse_cpuset(reservation.reserved_cpus)) * 1000 if reservation.reserved_cpus else milli
    except (codec.DecodeError, InvalidInput):
        return 0
