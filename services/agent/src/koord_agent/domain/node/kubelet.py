"""What the kubelet tells about its node: its pods, its configuration, and the CPUs that it assigned exclusively.

    ledger (log)    pods placed on the node       their starts and stops are published
    kubelet         pods present on the node      takes precedence for containers, labels and phase

    socket          every list of pods            names pods by namespace and name, containers by name
    state file      cpu_manager_state             names pods by UID; read once a minute

While the kubelet does not answer, the last list stays. If an object cannot be parsed, its pod is *frozen*: its files
stay unchanged, and it is not evicted. Socket and state file show the same CPU manager. The socket is newer.

Source: agent spec, 4.3, 4.6, 4.7.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from koordcore.protocol.objects import without_nulls
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, CpuSet, format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO
from koordcore.values.resources import CPU, parse_resources
from koordcore.values.topology import CpuTopology, take_packed

from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json

STATIC: Final = "static"
STRICT_CPU_RESERVATION: Final = "strict-cpu-reservation"
DEFAULT_SCOPE: Final = "container"
_LEVELS: Final = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES: Final = {"container": "ContainerLevel", "pod": "PodLevel"}
STALE_MS = 60_000
"""Age of the last list above which pods that only the kubelet knows are frozen."""
CpuEntries = Mapping[str, Mapping[str, str]]
"""UID of a pod, as the kubelet has it -> container -> CPU list."""


class KubeletConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of `kubeletconfig` of /configz that the agent reads."""

    cpu_manager_policy: str = ""
    cpu_manager_policy_options: dict[str, str] = {}
    topology_manager_policy: str = ""
    topology_manager_scope: str = DEFAULT_SCOPE
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    kube_reserved: dict[str, str | int | float] = {}
    system_reserved: dict[str, str | int | float] = {}
    cgroup_driver: str = ""
    cgroup_root: str = ""

    @property
    def is_static(self) -> bool:
        """Whether the CPU manager assigns whole CPUs to containers."""
        return self.cpu_manager_policy == STATIC


def parse_configz(body: bytes) -> KubeletConfiguration:
    """Other parts of the answer, such as `logging`, are ignored.

    Raises:
        codec.DecodeError: A field has a wrong type.
        InvalidInput: The answer has no object `kubeletconfig`.
    """
    found = codec.decode(body, dict[str, Any]).get("kubeletconfig")
    if found is None:
        raise InvalidInput("an object kubeletconfig", body[:80].decode(errors="replace"))
    return kubelet_configuration(found)


def kubelet_configuration(raw: object) -> KubeletConfiguration:
    """From decoded JSON. Null entries count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type.
    """
    return codec.convert(without_nulls(raw), KubeletConfiguration)


def topology_policy(policy: str, scope: str) -> str:
    """Return the entry of `topologyPolicies` for the kubelet's topology manager.

    "None" without one (agent spec, 4.7 (8)).
    """
    if policy in _LEVELS and scope in _SCOPES:
        return _LEVELS[policy] + _SCOPES[scope]
    return "None"


def static_reserved_cpus(kubelet: KubeletConfiguration, topology: CpuTopology) -> str:
    """CPU list that a CPU manager with static policy reserves for the system; "" without (agent spec, 4.7 (6))."""
    if not kubelet.is_static:
        return ""
    try:
        if kubelet.reserved_system_cpus:
            listed = parse_cpuset(kubelet.reserved_system_cpus)
            return format_cpuset(listed) if listed <= topology.cpus else ""
        reserved = (parse_resources(part).get(CPU, ZERO) for part in (kubelet.kube_reserved, kubelet.system_reserved))
        milli = sum((quantity for quantity in reserved), ZERO).milli()
    except InvalidInput:
        return ""
    return format_cpuset(take_packed(topology, -(-milli // 1000)) or EMPTY)


def strict_cpus(kubelet: KubeletConfiguration, topology: CpuTopology) -> CpuSet:
    """The reserved CPUs if the kubelet keeps them free of all containers; otherwise none.

    Without its option `strict-cpu-reservation` (KEP-4540), containers without exclusive CPUs may use them.
    """
    if kubelet.cpu_manager_policy_options.get(STRICT_CPU_RESERVATION) != "true":
        return EMPTY
    return parse_cpuset(static_reserved_cpus(kubelet, topology))


class KubeletAllocation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """CPUs that the kubelet's CPU manager assigned to one pod, as the topology report states them.

    Namespace and name are absent if the pod is unknown.
    """

    uid: str
    cpuset: str
    managed_by_kubelet: bool = False
    namespace: str = ""
    name: str = ""


class _CpuManagerState(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    entries: dict[str, dict[str, str]] = {}


def parse_cpu_manager_state(text: str | bytes) -> Mapping[str, Mapping[str, str]]:
    """Return pod UID -> container -> CPU list.

    Raises:
        codec.DecodeError: A field has a wrong type.
    """
    return codec.decode(text, _CpuManagerState).entries


def kubelet_allocations(
    entries: Mapping[str, Mapping[str, str]], pods: Sequence[AgentPod]
) -> tuple[tuple[KubeletAllocation, ...], CpuSet]:
    """Return the CPUs that the kubelet assigned to pods, sorted by UID, and the set of all these CPUs.

    Pods labelled LS or BE, pods with CPUs of Koordinator, and invalid lists are skipped (agent spec, 4.7 (1)).
    """
    known = {pod.cgroup_uid: pod for pod in pods}
    found: list[KubeletAllocation] = []
    taken: set[int] = set()
    for uid in sorted(entries):
        pod = known.get(uid)
        if pod is not None and (pod.qos_label in ("LS", "BE") or pod.cpuset):
            continue
        cpus: set[int] = set()
        for text in entries[uid].values():
            try:
                cpus |= parse_cpuset(text.strip())
            except InvalidInput:
                continue
        if cpus:
            taken |= cpus
            found.append(
                KubeletAllocation(
                    uid=pod.uid if pod is not None else uid,
                    cpuset=format_cpuset(cpus),
                    managed_by_kubelet=True,
                    namespace=pod.namespace if pod is not None else "",
                    name=pod.name if pod is not None else "",
                )
            )
    return tuple(found), frozenset(taken)


@dataclass(frozen=True, kw_only=True)
class KnownPods:
    """The pods in the last list of the kubelet."""

    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])  # UID -> pod
    # UIDs whose newest object is invalid. The last known version stays, and the pod is not changed.
    unclear: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()  # Reasons, one sentence each
    at_ms: int | None = None  # Time of the last list in milliseconds; None: no list so far
    # Digest of an object in that list -> its pod.
    read: Mapping[bytes, AgentPod] = field(default_factory=dict[bytes, AgentPod], repr=False)

    def frozen(self, now_ms: int) -> frozenset[str]:
        """UIDs of the pods that must not be changed now, because their newest object is invalid.

        If there is no list or it is more than a minute old, they are all pods.
        """
        if self.at_ms is None or abs(now_ms - self.at_ms) > STALE_MS:
            return frozenset(self.pods)
        return self.unclear


def known_after(last: KnownPods, items: Sequence[bytes], at_ms: int) -> KnownPods:
    """Return the pods after a new list of the kubelet.

    If an object is invalid, the pod keeps its last known version and is frozen; a pod without a known version is left
    out, and so is an object without UID. An object that did not change is not parsed again.
    """
    pods: dict[str, AgentPod] = {}
    read: dict[bytes, AgentPod] = {}
    unclear: set[str] = set()
    problems: list[str] = []
    for item in items:
        digest = hashlib.blake2b(item, digest_size=16).digest()
        pod = last.read.get(digest)
        if pod is None:
            uid = _uid(item)
            if not uid:
                problems.append("the kubelet lists a pod without a uid")
                continue
            try:
                pod = agent_pod_from_json(codec.decode(item, dict[str, object]))
            except (codec.DecodeError, InvalidInput) as error:
                problems.append(f"pod {uid} is left as it is: {error}")
                if uid in last.pods:
                    pods[uid] = last.pods[uid]
                    unclear.add(uid)
                continue
        pods[pod.uid] = read[digest] = pod
    # the same object where nothing changed: whoever follows it need not look
    kept = last.pods if pods == last.pods else pods
    return KnownPods(pods=kept, unclear=frozenset(unclear), problems=tuple(problems), at_ms=at_ms, read=read)


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _uid(item: bytes) -> str:
    """Empty if the object has none. Its other fields may be invalid."""
    try:
        return codec.decode(item, _Object).metadata.uid
    except codec.DecodeError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByPod:
    """The exclusive CPUs of one pod in the answer of the kubelet's pod-resources socket."""

    namespace: str
    name: str
    cpus: Mapping[str, CpuSet]  # Container -> exclusive CPUs. Containers on shared CPUs are absent.

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def pinned_cpus(of_file: CpuEntries, held: Sequence[HeldByPod], pods: Iterable[AgentPod]) -> CpuEntries:
    """Merge the exclusive CPUs of both sources: the kubelet's UID of a pod -> container -> CPU list. The socket takes
    precedence.

    `pods` give names their UIDs: of several pods with one name, the newest that is not terminating. Unknown pods of the
    socket are left out; `unknown_pods` returns them.
    """
    by_name = _by_name(pods)
    merged = {uid: dict(entries) for uid, entries in of_file.items()}
    for one in held:
        pod = by_name.get((one.namespace, one.name))
        if pod is not None and one.cpus:
            cpus = {container: format_cpuset(found) for container, found in one.cpus.items()}
            merged[pod.cgroup_uid] = {**merged.get(pod.cgroup_uid, {}), **cpus}
    return merged


def unknown_pods(held: Iterable[HeldByPod], pods: Iterable[AgentPod]) -> tuple[str, ...]:
    """`namespace/name` of the pods in the kubelet's pod-resources socket that the agent does not know."""
    known = {(pod.namespace, pod.name) for pod in pods}
    return tuple(sorted(one.full_name for one in held if (one.namespace, one.name) not in known))


def _by_name(pods: Iterable[AgentPod]) -> Mapping[tuple[str, str], AgentPod]:
    found: dict[tuple[str, str], AgentPod] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.is_terminating, pod.created_ms or 0, pod.uid)):
        found[pod.namespace, pod.name] = pod
    return found
