"""A pod as the agent of its node uses it: names, classes, requests, cgroup directory.

A pod object is parsed once, so no cycle parses quantities or labels again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
from koordcore.events.node_ledger import USAGE_PROFILE, PodDetails, PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.annotations.node import agent_reserved, node_reservation
from koordcore.protocol.objects import Container, Pod, PodStatus, ResourceRequirements, pod_from_json, without_nulls
from koordcore.protocol.pod_resources import MEMORY, is_sidecar, pod_limits, pod_requests, running_containers
from koordcore.protocol.priority import BANDS, band_of_name, priority_class, priority_value
from koordcore.protocol.qos import KubeQos, QosClass, kube_qos, qos, qos_raw
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.cpuset import CpuSet
from koordcore.values.quantity import ZERO, Quantity, parse_value
from koordcore.values.resources import Amounts, parse_amounts

FINISHED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a pod none of whose containers runs or will run again."""
OOM_KILLED: Final = "OOMKilled"
"""Reason of the end of a container that the kernel killed for lack of memory."""
VM_RUNTIME_CLASS: Final = "kata"
"""Name of the runtime class whose handler is a virtual machine, and beginning of the names of its variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPod:
    """Names, priority class and QoS class of a pod, as the usage report shows them."""

    uid: str
    namespace: str
    name: str
    priority: str
    qos: str
    # Name and id of each container if there are several; then each has its own usage in the report (manager spec,
    # 15.4).
    containers: tuple[tuple[str, str], ...] = ()


class Terminated(msgspec.Struct, rename="camel"):
    """How a container ended."""

    reason: str = ""
    finished_at: str = ""
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(msgspec.Struct):
    """The field of the present state is set, the others are None."""

    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    # Resources in force, of kubelets with in-place resize (Kubernetes 1.33); None from older ones.
    resources: ResourceRequirements | None = None


class _Address(msgspec.Struct):
    ip: str = ""


class _Status(msgspec.Struct, rename="camel"):
    pod_ips: list[_Address] = msgspec.field(default_factory=list[_Address], name="podIPs")
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    ephemeral_container_statuses: list[ContainerStatus] = []


class _Spec(msgspec.Struct, rename="camel"):
    runtime_class_name: str = ""


class PodOfKubelet(msgspec.Struct):
    """Fields of a pod object that the log does not contain."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def statuses(self) -> dict[str, ContainerStatus]:
        """By the name of the container or init container. No two of a pod have the same name."""
        return {each.name: each for each in (*self.status.container_statuses, *self.status.init_container_statuses)}


class OomEnd(NamedTuple):
    """The end of a container that the kernel killed for lack of memory, as the kubelet tells it."""

    container_id: str  # `<runtime>://<id>`
    at_ms: int  # Milliseconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContainer:
    name: str
    # `<runtime>://<id>`; "" if the container was not created yet, or is unknown without a kubelet.
    container_id: str = ""
    # Requests in force: milli-cores for cpu and batch-cpu, bytes for memory. As for limits, a resize that the kubelet
    # has deferred does not count yet.
    requests: Amounts = field(default_factory=dict[str, int], hash=False)
    # Limits in force, in the same units; an absent limit means unlimited. A resize that the kubelet has deferred does
    # not count yet.
    limits: Amounts = field(default_factory=dict[str, int], hash=False)
    # CPU limit in milli-cores that a resize asks for, and that the kubelet has not applied; None without one.
    desired_cpu_milli: int | None = None
    is_init: bool = False  # Whether it is an init container. An init container with `is_sidecar` keeps running.
    is_sidecar: bool = False
    is_running: bool = False
    oom_end: OomEnd | None = None  # Its newest end for lack of memory; None without one, or if it ended otherwise since


@dataclass(frozen=True)
class AgentPod:
    uid: str
    namespace: str
    name: str
    kube_qos: KubeQos  # Kubernetes QoS class, which decides the cgroup directory. An unknown text counts as BestEffort.
    qos_label: str  # QoS label; "" if it is absent or unknown
    qos: str  # QoS class, with its default
    priority: str  # Priority class, with its default
    # Requests as they count on the node and in the scheduler: milli-cores for cpu and batch-cpu, bytes for memory.
    # During a resize, these are the most that the pod may use.
    requests: Amounts = field(hash=False)
    # batch-cpu requests of containers, sidecars and overhead in milli-cores, if the pod has the label BE; else empty.
    be_requests_milli: tuple[int, ...]
    cpuset: CpuSet  # CPUs that it owns exclusively; empty if none
    usage_profile: str  # Text of the simulation annotation; "" without it
    # Containers in the order of the pod's spec, init containers last; empty if only the ledger knows the pod.
    containers: tuple[AgentContainer, ...] = ()
    # Ephemeral containers with a status. They have no resources, and no amount of the pod counts them.
    ephemeral: tuple[AgentContainer, ...] = ()
    # spec.overhead, in the units of requests; empty if only the ledger knows the pod, whose amounts contain it.
    overhead: Amounts = field(default_factory=dict[str, int], hash=False)
    # Requests in force, if they differ from `requests` because of a resize; else None.
    resized: Amounts | None = field(default=None, hash=False)
    runtime_class: str = ""  # spec.runtimeClassName; "" without one, or if only the ledger knows the pod
    # UID that the kubelet gave to a static pod, if `uid` is that of its mirror in the API server; else "".
    static_uid: str = ""
    # Limits of the whole pod, in the units of requests; an absent limit means unlimited.
    limits: Amounts = field(default_factory=dict[str, int], hash=False)
    spec_priority: int | None = None  # spec.priority; None if not set
    priority_value: int = 0  # spec.priority if set and not 0, else the default of the class
    phase: str = "Running"  # Kubernetes phase. A pod of the ledger counts as Running.
    created_ms: int | None = None  # Creation time of the pod object in milliseconds since the epoch; None if unknown
    is_terminating: bool = False
    owner: str = ""  # `<kind>/<name>` of its controller; "" without one
    ips: tuple[str, ...] = ()  # Its IP addresses, as the kubelet reports them; empty if only the ledger knows the pod
    is_on_host_network: bool = False  # Whether it uses the network of the machine
    # CPUs, NUMA amounts and devices that the scheduler gave to it, from the node's ledger. For a pod from another
    # source, they are in the annotations.
    allocation: Allocation = NOTHING
    labels: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @cached_property
    def is_active(self) -> bool:
        """Pending or Running."""
        return self.phase in ("Pending", "Running")

    @cached_property
    def is_finished(self) -> bool:
        """Succeeded or Failed. Such a pod requests nothing. A pod without a phase is not finished."""
        return self.phase in FINISHED

    @cached_property
    def is_in_vm(self) -> bool:
        """Whether its containers run in a virtual machine, so that they have no cgroups of their own on the node."""
        return self.runtime_class == VM_RUNTIME_CLASS or self.runtime_class.startswith(f"{VM_RUNTIME_CLASS}-")

    @cached_property
    def created(self) -> tuple[AgentContainer, ...]:
        """The containers that were created, ephemeral ones last."""
        return tuple(each for each in (*self.containers, *self.ephemeral) if each.container_id)

    @cached_property
    def cgroup_uid(self) -> str:
        """UID in the name of its cgroup directory."""
        return self.static_uid or self.uid

    @cached_property
    def is_best_effort(self) -> bool:
        """For CPU suppression: label BE or Kubernetes class BestEffort."""
        return self.qos_label == QosClass.BE or self.kube_qos is KubeQos.BEST_EFFORT

    @cached_property
    def cpu_request_milli(self) -> int:
        """cpu, or batch-cpu."""
        return self.requests.get("cpu", 0) or self.requests.get(BATCH_CPU, 0)

    @cached_property
    def memory_request_bytes(self) -> int:
        """memory, or batch-memory."""
        return self.requests.get("memory", 0) or self.requests.get(BATCH_MEMORY, 0)

    @cached_property
    def requests_in_force(self) -> Amounts:
        """From which the kubelet computes the values of the pod's cgroup."""
        return self.requests if self.resized is None else self.resized

    @cached_property
    def reported(self) -> ReportedPod:
        running = [
            (c.name, c.container_id) for c in self.containers if c.container_id and (c.is_sidecar or not c.is_init)
        ]
        return ReportedPod(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            priority=self.priority,
            qos=self.qos,
            containers=tuple(running) if len(running) > 1 else (),
        )


def _known_kube_qos(text: str) -> KubeQos:
    return KubeQos(text) if text in set(KubeQos) else KubeQos.BEST_EFFORT


def agent_pod_from_json(raw: object) -> AgentPod:
    """From a decoded pod object of the kubelet, with the ids of its containers.

    Raises:
        codec.DecodeError: A field has a wrong type.
        InvalidInput: A quantity is invalid.
    """
    return agent_pod(pod_from_json(raw), codec.convert(without_nulls(raw), PodOfKubelet))


def agent_pod(pod: Pod, of_kubelet: PodOfKubelet | None = None) -> AgentPod:
    """Raises InvalidInput: A quantity is invalid. Admission refuses such pods."""
    of_kubelet = of_kubelet or PodOfKubelet()
    status, statuses = of_kubelet.status, of_kubelet.statuses
    in_force = {name: one.resources for name, one in statuses.items() if one.resources is not None}
    desired, pod = pod, _with_resources_in_force(pod, in_force)
    requests = pod_requests(desired)
    actual = requests if pod is desired else pod_requests(msgspec.structs.replace(pod, status=PodStatus()))
    label = qos_raw(pod)
    return AgentPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        kube_qos=_known_kube_qos(kube_qos(pod)),
        qos_label=label.value if label is not None else "",
        qos=qos(pod).value,
        priority=priority_class(pod).value,
        requests=requests,
        resized=None if actual == requests else actual,
        be_requests_milli=_batch_cpu_requests(pod) if label is QosClass.BE else (),
        cpuset=allocation_of(pod.metadata.annotations).cpus,
        usage_profile=pod.metadata.annotations.get(USAGE_PROFILE, ""),
        containers=_containers(pod, statuses, desired),
        ephemeral=tuple(map(_created, status.ephemeral_container_statuses)),
        overhead=parse_amounts(pod.spec.overhead),
        runtime_class=of_kubelet.spec.runtime_class_name,
        limits=pod_limits(pod),
        spec_priority=pod.spec.priority,
        priority_value=priority_value(pod),
        phase=pod.status.phase,
        created_ms=_milliseconds(pod.metadata.creation_timestamp),
        is_terminating=pod.metadata.deletion_timestamp is not None,
        owner=next((f"{o.kind}/{o.name}" for o in pod.metadata.owner_references if o.controller), ""),
        ips=tuple(address.ip for address in status.pod_ips),
        is_on_host_network=pod.spec.host_network,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
    )


def _with_resources_in_force(pod: Pod, in_force: Mapping[str, ResourceRequirements]) -> Pod:
    """The pod with what can be resized, of its containers and of itself, as the kubelet has applied it.

    The spec has the desired ones, the status the actual ones (KEP-1287, for the pod's own KEP-5419). A request that the
    status does not have is that of the spec.
    """

    def actual(container: Container) -> Container:
        found = in_force.get(container.name)
        if found is None:
            return container
        return msgspec.structs.replace(container, resources=_applied(container.resources, found))

    spec, of_pod = pod.spec, pod.status.resources
    if spec.resources is not None and of_pod is not None:
        spec = msgspec.structs.replace(spec, resources=_applied(spec.resources, of_pod))
    if in_force:
        containers, inits = map(actual, spec.containers), map(actual, spec.init_containers)
        spec = msgspec.structs.replace(spec, containers=list(containers), init_containers=list(inits))
    return pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec)


def _applied(desired: ResourceRequirements, found: ResourceRequirements) -> ResourceRequirements:
    limits = {name: limit for name, limit in desired.limits.items() if name not in (CPU, MEMORY)}
    limits.update((name, found.limits[name]) for name in (CPU, MEMORY) if name in found.limits)
    requests = dict(desired.requests)
    requests.update((name, found.requests[name]) for name in (CPU, MEMORY) if name in found.requests)
    return ResourceRequirements(requests=requests, limits=limits)


def _containers(pod: Pod, statuses: Mapping[str, ContainerStatus], desired: Pod) -> tuple[AgentContainer, ...]:
    asked = {each.name: parse_amounts(each.resources.limits).get(CPU, 0) for each in desired.spec.containers}

    def seen(container: Container, *, is_init: bool) -> AgentContainer:
        limits = parse_amounts(container.resources.limits)
        desired_milli = 0 if is_init else asked[container.name]
        return replace(
            _created(statuses.get(container.name) or ContainerStatus(name=container.name)),
            requests=parse_amounts(container.resources.requests),
            limits=limits,
            desired_cpu_milli=desired_milli if 0 < desired_milli != limits.get(CPU, 0) else None,
            is_init=is_init,
            is_sidecar=is_init and is_sidecar(container),
        )

    running = (seen(container, is_init=False) for container in pod.spec.containers)
    return (*running, *(seen(container, is_init=True) for container in pod.spec.init_containers))


def _created(status: ContainerStatus) -> AgentContainer:
    return AgentContainer(
        name=status.name,
        container_id=status.container_id,
        is_running=status.state.running is not None,
        oom_end=_oom_end(status.state.terminated or status.last_state.terminated),
    )


def _oom_end(ended: Terminated | None) -> OomEnd | None:
    at_ms = _milliseconds(ended.finished_at) if ended is not None and ended.reason == OOM_KILLED else None
    return None if ended is None or at_ms is None else OomEnd(ended.container_id, at_ms)


def _milliseconds(rfc3339: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(rfc3339).timestamp() * 1000) if rfc3339 else None
    except ValueError:
        return None


def _batch_cpu_requests(pod: Pod) -> tuple[int, ...]:
    listed = (*(container.resources.requests for container in running_containers(pod)), pod.spec.overhead)
    requests = (amounts.get(BATCH_CPU) for amounts in listed)
    return tuple(parse_value(request) for request in requests if request is not None)


def agent_pod_of_ledger(entry: PodOnNode, details: PodDetails | None = None) -> AgentPod:
    """Convert an entry of the node's ledger, which has classes instead of labels, to a pod.

    Class BE in the ledger means label BE or Kubernetes class BestEffort. Both count as best effort. `details` are
    current labels and annotations of the pod's object; None if they are as in `entry`.
    """
    known = details or entry
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
        cpuset=entry.allocation.cpus,
        allocation=entry.allocation,
        static_uid=known.annotations.get(keys.CONFIG_MIRROR, ""),
        usage_profile=known.usage_profile,
        limits=entry.limits,
        spec_priority=entry.priority,
        priority_value=entry.priority or _default_priority(entry.priority_class),
        labels=known.labels,
        annotations=known.annotations,
    )


def pods_of_node(placed: Mapping[str, AgentPod], listed: Mapping[str, AgentPod]) -> dict[str, AgentPod]:
    """UID -> pod, of the pods of the log (`placed`) and of the kubelet (`listed`). The kubelet's object takes
    precedence.

    A static pod of the kubelet and its mirror in the log are one pod, with the UID of the mirror. Pods that the kubelet
    knows as finished are left out: nothing of them runs or is requested. Mirrors that the kubelet does not confirm
    come last, because anybody who may create pods can write their annotation.
    """
    mirrors = {(pod.static_uid, pod.namespace, pod.name): uid for uid, pod in placed.items() if pod.static_uid}
    found = dict(placed)
    for uid, pod in listed.items():
        mirror = mirrors.pop((uid, pod.namespace, pod.name), None)
        if mirror is None:
            found[uid] = pod
        else:
            found[mirror] = replace(pod, uid=mirror, static_uid=uid)
    unconfirmed = {uid: found.pop(uid) for uid in mirrors.values()}
    return {uid: pod for uid, pod in (*found.items(), *unconfirmed.items()) if not pod.is_finished}


def _default_priority(name: str) -> int:
    band = band_of_name(name)
    return BANDS[band].default if band is not None else 0


def node_reserved_milli(
    capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity], annotations: Mapping[str, str]
) -> int:
    """max(capacity - allocatable, annotation), at least 0.

    Source: agent spec, 11.1. Protocol spec, 7.2 (4).
    """
    return agent_reserved(node_reservation(annotations), capacity, allocatable).get(CPU, ZERO).milli()
