"""What the agent of a node did. Aggregate: `nodestate.<name>`. Writer: that node's agent.

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
    """Pods placed on the node are running there (or their cgroups have been adopted).

    Attributes:
        pods: Uids.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class PodsStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods are no longer running on the node.

    Attributes:
        pods: Uids.
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class BeCpuSuppressed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The cfs quota of the best-effort class was changed (agent spec, 11.5).

    Attributes:
        old_quota_us: Per 100 ms period; -1 = unlimited.
        new_quota_us: Per 100 ms period; -1 = unlimited.
        terms: The budget's formula in milli-cores: capacity, threshold_percent, pod_non_be_used, host_non_be_used,
            system_used, budget.
        reason: One sentence for the operator.
        writes: Changes of the quota since the last such fact, this one included; small changes are said together.
        lowest_us: Bounds of the quota since the last such fact; 0 = equal to new_quota_us.
        highest_us: Bounds of the quota since the last such fact; 0 = equal to new_quota_us.
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
    """The suppression was lifted: strategy disabled or switched.

    Attributes:
        old_quota_us: The quota that was in force.
    """

    old_quota_us: int
    reason: str


@CATALOGUE.register(kind="nodestate")
class AgentStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node was told to stop; its pods go on unharmed, and so does what it had set.

    Attributes:
        left: Knob -> value that stays in force until an agent or somebody else changes it.
    """

    left: dict[str, str] = {}


class EvictedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A victim.

    Attributes:
        releases: What its end gives back: milli-cores for cpu kinds, bytes for memory kinds.
        ended: Its processes were ended on the node; else only the request stands.
    """

    uid: str
    namespace: str
    name: str
    releases: dict[str, int] = {}
    ended: bool = False


@CATALOGUE.register(kind="nodestate")
class PodsEvictedByAgent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent took pods off the node, or asks for it: whoever runs pods is to remove them (agent spec, 12).

    Attributes:
        feature: BECPUEvict, CPUAllocatableEvict, CPUEvict, BEMemoryEvict, MemoryAllocatableEvict or MemoryEvict.
        reason: One sentence with the numbers that led to it.
        to_release: What had to be released; unmet: what is still missing afterwards.
    """

    feature: str
    pods: list[EvictedPod]
    reason: str
    to_release: dict[str, int] = {}
    unmet: dict[str, int] = {}


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that may have caused a contention; score: how strongly, comparable within one fact only."""

    uid: str
    namespace: str
    name: str
    qos: str
    score: float
    cpu_milli: int = 0


@CATALOGUE.register(kind="nodestate")
class InterferenceDetected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A pod is disturbed in one respect (agent spec, 18).

    Attributes:
        contention: Names this contention until it ends; mitigations name it as their cause.
        signal: Psi-cpu, psi-mem, psi-io, sched-delay, mem-alloc, disk-io, network, cpi.
        value: That crossed threshold, in the signal's unit.
        suspects: Most suspicious first.
        mitigation: What the agent does about it, one sentence each; empty = it only reports.
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
    """A contention is over, or its pod is gone.

    Attributes:
        lasted_seconds: On the service's clock.
    """

    contention: str
    pod_uid: str
    signal: str
    lasted_seconds: float
    reason: str = ""


class LostPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A strategy's wish that did not come true; loss: overridden, conflict or expired."""

    strategy: str
    value: str
    loss: str


class KnobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to one knob in a while.

    Attributes:
        knob: Directory/file, with |MAJ:MIN for a device.
        old: Text before the first and after the last write.
        new: Text before the first and after the last write.
        writes: How many.
        strategies: Who wanted the last value; reason: the audit reason; causes: contentions that led to it.
        lost: Plans for the same knob that lost, each said once while it keeps losing.
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
    """Kernel files that the agent wrote since the last such fact, most written first; the audit log has every write.

    Attributes:
        seconds: How long that was, on the service's clock.
        writes: All writes of that time.
        failed: Writes that the kernel refused.
        omitted: Knobs that found no room in `changes`.
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
    """A last-level cache that CPUs share; id: as resctrl names it in its schemata.

    Attributes:
        cpus: CPU list; size_bytes: 0 = not told.
    """

    id: int
    cpus: str
    size_bytes: int = 0


@CATALOGUE.register(kind="nodestate")
class NodeTopologyReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """CPUs and NUMA nodes of the node as its agent sees them: the managed content of its NodeResourceTopology.

    Said when it changed; the newest one says everything (agent spec, 4.7).

    Attributes:
        policies: `topologyPolicies`.
        annotations: CPU topology and basic info, shared pools, pods' CPUs, CPU manager policy, reservation, system QoS.
        l3_caches: By id; empty = the machine does not tell.
    """

    policies: list[str]
    zones: list[TopologyZone]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    l3_caches: list[CpuCache] = []
