"""Facts about the work of a node's agent. Aggregate: `nodestate.<name>`. Writer: the agent of the node.

Facts about runtime hooks: the values of pods and containers that the agent changed. Aggregate: `nodestate.<name>`.

Writer: the agent of the node. Source: runtime spec, 10.

Source:
    event-bus spec, 2.1; agent spec, 11 and 19
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="nodestate")
class AgentStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node started and took over enforcement.

    Attributes:
        host: "linux" or "simulated".
        version: Version of the agent.
    """

    host: str
    version: str


@CATALOGUE.register(kind="nodestate")
class PodsStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent saw that pods of its node run, either started by it or adopted with their running processes.

    Attributes:
        pods: Uids of the pods.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class PodsStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The processes of pods on the node ended.

    Attributes:
        pods: Uids of the pods.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class BeCpuSuppressed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent changed the CFS quota that limits the CPU of all best-effort pods on the node (agent spec, 11.5).

    Small changes are collected, so that one event may report several changes.

    Attributes:
        old_quota_us: Quota before the first change, in microseconds per period of 100 ms; -1: unlimited.
        new_quota_us: Quota after the last change, in microseconds per period of 100 ms; -1: unlimited.
        terms: Numbers that gave the last quota, in milli-cores: capacity, pod_non_be_used, host_non_be_used,
            system_used, budget. `threshold_percent` is in percent.
        reason: Why the quota was changed, one sentence for the operator.
        writes: Number of changes that this event reports, at least 1.
        lowest_us: Lowest quota among these changes; 0: equal to new_quota_us.
        highest_us: Highest quota among these changes; 0: equal to new_quota_us.
        causes: Ids of the contentions (`InterferenceDetected`) because of which the quota was lowered.
    """

    old_quota_us: int
    new_quota_us: int
    terms: dict[str, int]
    reason: str
    writes: int = 1
    lowest_us: int = 0
    highest_us: int = 0
    causes: list[str] = []


@CATALOGUE.register(kind="nodestate")
class BeCpuReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent removed its CFS quota from the best-effort pods, because CPU suppression was disabled or replaced.

    Attributes:
        old_quota_us: Quota before the release, in microseconds per period of 100 ms.
        reason: Why the quota was removed, one sentence for the operator.
    """

    old_quota_us: int
    reason: str


@CATALOGUE.register(kind="nodestate")
class AgentStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node was stopped. Its pods continue to run, and kernel files keep the values that it wrote.

    Attributes:
        left: Kernel file (directory and file name) -> value that stays in force.
    """

    left: dict[str, str] = {}


@CATALOGUE.register(kind="nodestate")
class AgentFactLeftOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The log never accepts a fact of the agent, because it is too large. This event takes its place.

    Attributes:
        type: Type of the fact, for example `NodeTopologyReported`.
        size_bytes: Size of its encoded body.
        reason: Why the log does not accept it, with its limit; one sentence.
    """

    type: str
    size_bytes: int
    reason: str


class EvictedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that the agent evicted, and the resources that the eviction releases.

    Attributes:
        releases: Resource -> amount that becomes free when the pod ends: milli-cores for cpu, bytes for memory.
        ended: True if the agent ended the pod's processes. False if it requested the eviction and the pod may still
            run.
    """

    uid: str
    namespace: str
    name: str
    releases: dict[str, int] = {}
    ended: bool = False


@CATALOGUE.register(kind="nodestate")
class PodsEvictedByAgent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent evicted pods from the node, or requested their eviction (agent spec, 12).

    Attributes:
        feature: Feature gate of the strategy: BECPUEvict, CPUAllocatableEvict, CPUEvict, BEMemoryEvict,
            MemoryAllocatableEvict or MemoryEvict.
        pods: Evicted pods in the order of their eviction.
        reason: One sentence with the numbers that led to the eviction.
        to_release: Resource -> amount that the strategy had to release: milli-cores for cpu, bytes for memory.
        unmet: Resource -> part of `to_release` that these evictions do not release.
    """

    feature: str
    pods: list[EvictedPod]
    reason: str
    to_release: dict[str, int] = {}
    unmet: dict[str, int] = {}


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that may have caused a contention, in an `InterferenceDetected`.

    Attributes:
        qos: Koordinator QoS class of the pod.
        score: Strength of the suspicion; higher is more suspicious. Compare scores only within one event.
        cpu_milli: CPU usage of the pod at that time, in milli-cores.
    """

    uid: str
    namespace: str
    name: str
    qos: str
    score: float
    cpu_milli: int = 0


@CATALOGUE.register(kind="nodestate")
class InterferenceDetected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent detected that other pods of the node disturb a pod (agent spec, 18).

    Attributes:
        contention: Id of this contention until its `InterferenceEnded`. Mitigations name it in their field `causes`.
        pod_uid: Uid of the disturbed pod; `namespace`, `name` and `qos` are of this pod too.
        signal: psi-cpu, psi-mem, psi-io, sched-delay, mem-alloc, disk-io, network or cpi.
        value: Measured value that crossed `threshold`, in the unit of the signal.
        container: Name of the disturbed container; "" if the signal is measured for the whole pod.
        suspects: Pods that may have caused it, most suspicious first.
        mitigation: Actions of the agent, one sentence each; empty if the agent only reports.
    """

    contention: str
    pod_uid: str
    namespace: str
    name: str
    qos: str
    signal: str
    value: float
    threshold: float
    container: str = ""
    suspects: list[Suspect] = []
    mitigation: list[str] = []


@CATALOGUE.register(kind="nodestate")
class InterferenceEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A contention (see `InterferenceDetected`) ended, or the disturbed pod no longer exists.

    Attributes:
        contention: Id of the contention.
        pod_uid: Uid of the disturbed pod.
        signal: Signal by which the contention was detected, such as psi-cpu.
        lasted_seconds: Time since the contention was detected, on the clock of the run.
        reason: Why the contention ended, one sentence.
    """

    contention: str
    pod_uid: str
    signal: str
    lasted_seconds: float
    reason: str = ""


class LostPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A value that a strategy of the agent proposed for a kernel file and that the agent did not write.

    Attributes:
        strategy: Name of the strategy.
        value: Text that the strategy proposed.
        loss: Why the value was not written: "overridden" (a strategy of a higher priority band proposed a value for the
            file) or "conflict" (another proposal of its band won). Proposals whose lifetime ended are not recorded.
    """

    strategy: str
    value: str
    loss: str


class KnobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """All writes of the agent to one kernel file within the period of a `KnobsChanged`.

    Attributes:
        knob: Directory and name of the file, with `|MAJ:MIN` for a block device.
        old: Text before the first write of the period.
        new: Text after the last write of the period.
        writes: Number of writes.
        strategies: Strategies that proposed the last value.
        reason: Reason of the last value, one sentence.
        causes: Ids of the contentions (`InterferenceDetected`) because of which the last value was chosen.
        lost: Proposals for this file that lost against the written value. If one keeps losing, it is reported once.
    """

    knob: str
    old: str
    new: str
    writes: int
    strategies: list[str] = []
    reason: str = ""
    causes: list[str] = []
    lost: list[LostPlan] = []


@CATALOGUE.register(kind="nodestate")
class KnobsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Summary of the kernel files that the agent wrote since its last such event. The audit log contains every write.

    Attributes:
        seconds: Length of the period on the clock of the run.
        writes: Number of all writes in the period.
        changes: Changed files, most often written first.
        failed: Number of writes that the kernel refused.
        omitted: Number of changed files that are not in `changes`, which has a size limit.
    """

    seconds: float
    writes: int
    changes: list[KnobChange]
    failed: int = 0
    omitted: int = 0


class TopologyZone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One NUMA node with its resources.

    Attributes:
        name: Name of the zone in the NodeResourceTopology, for example "node-0".
        capacity: Resource -> amount: milli-cores for cpu, bytes for everything else.
        allocatable: Resource -> amount that pods may use, in the units of `capacity`.
    """

    name: str
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}


class CpuCache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A last-level (L3) cache and the CPUs that share it.

    Attributes:
        id: Id of the cache in the `schemata` file of resctrl.
        cpus: CPUs that share the cache, as a list in the kernel's format, for example "0-3,8".
        size_bytes: Size of the cache in bytes; 0 if unknown.
    """

    id: int
    cpus: str
    size_bytes: int = 0


@CATALOGUE.register(kind="nodestate")
class NodeTopologyReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent reported the CPUs and NUMA nodes of its node, from which the NodeResourceTopology is written.

    The event is published on a change and always contains the whole report (agent spec, 4.7).

    Attributes:
        policies: Field `topologyPolicies` of the NodeResourceTopology.
        zones: NUMA nodes.
        annotations: Annotations of the NodeResourceTopology: CPU topology and basic info, shared CPU pools, CPUs of
            pods, kubelet's CPU manager policy, reservation and system QoS.
        labels: Labels of the NodeResourceTopology.
        l3_caches: Last-level caches, ascending by id; empty if unknown.
    """

    policies: list[str]
    zones: list[TopologyZone]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    l3_caches: list[CpuCache] = []


class ReportedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One device (GPU, RDMA NIC or FPGA) of a node as its agent sees it.

    Attributes:
        type: `gpu`, `rdma` or `fpga`. Type and minor together identify the device on its node.
        minor: Index of the device within its type.
        id: UUID; the bus id for an RDMA device.
        amounts: Resource name -> capacity of the device: bytes for memory, 100 for resources in percent.
        healthy: None means that the health is unknown; such a device counts as healthy.
        code: Why the device is unhealthy, in one word; "" if it is not.
        message: Why the device is unhealthy, one sentence; "" if it is not.
        has_topology: Whether the agent knows the location of the device. If False, the next three fields are unset.
        numa_node: NUMA node of the device; -1 means unknown.
        pcie_id: Id of the PCIe switch or root; "" if unknown.
        bus_id: PCI bus id; "" if unknown.
        virtual_functions: PCI bus ids of the virtual functions of an RDMA device, ascending; empty if it has none.
    """

    type: str
    minor: int
    id: str = ""
    amounts: dict[str, int] = {}
    healthy: bool | None = None
    code: str = ""
    message: str = ""
    has_topology: bool = False
    numa_node: int = -1
    pcie_id: str = ""
    bus_id: str = ""
    virtual_functions: list[str] = []

    @property
    def key(self) -> str:
        """Identity of the device on its node across reports: `type/minor/id`."""
        return f"{self.type}/{self.minor}/{self.id}"


@CATALOGUE.register(kind="nodestate")
class DeviceInventoryChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The devices of the node or their health changed. The event contains the whole inventory, not the difference.

    Attributes:
        devices: All devices, ascending by type and minor.
        labels: Labels of the Device object: vendor, model and driver of the GPUs, and how GPU partitions are used.
        annotations: Annotations of the Device object: the possible partitions of the GPUs.

    Source:
        runtime spec, 9.2 to 9.4, 10.
    """

    devices: list[ReportedDevice]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class HookedValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One value that a hook changed.

    Attributes:
        name: The changed value: a resource such as `cpuset`, or an environment variable such as `env
            NVIDIA_VISIBLE_DEVICES`.
        plugin: Plug-in whose value took effect.
        new: Text of the new value.
        old: Text of the value before; empty if there was none, or if it is unknown.
    """

    name: str
    plugin: str
    new: str
    old: str = ""


@CATALOGUE.register(kind="nodestate")
class ContainerHookApplied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Hooks of the agent changed a pod or container.

    Attributes:
        uid: UID of the pod.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container; empty for the pod itself.
        stage: Stage, such as `PreCreateContainer`; empty if the reconciler changed a running container.
        mode: `Proxy`, `NRI` or `Reconciler`.
        values: Changed values.
        reason: Why a value was not set; empty if all were set.
    """

    uid: str
    namespace: str
    pod: str
    container: str = ""
    stage: str = ""
    mode: str
    values: list[HookedValue] = []
    reason: str = ""


@CATALOGUE.register(kind="nodestate")
class ContainerHookFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hook of the agent failed for a pod or container.

    Attributes:
        uid: UID of the pod.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container; empty for the pod itself.
        stage: Stage, such as `PreCreateContainer`.
        mode: `Proxy` or `NRI`.
        plugin: Plug-in that failed.
        policy: `Fail`: the caller got the error. `Ignore`: the other hooks ran.
        error: Error of the hook.
    """

    uid: str
    namespace: str
    pod: str
    container: str = ""
    stage: str
    mode: str
    plugin: str
    policy: str
    error: str


@CATALOGUE.register(kind="nodestate")
class HookRegistrationChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent registered its hook server with the CRI proxy of the node.

    Attributes:
        endpoint: Path of the hook server's unix socket on the node.
        policy: If a hook fails, the proxy lets the kubelet's call fail (`Fail`) or pass unchanged (`Ignore`).
        stages: Stages that the proxy asks the agent about, in ascending order.
    """

    endpoint: str
    policy: str
    stages: list[str]
