"""A pod as this node's agent sees it: names, classes, requests, the directory it lives in. Parsed once per pod object.

`monitor`, `qos` and the hosts work on these values, so that nothing in the fast loop parses quantities or labels again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from koordcore.events.node import USAGE_PROFILE, PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import is_sidecar, pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import KubeQos, QosClass, kube_qos, qos, qos_raw
from koordcore.protocol.reservation import agent_reserved, node_reservation
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, CpuSet, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, parse_value
from koordcore.values.resources import Amounts

from koord_agent.domain.report import ReportedPod


@dataclass(frozen=True)
class AgentPod:
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


def _known_kube_qos(text: str) -> KubeQos:
    return KubeQos(text) if text in set(KubeQos) else KubeQos.BEST_EFFORT


class _ResourceStatus(msgspec.Struct):
    """The part of the annotation resource-status that the agent reads."""

    cpuset: str = ""


def agent_pod(pod: Pod) -> AgentPod:
    """The agent's view of a pod object.

    raises    InvalidInput for a malformed quantity (admission refuses such pods)
    """
    label = qos_raw(pod)
    return AgentPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        kube_qos=_known_kube_qos(kube_qos(pod)),
        qos_label=label.value if label is not None else "",
        qos=qos(pod).value,
        priority=priority_class(pod).value,
        requests=pod_requests(pod),
        be_requests_milli=_batch_cpu_requests(pod) if label is QosClass.BE else (),
        cpuset=_owned_cpuset(pod),
        usage_profile=pod.metadata.annotations.get(USAGE_PROFILE, ""),
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


def agent_pod_of_ledger(entry: PodOnNode) -> AgentPod:
    """The agent's view of a pod from its node's ledger (or desired state), which carries classes instead of labels.

    A class BE there stands for the label BE or for the Kubernetes class BestEffort; both count as best effort.
    """
    batch_cpu = entry.requests.get(BATCH_CPU, 0) if entry.qos == QosClass.BE else 0
    return AgentPod(
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        kube_qos=_known_kube_qos(entry.kube_qos),
        qos_label=entry.qos,
        qos=entry.qos,
        priority=entry.priority_class,
        requests=entry.requests,
        be_requests_milli=(batch_cpu,) if batch_cpu else (),
        cpuset=EMPTY,
        usage_profile=entry.usage_profile,
    )


def node_reserved_milli(
    capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity], annotations: Mapping[str, str]
) -> int:
    """Milli-cores that the system keeps: max(capacity - allocatable, annotated reservation), never negative.

    source    agent spec, 11.1; protocol spec, 7.2 (4)
    """
    return agent_reserved(node_reservation(annotations), capacity, allocatable).get(CPU, ZERO).milli()
