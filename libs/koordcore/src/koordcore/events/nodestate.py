"""Facts about the work of a node's agent, with the values that runtime hooks changed. Writer: the agent of the node.

Aggregate: `nodestate.<name>`.

Source: event-bus spec, 2.1; agent spec, 11 and 19; runtime spec, 10.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.node_messages import MachineAmount
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="nodestate")
class AgentStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node started and took over enforcement."""

    host: str  # "linux" or "simulated"
    version: str  # Version of the agent


@CATALOGUE.register(kind="nodestate")
class PodsStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent saw that pods of its node run, either started by it or adopted with their running processes."""

    pods: list[str]  # Uids of the pods


@CATALOGUE.register(kind="nodestate")
class PodsStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The processes of pods on the node ended."""

    pods: list[str]  # Uids of the pods


@CATALOGUE.register(kind="nodestate")
class BeCpuSuppressed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent changed the CFS quota that limits the CPU of all best-effort pods on the node (agent spec, 11.5).

    Small changes are collected, so that one event may report several changes.
    """

    old_quota_us: int  # Quota before the first change, in microseconds per period of 100 ms; -1: unlimited
    new_quota_us: int  # Quota after the last change, in microseconds per period of 100 ms; -1: unlimited
    # Numbers that gave the last quota, in milli-cores: capacity, pod_non_be_used, host_non_be_used, system_used,
    # budget. `threshold_percent` is in percent.
    terms: dict[str, int]
    reason: str  # Why the quota was changed, one sentence for the operator
    writes: int = 1  # Number of changes that this event reports, at least 1
    lowest_us: int = 0  # Lowest quota among these changes; 0: equal to new_quota_us
    highest_us: int = 0  # Highest quota among these changes; 0: equal to new_quota_us
    causes: list[str] = []  # Ids of the contentions (`InterferenceDetected`) because of which the quota was lowered


@CATALOGUE.register(kind="nodestate")
class BeCpuReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent removed its CFS quota from the best-effort pods, because CPU suppression was disabled or replaced."""

    old_quota_us: int  # Quota before the release, in microseconds per period of 100 ms
    reason: str  # Why the quota was removed, one sentence for the operator


@CATALOGUE.register(kind="nodestate")
class AgentStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node was stopped. Its pods continue to run, and kernel files keep the values that it wrote."""

    left: dict[str, str] = {}  # Kernel file (directory and file name) -> value that stays in force


@CATALOGUE.register(kind="nodestate")
class AgentFactLeftOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The log never accepts a fact of the agent, because it is too large. This event takes its place."""

    type: str  # Type of the fact, for example `NodeTopologyReported`
    size_bytes: int  # Size of its encoded body
    reason: str  # Why the log does not accept it, with its limit; one sentence


@CATALOGUE.register(kind="nodestate")
class NodeProblemsReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Problems of the node that last, as its agent sees them, such as a CPU topology that cannot be read.

    The event is published on a change, and contains all of them since the start of the agent.
    """

    problems: list[str]  # One sentence each, ascending; at most 20


class OomKill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A container of which the kernel killed processes for lack of memory."""

    uid: str  # Uid of its pod; `namespace` and `name` are of the pod, too
    namespace: str
    name: str
    container: str  # Name of the container; "" if the agent does not know the containers of the pod
    at: str  # RFC 3339 time of the last kill, on the clock of the node
    limit_bytes: int = 0  # Memory limit of the container; 0: it has none
    kills: int = 1  # Number of kills that the agent saw at once


@CATALOGUE.register(kind="nodestate")
class ContainersOomKilled(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The kernel killed processes of containers for lack of memory (reality, 4.16)."""

    kills: list[OomKill]  # At least one, by namespace, name and container


class EvictedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that the agent evicted, and the resources that the eviction releases."""

    uid: str
    namespace: str
    name: str
    # Resource -> amount that becomes free when the pod ends: milli-cores for cpu, bytes for memory.
    releases: dict[str, int] = {}
    # True if the agent ended the pod's processes. False if it requested the eviction and the pod may still run.
    ended: bool = False


@CATALOGUE.register(kind="nodestate")
class PodsEvictedByAgent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent evicted pods from the node, or requested their eviction (agent spec, 12)."""

    # Feature gate of the strategy: BECPUEvict, CPUAllocatableEvict, CPUEvict, BEMemoryEvict, MemoryAllocatableEvict or
    # MemoryEvict.
    feature: str
    pods: list[EvictedPod]  # Evicted pods in the order of their eviction
    reason: str  # One sentence with the numbers that led to the eviction
    # Resource -> amount that the strategy had to release: milli-cores for cpu, bytes for memory.
    to_release: dict[str, int] = {}
    unmet: dict[str, int] = {}  # Resource -> part of `to_release` that these evictions do not release


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that may have caused a contention, in an `InterferenceDetected`."""

    uid: str
    namespace: str
    name: str
    qos: str  # Koordinator QoS class of the pod
    score: float  # Strength of the suspicion; higher is more suspicious. Compare scores only within one event.
    cpu_milli: int = 0  # CPU usage of the pod at that time, in milli-cores


@CATALOGUE.register(kind="nodestate")
class InterferenceDetected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent detected that other pods of the node disturb a pod (agent spec, 18)."""

    contention: str  # Id of this contention until its `InterferenceEnded`. Mitigations name it in their field `causes`.
    pod_uid: str  # Uid of the disturbed pod; `namespace`, `name` and `qos` are of this pod too
    namespace: str
    name: str
    qos: str
    signal: str  # psi-cpu, psi-mem, psi-io, sched-delay, mem-alloc, disk-io, network or cpi
    value: float  # Measured value that crossed `threshold`, in the unit of the signal
    threshold: float
    container: str = ""  # Name of the disturbed container; "" if the signal is measured for the whole pod
    suspects: list[Suspect] = []  # Pods that may have caused it, most suspicious first
    mitigation: list[str] = []  # Actions of the agent, one sentence each; empty if the agent only reports


@CATALOGUE.register(kind="nodestate")
class InterferenceEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A contention (see `InterferenceDetected`) ended, or the disturbed pod no longer exists."""

    contention: str  # Id of the contention
    pod_uid: str  # Uid of the disturbed pod
    signal: str  # Signal by which the contention was detected, such as psi-cpu
    lasted_seconds: float  # Time since the contention was detected, on the clock of the run
    reason: str = ""  # Why the contention ended, one sentence


class LostPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A value that a strategy of the agent proposed for a kernel file and that the agent did not write."""

    strategy: str  # Name of the strategy
    value: str  # Text that the strategy proposed
    # Why the value was not written: "overridden" (a strategy of a higher priority band proposed a value for the file)
    # or "conflict" (another proposal of its band won). Proposals whose lifetime ended are not recorded.
    loss: str


class KnobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """All writes of the agent to one kernel file within the period of a `KnobsChanged`."""

    knob: str  # Directory and name of the file, with `|MAJ:MIN` for a block device
    old: str  # Text before the first write of the period
    new: str  # Text after the last write of the period
    writes: int  # Number of writes
    strategies: list[str] = []  # Strategies that proposed the last value
    reason: str = ""  # Reason of the last value, one sentence
    causes: list[str] = []  # Ids of the contentions (`InterferenceDetected`) because of which the last value was chosen
    # Proposals for this file that lost against the written value. If one keeps losing, it is reported once.
    lost: list[LostPlan] = []


@CATALOGUE.register(kind="nodestate")
class KnobsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Summary of the kernel files that the agent wrote since its last such event.

    The audit log contains every write.
    """

    seconds: float  # Length of the period on the clock of the run
    writes: int  # Number of all writes in the period
    changes: list[KnobChange]  # Changed files, most often written first
    failed: int = 0  # Number of writes that the kernel refused
    omitted: int = 0  # Number of changed files that are not in `changes`, which has a size limit


class TopologyZone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One NUMA node with its resources."""

    name: str  # Name of the zone in the NodeResourceTopology, for example "node-0"
    capacity: dict[str, MachineAmount] = {}  # Resource -> amount: milli-cores for cpu, bytes for everything else
    allocatable: dict[str, MachineAmount] = {}  # Resource -> amount that pods may use, in the units of `capacity`


class CpuCache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A last-level (L3) cache and the CPUs that share it."""

    id: int  # Id of the cache in the `schemata` file of resctrl
    cpus: str  # CPUs that share the cache, as a list in the kernel's format, for example "0-3,8"
    size_bytes: int = 0  # Size of the cache in bytes; 0 if unknown


@CATALOGUE.register(kind="nodestate")
class NodeTopologyReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent reported the CPUs and NUMA nodes of its node, from which the NodeResourceTopology is written.

    The event is published on a change and always contains the whole report (agent spec, 4.7).
    """

    policies: list[str]  # Field `topologyPolicies` of the NodeResourceTopology
    zones: list[TopologyZone]  # NUMA nodes
    # Annotations of the NodeResourceTopology: CPU topology and basic info, shared CPU pools, CPUs of pods, kubelet's
    # CPU manager policy, reservation and system QoS.
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}  # Labels of the NodeResourceTopology
    l3_caches: list[CpuCache] = []  # Last-level caches, ascending by id; empty if unknown


class ReportedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One device (GPU, RDMA NIC or FPGA) of a node as its agent sees it."""

    type: str  # `gpu`, `rdma` or `fpga`. Type and minor together identify the device on its node.
    minor: int  # Index of the device within its type
    id: str = ""  # UUID; the bus id for an RDMA device
    # Resource name -> capacity of the device: bytes for memory, 100 for resources in percent.
    amounts: dict[str, MachineAmount] = {}
    healthy: bool | None = None  # None means that the health is unknown; such a device counts as healthy
    code: str = ""  # Why the device is unhealthy, in one word; "" if it is not
    message: str = ""  # Why the device is unhealthy, one sentence; "" if it is not
    # Whether the agent knows the location of the device. If False, the next three fields are unset.
    has_topology: bool = False
    numa_node: int = -1  # NUMA node of the device; -1 means unknown
    pcie_id: str = ""  # Id of the PCIe switch or root; "" if unknown
    bus_id: str = ""  # PCI bus id; "" if unknown
    # PCI bus ids of the virtual functions of an RDMA device, ascending; empty if it has none.
    virtual_functions: list[str] = []

    @property
    def key(self) -> str:
        """Identity of the device on its node across reports: `type/minor/id`."""
        return f"{self.type}/{self.minor}/{self.id}"


@CATALOGUE.register(kind="nodestate")
class DeviceInventoryChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The devices of the node or their health changed. The event contains the whole inventory, not the difference.

    Source: runtime spec, 9.2 to 9.4, 10.
    """

    devices: list[ReportedDevice]  # All devices, ascending by type and minor
    # Labels of the Device object: vendor, model and driver of the GPUs, and how GPU partitions are used.
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}  # Annotations of the Device object: the possible partitions of the GPUs


class HookedValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One value that a hook changed."""

    # The changed value: a resource such as `cpuset`, or an environment variable such as `env NVIDIA_VISIBLE_DEVICES`.
    name: str
    plugin: str  # Plug-in whose value took effect
    new: str  # Text of the new value
    old: str = ""  # Text of the value before; empty if there was none, or if it is unknown


@CATALOGUE.register(kind="nodestate")
class ContainerHookApplied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Hooks of the agent changed a pod or container."""

    uid: str  # UID of the pod
    namespace: str  # Namespace of the pod
    pod: str  # Name of the pod
    container: str = ""  # Name of the container; empty for the pod itself
    stage: str = ""  # Stage, such as `PreCreateContainer`; empty if the reconciler changed a running container
    mode: str  # `Proxy`, `NRI` or `Reconciler`
    values: list[HookedValue] = []  # Changed values
    reason: str = ""  # Why a value was not set; empty if all were set


@CATALOGUE.register(kind="nodestate")
class ContainerHookFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hook of the agent failed for a pod or container."""

    uid: str  # UID of the pod
    namespace: str  # Namespace of the pod
    pod: str  # Name of the pod
    container: str = ""  # Name of the container; empty for the pod itself
    stage: str  # Stage, such as `PreCreateContainer`
    mode: str  # `Proxy` or `NRI`
    plugin: str  # Plug-in that failed
    policy: str  # `Fail`: the caller got the error. `Ignore`: the other hooks ran.
    error: str  # Error of the hook


@CATALOGUE.register(kind="nodestate")
class HookRegistrationChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent registered its hook server with the CRI proxy of the node."""

    endpoint: str  # Path of the hook server's unix socket on the node
    policy: str  # If a hook fails, the proxy lets the kubelet's call fail (`Fail`) or pass unchanged (`Ignore`)
    stages: list[str]  # Stages that the proxy asks the agent about, in ascending order
