"""Facts about the work of a node's agent. Aggregate: `nodestate.<name>`. Writer: the agent of the node.

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
    """Pods that were placed on the node are running there, or the agent adopted their running processes.

    Attributes:
        pods: Uids of the pods.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class PodsStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods are no longer running on the node.

    Attributes:
        pods: Uids of the pods.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class BeCpuSuppressed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The CFS quota of the best-effort class was changed (agent spec, 11.5).

    Attributes:
        old_quota_us: Quota before the change, per 100 ms period; -1: unlimited.
        new_quota_us: Quota after the change, per 100 ms period; -1: unlimited.
        terms: Terms of the budget in milli-cores: capacity, threshold_percent, pod_non_be_used, host_non_be_used,
            system_used, budget.
        reason: One sentence for the operator.
        writes: Number of changes since the last such fact, this one included. Small changes are reported together.
        lowest_us: Lowest quota since the last such fact; 0: equal to new_quota_us.
        highest_us: Highest quota since the last such fact; 0: equal to new_quota_us.
        causes: Contentions that lowered the budget.
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
    """The suppression of the best-effort class ended, because its strategy was disabled or replaced.

    Attributes:
        old_quota_us: Quota before the release.
    """

    old_quota_us: int
    reason: str


@CATALOGUE.register(kind="nodestate")
class AgentStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node was stopped. Its pods continue to run, and the values that it set stay.

    Attributes:
        left: Knob -> value that stays in force.
    """

    left: dict[str, str] = {}


class EvictedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that the agent evicted.

    Attributes:
        releases: Amount that its end frees: milli-cores for cpu, bytes for memory.
        ended: Whether the agent ended its processes. If False, the agent only requested the eviction.
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
        feature: BECPUEvict, CPUAllocatableEvict, CPUEvict, BEMemoryEvict, MemoryAllocatableEvict or MemoryEvict.
        reason: One sentence with the numbers that led to it.
        to_release: Amount that had to be released. `unmet` is the amount that is still missing afterwards.
    """

    feature: str
    pods: list[EvictedPod]
    reason: str
    to_release: dict[str, int] = {}
    unmet: dict[str, int] = {}


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that may have caused a contention. Scores are only comparable within one fact."""

    uid: str
    namespace: str
    name: str
    qos: str
    score: float
    cpu_milli: int = 0


@CATALOGUE.register(kind="nodestate")
class InterferenceDetected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A pod is disturbed by others (agent spec, 18).

    Attributes:
        contention: Id of this contention until it ends. Mitigations name it as their cause.
        signal: psi-cpu, psi-mem, psi-io, sched-delay, mem-alloc, disk-io, network or cpi.
        value: Measured value that crossed `threshold`, in the unit of the signal.
        suspects: Pods that may have caused it, most suspicious first.
        mitigation: Actions of the agent, one sentence each; empty if it only reports.
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
    """A contention ended, or its pod is gone.

    Attributes:
        lasted_seconds: Duration on the clock of the run.
    """

    contention: str
    pod_uid: str
    signal: str
    lasted_seconds: float
    reason: str = ""


class LostPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A value that a strategy proposed and that was not written.

    `loss` is overridden, conflict or expired.
    """

    strategy: str
    value: str
    loss: str


class KnobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """All changes of one knob in a period.

    Attributes:
        knob: Directory and file, with `|MAJ:MIN` for a device.
        old: Text before the first write of the period.
        new: Text after the last write of the period.
        writes: Number of writes.
        strategies: Strategies that proposed the last value. `reason` is its audit reason, `causes` the contentions
            behind it.
        lost: Proposals for the same knob that lost; each is reported once while it keeps losing.
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
    """The agent wrote kernel files since the last such fact. The most written ones come first.

    The audit log contains every write.

    Attributes:
        seconds: Length of the period on the clock of the run.
        writes: Number of all writes in the period.
        failed: Number of writes that the kernel refused.
        omitted: Number of changed knobs that are not in `changes`, which has a size limit.
    """

    seconds: float
    writes: int
    changes: list[KnobChange]
    failed: int = 0
    omitted: int = 0


class TopologyZone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One NUMA node; cpu in milli-cores, everything else in bytes."""

    name: str
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}


class CpuCache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A last-level cache that several CPUs share. `id` is its id in the schemata of resctrl.

    Attributes:
        cpus: CPU list. `size_bytes` is 0 if unknown.
    """

    id: int
    cpus: str
    size_bytes: int = 0


@CATALOGUE.register(kind="nodestate")
class NodeTopologyReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent reported the CPUs and NUMA nodes of the node, for its NodeResourceTopology.

    It is published on a change, and always contains everything (agent spec, 4.7).

    Attributes:
        policies: Field `topologyPolicies`.
        annotations: CPU topology and basic info, shared pools, pods' CPUs, CPU manager policy, reservation, system QoS.
        l3_caches: Last-level caches, by id; empty if unknown.
    """

    policies: list[str]
    zones: list[TopologyZone]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    l3_caches: list[CpuCache] = []


class ReportedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One device of a node as its agent sees it.

    Attributes:
        type: `gpu`, `rdma` or `fpga`; with the minor it is the key on the node.
        minor: Index of the device.
        id: UUID, or bus id of an RDMA device.
        amounts: Capacity of the device by resource name: bytes of memory, 100 for percentages.
        healthy: None means that its status is unknown; such a device counts as healthy.
        code: Why it is not healthy, in one word.
        message: Why it is not healthy, for people.
        numa_node: -1 means unknown. `pcie_id` and `bus_id` are empty if they are unknown.
        has_topology: Whether the location was told at all.
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

    @property
    def key(self) -> str:
        """`type/minor/id`: the same device in another report has the same key."""
        return f"{self.type}/{self.minor}/{self.id}"


@CATALOGUE.register(kind="nodestate")
class DeviceInventoryChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The devices of the node, or their health, differ from the last report; the newest one says everything.

    Attributes:
        devices: Ascending by type and minor.
        labels: Vendor, model and driver of the GPUs, and how partitions are used.
        annotations: The partitions of the GPUs.

    Source:
        runtime spec, 9.2 to 9.4, 10.
    """

    devices: list[ReportedDevice]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
