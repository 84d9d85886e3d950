"""The protocol of QoS strategies. The agent and installed packages implement it.

A strategy proposes values of kernel files. It never writes them. `runner` decides which strategies are due,
one arbiter (`domain.plans.arbiter`) picks one plan for each file, and one executor writes. Source: agent spec, 10.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.values.resources import Amounts

from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.cpu_suppress import NodeView
from koord_agent.domain.strategies.group_identity import BvtKernel

RESOURCE_QOS = "resourceQOSStrategy"
RESOURCE_THRESHOLD = "resourceUsedThresholdWithBE"


class Pace(StrEnum):
    """Names the agent's flag that sets the interval of a strategy. EVERY_CYCLE: the strategy has no such flag."""

    EVERY_CYCLE = "every cycle"
    SUPPRESS = "cpu-suppress-interval-seconds"
    RECONCILE = "reconcile-interval-seconds"
    CPU_EVICT = "cpu-evict-interval-seconds"
    MEMORY_EVICT = "memory-evict-interval-seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Conditions under which a strategy runs, and the part of the NodeSLO that it gets."""

    gates: tuple[str, ...] = ()  # Feature gates. At least one must be on. Empty: the strategy needs none.
    section: str = ""  # Part of the NodeSLO that `propose` gets as its policy; "" for the whole NodeSLO
    pace: Pace = Pace.RECONCILE  # Flag that sets the interval of the strategy
    node_slo: bool = True  # Whether the strategy is skipped while the node has no valid NodeSLO


class Readings(Protocol):
    """Access to files and features of the machine for strategies, besides the snapshot of the node."""

    def read(self, file: CgroupFile) -> str | None:
        """Return the text of a kernel file; None if it cannot be read."""
        ...

    def quota_us(self, directory: str) -> int | None:
        """Return the CFS quota of a directory; -1 if unlimited, None if unreadable."""
        ...

    def tree(self, directory: str) -> tuple[str, ...]:
        """Return a cgroup directory and those below it, down to two levels, parents first; empty if it is not there."""
        ...

    def group_identity(self) -> BvtKernel:
        """Return whether this kernel supports group identity (cpu.bvt_warp_ns), and whether it is on."""
        ...

    def disks(self, now_ms: int) -> StorageInfo | None:
        """Return the disks that the last look-up found, and begin a new look-up if one is due at `now_ms`.

        Return None until the first look-up has ended, or if disks are not looked up on this machine.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Changes of other strategies by ongoing contentions. There are none unless `psi.act` is set in the NodeSLO."""

    suppress_points: int = 0  # Percentage points by which the threshold of CPU suppression is lowered
    memory_points: int = 0  # Percentage points by which the threshold of eviction for memory is lowered
    halve_io_weight: bool = False  # Whether the block-IO weight of best effort is halved
    suppress_causes: tuple[str, ...] = ()  # Ids of the contentions that lower the threshold of CPU suppression


NO_EFFECTS = Effects()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """Inputs of a strategy besides the snapshot of the node."""

    readings: Readings  # Files of the machine
    ttl_ms: int = 2_000  # Lifetime of the plans of this strategy: two of its intervals
    effects: Effects = NO_EFFECTS  # Changes of settings by ongoing contentions
    view: NodeView | None = None  # Inputs of CPU suppression; None if this cycle has no suppression
    suppress: ThresholdStrategy | None = None  # Settings of CPU suppression. None without a valid NodeSLO.
    # File that had a plan in the last cycle -> whether the file has the planned value now.
    written: Mapping[CgroupFile, bool] = field(default_factory=dict[CgroupFile, bool])
    is_last: bool = False  # Whether this is the last cycle before the agent stops


class Target(StrEnum):
    """Amount that counts as released when a pod is evicted: the request or the usage of the pod."""

    USED = "podUsed"
    REQUESTED = "podResourceRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionTask:
    """A demand to release amounts of resources by evicting pods, and the candidates."""

    feature: str  # Name of the eviction feature that demands it
    target: Target  # What counts as released: the requests of pods or their usage
    to_release: Amounts  # Resource -> amount: milli-cores for CPU kinds, bytes for memory kinds
    order: tuple[str, ...]  # UIDs of the candidates; the first is evicted first
    # UID -> amounts that the end of the pod would release. It also contains pods that are not candidates of this task
    # but may be victims of another one.
    releases: Mapping[str, Amounts]
    reason: str = ""  # One sentence with the numbers behind it


class Proposal(NamedTuple):
    """The proposal of a strategy in one cycle: values of kernel files, and evictions."""

    plans: Iterable[Plan] = ()  # At most one value for each file
    evictions: Iterable[EvictionTask] = ()  # Amounts to release by evicting pods
    problems: Iterable[str] = ()  # Parts that could not be proposed, one sentence each
    # Whether group identity must be switched on in the kernel before the plans are written.
    group_identity: bool = False


def isolating(
    look: NodeLook, state: CycleState, values: Iterable[tuple[CgroupFile, object]], *, plugin: str, reason: str
) -> list[Plan]:
    """Return plans of the band ISOLATION for files and their values, in this order."""
    return [
        Plan(
            plugin=plugin,
            band=Band.ISOLATION,
            file=file,
            value=str(value),
            created_ms=look.now_ms,
            ttl_ms=state.ttl_ms,
            reason=reason,
        )
        for file, value in values
    ]


class Strategy(Protocol):
    """A QoS strategy: proposes values of kernel files and evictions for one node. It may keep state between cycles."""

    @property
    def name(self) -> str:
        """Name of the strategy in plans, audit events and metrics."""
        ...

    @property
    def needs(self) -> Needs:
        """Conditions under which the strategy runs, and the part of the NodeSLO that it gets."""
        ...

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose plans and evictions for this cycle.

        Args:
            look: Snapshot of the node. Nothing in it changes during the cycle.
            policy: The section of the NodeSLO that `needs` names, as JSON. Empty if absent.

        Raises:
            InvalidInput: The policy is malformed. The strategy then proposes nothing until its next interval.
        """
        ...
