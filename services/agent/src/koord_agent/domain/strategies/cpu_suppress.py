"""CPU suppression: the CPU that best-effort pods may use now, and the plans that limit them to it.

`decide` takes an immutable view of the node. It returns a Decision with the terms of the formula, a sentence for
people, and plans.

Source: agent spec, 11. Vectors: cpu_suppress.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.resource_names import cfs_quota_text, cores
from koordcore.values.cpuset import format_cpuset

from koord_agent.domain.node.policies import CFS_QUOTA_POLICY
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.be_cpuset import (
    MIN_CPUS,
    NO_CPUS,
    CpuOwners,
    cannot_shrink,
    choose_be_cpus,
    wanted_cpus,
)

PLUGIN = "CPUSuppress"
AUDIT_REASON = "AdjustBEByNodeCPUUsage"
MIN_QUOTA_US = 2_000
UNLIMITED = -1
QUOTA_US_PER_MILLI = 100
DEAD_BAND_US_PER_CORE = 1_000
MAX_STEP_US_PER_CORE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCpu:
    """The last usage is None if there is no sample within two collect intervals."""

    is_best_effort: bool
    """Whether the pod has label BE or the Kubernetes QoS class BestEffort."""
    cpu_used_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAppCpu:
    """The last usage is None if there is no sample."""

    is_best_effort: bool
    """Whether it has QoS BE and a cgroup below the best-effort class."""
    cpu_used_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeCgroup:
    """The cgroup of the best-effort class, or of a pod or container in it, with its present CPU list."""

    directory: str
    cpuset: frozenset[int]
    is_container: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Inputs of a suppression decision, read once per cycle."""

    now_ms: int
    capacity_milli: int
    reserved_milli: int  # Milli-cores: max(capacity - allocatable, annotated reservation)
    node_cpu_used_cores: float | None  # Last CPU usage of the node in cores; None if there is no sample
    pods: tuple[PodCpu, ...]  # Last CPU usage of each pod
    orphan_cpu_used_cores: float = 0.0  # CPU usage of pods that have samples but no pod object, in cores
    host_applications: tuple[HostAppCpu, ...] = ()  # Last CPU usage of each host application
    be_root: str  # Directory of the best-effort class
    be_quota_us: int | None  # CFS quota of the class; -1: unlimited, None: unreadable
    # Directories of best effort: the root first, then pods and containers. Empty if the machine has no CPU lists.
    be_cgroups: tuple[BeCgroup, ...] = ()
    owners: CpuOwners | None = None  # Owners of CPUs; None if the CPU topology is unknown
    kubelet_static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressTerms:
    """Every number of the formula `budget` for the CPU of best-effort pods, in milli-cores and percent.

    The budget may be negative.
    """

    capacity_milli: int
    threshold_percent: int
    pod_non_be_milli: int
    host_non_be_milli: int
    system_milli: int
    reserved_milli: int
    min_percent: int | None
    budget_milli: int

    def sentence(self) -> str:
        """The formula with its numbers in cores, for people."""
        floor = "" if self.min_percent is None else f", at least {self.min_percent}% of the node"
        return (
            f"BE may use {cores(self.budget_milli)} cores = {cores(self.capacity_milli)} x {self.threshold_percent}%"
            f" - pods {cores(self.pod_non_be_milli)} - host applications {cores(self.host_non_be_milli)}"
            f" - system {cores(self.system_milli)} (reserved {cores(self.reserved_milli)}){floor}"
        )


class Action(StrEnum):
    """RECOVER: lift the limit."""

    NONE = "none"
    CFS_QUOTA = "cfs_quota"
    CPUSET = "cpuset"
    RECOVER = "recover"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressMemory:
    """State of CPU suppression between cycles: whether the quota was lifted since it last limited best effort."""

    quota_recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    action: Action  # What is done
    reason: str  # Sentence for people
    # Numbers of the formula; None if it was not computed (missing input, or disabled).
    terms: SuppressTerms | None = None
    # Quota for the budget, before small changes are skipped and steps are limited; None without a quota.
    target_quota_us: int | None = None
    old_quota_us: int | None = None  # Quota before; None if unreadable
    new_quota_us: int | None = None  # Quota after the plans are written; None without a quota
    want_cpus: int | None = None  # Number of CPUs, if best effort is limited by CPU lists; otherwise None
    cpuset: frozenset[int] | None = None  # CPU list after the plans are written; None without one
    plans: tuple[Plan, ...] = ()  # Values of kernel files that carry it out
    memory: SuppressMemory = SuppressMemory()  # State for the next decision


def lowers(decision: Decision, view: NodeView) -> bool:
    """Return whether a decision leaves best effort less CPU than it has."""
    if decision.action is Action.CFS_QUOTA:
        old, new = decision.old_quota_us, decision.new_quota_us
        return old is not None and new is not None and (old == UNLIMITED or new < old)
    has = _root_cpuset(view)
    return decision.action is Action.CPUSET and has is not None and len(decision.cpuset or has) < len(has)


def budget(view: NodeView, policy: ThresholdStrategy, node_cpu_used_cores: float) -> SuppressTerms:
    """Return the CPU that best-effort pods may use in milli-cores, with every number of the formula.

        BE = capacity * threshold / 100 - int(podNonBE * 1000) - int(hostNonBE * 1000) - int(system * 1000)
        system = max(node - all pods - all host applications, 0, reserved)

    Sums are in cores (float) and truncated per term. With min_percent the result is at least capacity * min_percent /
    100.

    Source:
        agent spec, 11.1.
    """
    pods, apps = (
        [(each.is_best_effort, used) for each in group if (used := _number(each.cpu_used_cores)) is not None]
        for group in (view.pods, view.host_applications)
    )
    pod_all = sum(used for _, used in pods) + view.orphan_cpu_used_cores
    pod_non_be = sum(used for best_effort, used in pods if not best_effort) + view.orphan_cpu_used_cores
    host_all = sum(used for _, used in apps)
    host_non_be = sum(used for best_effort, used in apps if not best_effort)
    system = max(node_cpu_used_cores - pod_all - host_all, 0.0, view.reserved_milli / 1000)
    pod_milli, host_milli, system_milli = int(pod_non_be * 1000), int(host_non_be * 1000), int(system * 1000)
    result = view.capacity_milli * policy.cpu_suppress_threshold_percent // 100 - pod_milli - host_milli - system_milli
    if policy.cpu_suppress_min_percent is not None:
        result = max(result, view.capacity_milli * policy.cpu_suppress_min_percent // 100)
    return SuppressTerms(
        capacity_milli=view.capacity_milli,
        threshold_percent=policy.cpu_suppress_threshold_percent,
        pod_non_be_milli=pod_milli,
        host_non_be_milli=host_milli,
        system_milli=system_milli,
        reserved_milli=view.reserved_milli,
        min_percent=policy.cpu_suppress_min_percent,
        budget_milli=result,
    )


def _number(used: float | None) -> float | None:
    """None for what is no number: it counts as no sample."""
    return used if used is not None and isfinite(used) else None


def next_quota_us(budget_milli: int, current_us: int, capacity_milli: int) -> tuple[int, str]:
    """Return the next CPU quota of the best-effort class, and a remark if it differs from the target.

    target = max(budget * 100, 2000). Against a limited current quota, a change below 1 % of the node is skipped
    (unless the target is the floor), and a raise is at most 10 % of the node. A lower quota applies at once. Against
    an unlimited quota neither rule applies (D-18).

    Args:
        current_us: Present quota in microseconds per period of 100 ms; -1 = unlimited.

    Returns:
        Quota and remark. The quota is the current one if nothing changes; the remark is "" if it is the target.

    Source:
        agent spec, 11.5.
    """
    cores = -(-capacity_milli // 1000)
    target = max(budget_milli * QUOTA_US_PER_MILLI, MIN_QUOTA_US)
    if current_us == UNLIMITED:
        return target, "from unlimited straight to the target"
    if abs(target - current_us) < cores * DEAD_BAND_US_PER_CORE and target != MIN_QUOTA_US:
        return current_us, "change is below 1% of the node"
    if target - current_us > cores * MAX_STEP_US_PER_CORE:
        return current_us + cores * MAX_STEP_US_PER_CORE, "raise limited to 10% of the node"
    return target, "floor" if target == MIN_QUOTA_US else "target"


def decide(
    view: NodeView,
    policy: ThresholdStrategy | None,
    memory: SuppressMemory = SuppressMemory(),
    *,
    ttl_ms: int = 2_000,
) -> Decision:
    """Decide how much CPU best-effort pods may use in this cycle, and how they are limited to it.

    On a node of at most 2 CPUs, the quota takes the place of CPU lists (decision 0051).

    Args:
        policy: Settings; None without a valid NodeSLO. Then no limit is set or lifted.

    Source:
        agent spec, 11 (order of checks).
    """
    if policy is None:
        return _nothing(view, memory, "no valid suppression policy for this node, last values stay")
    if not policy.enable:
        return _recover(view, memory, ttl_ms)
    if view.capacity_milli <= 0:
        return _nothing(view, memory, "node capacity is unknown, last values stay")
    if not view.pods:
        return _nothing(view, memory, "no pods on this node, last values stay")
    used = _number(view.node_cpu_used_cores)
    if used is None:
        return _nothing(view, memory, "no recent sample of the node's cpu, last values stay")
    terms = budget(view, policy, used)
    if policy.cpu_suppress_policy == CFS_QUOTA_POLICY:
        return _by_quota(view, terms, ttl_ms)
    if cannot_shrink(len(view.owners.cpus) if view.owners else view.capacity_milli // 1000):
        return _by_quota(view, terms, ttl_ms, why=f"; by quota, because a CPU list has at least {MIN_CPUS} CPUs")
    return _by_cpuset(view, terms, memory, ttl_ms)


def _nothing(view: NodeView, memory: SuppressMemory, reason: str, terms: SuppressTerms | None = None) -> Decision:
    return Decision(
        action=Action.NONE,
        reason=reason,
        terms=terms,
        old_quota_us=view.be_quota_us,
        new_quota_us=view.be_quota_us,
        cpuset=_root_cpuset(view),
        memory=memory,
    )


def _root_cpuset(view: NodeView) -> frozenset[int] | None:
    return view.be_cgroups[0].cpuset if view.be_cgroups else None


def _by_quota(view: NodeView, terms: SuppressTerms, ttl_ms: int, *, why: str = "") -> Decision:
    """CPU lists that suppression has reduced are restored. `why` is the end of the sentence."""
    memory = SuppressMemory(quota_recovered=False)
    if view.be_quota_us is None or view.be_quota_us < UNLIMITED:
        return _nothing(view, memory, f"quota of {view.be_root} is unreadable, this cycle is skipped", terms)
    quota, remark = next_quota_us(terms.budget_milli, view.be_quota_us, view.capacity_milli)
    target = max(terms.budget_milli * QUOTA_US_PER_MILLI, MIN_QUOTA_US)
    stays = quota == view.be_quota_us and target != MIN_QUOTA_US
    plans = () if stays else (_quota_plan(view, quota, Band.SUPPRESS, ttl_ms),)
    change = f"quota {cfs_quota_text(view.be_quota_us)} -> {cfs_quota_text(quota)} ({remark})"
    return Decision(
        action=Action.NONE if stays else Action.CFS_QUOTA,
        reason=f"{terms.sentence()}; {change}{why}",
        terms=terms,
        target_quota_us=target,
        old_quota_us=view.be_quota_us,
        new_quota_us=quota,
        cpuset=_root_cpuset(view),
        plans=(*plans, *_cpuset_recovery(view, ttl_ms)),
        memory=memory,
    )


def _by_cpuset(view: NodeView, terms: SuppressTerms, memory: SuppressMemory, ttl_ms: int) -> Decision:
    if view.owners is None or not view.be_cgroups:
        return _nothing(view, memory, "CPU topology or the best-effort CPU list is unknown, last values stay", terms)
    old = view.be_cgroups[0].cpuset
    want = wanted_cpus(terms.budget_milli, len(old), len(view.owners.cpus))
    chosen = choose_be_cpus(want, view.owners)
    recovered = _quota_recovery(view, memory, ttl_ms)
    if not chosen:
        return Decision(
            action=Action.NONE,
            reason=f"{terms.sentence()}; {want} CPUs wanted, but no CPU is left for best effort: CPU list stays",
            terms=terms,
            old_quota_us=view.be_quota_us,
            new_quota_us=view.be_quota_us,
            want_cpus=want,
            cpuset=old,
            memory=memory,
        )
    few = f" ({want} wanted, no other is left for best effort)" if len(chosen) < want else ""
    wide = view.owners.recovery_set if view.kubelet_static else chosen
    plans = tuple(
        _cpuset_plan(view, cgroup, chosen if cgroup.is_container else wide, Band.SUPPRESS, ttl_ms)
        for cgroup in view.be_cgroups
    )
    return Decision(
        action=Action.CPUSET,
        reason=f"{terms.sentence()}; CPUs {format_cpuset(old)} -> {format_cpuset(chosen)}{few}",
        terms=terms,
        old_quota_us=view.be_quota_us,
        new_quota_us=UNLIMITED if recovered else view.be_quota_us,
        want_cpus=want,
        cpuset=chosen,
        plans=(*plans, *recovered),
        memory=SuppressMemory(quota_recovered=True),
    )


def _recover(view: NodeView, memory: SuppressMemory, ttl_ms: int) -> Decision:
    """Restore the limits that suppression has set, after it was switched off."""
    plans = (*_quota_recovery(view, memory, ttl_ms), *_cpuset_recovery(view, ttl_ms))
    quota = UNLIMITED if any(plan.file.resource == "cpu.cfs_quota_us" for plan in plans) else view.be_quota_us
    recovery = view.owners.recovery_set if view.owners else NO_CPUS
    return Decision(
        action=Action.RECOVER if plans else Action.NONE,
        reason="suppression is off: quota and CPU lists restored"
        if plans
        else "suppression is off, nothing to restore",
        old_quota_us=view.be_quota_us,
        new_quota_us=quota,
        cpuset=recovery or _root_cpuset(view),
        plans=plans,
        memory=SuppressMemory(quota_recovered=True),
    )


def _quota_recovery(view: NodeView, memory: SuppressMemory, ttl_ms: int) -> tuple[Plan, ...]:
    """Once per change of policy. A quota that another writer sets later stays."""
    if memory.quota_recovered or view.be_quota_us in (None, UNLIMITED):
        return ()
    return (_quota_plan(view, UNLIMITED, Band.RECOVER, ttl_ms),)


def _cpuset_recovery(view: NodeView, ttl_ms: int) -> tuple[Plan, ...]:
    """Plans that restore the CPU list of every best-effort directory (agent spec, 11.4)."""
    if view.owners is None:
        return ()
    recovery = view.owners.recovery_set
    if not recovery:
        return ()
    return tuple(
        _cpuset_plan(view, cgroup, recovery, Band.RECOVER, ttl_ms)
        for cgroup in view.be_cgroups
        if cgroup.cpuset != recovery
    )


def _quota_plan(view: NodeView, quota_us: int, band: Band, ttl_ms: int) -> Plan:
    return _plan(view, CgroupFile(view.be_root, "cpu.cfs_quota_us"), str(quota_us), band, ttl_ms)


def _cpuset_plan(view: NodeView, cgroup: BeCgroup, cpus: frozenset[int], band: Band, ttl_ms: int) -> Plan:
    return _plan(view, CgroupFile(cgroup.directory, "cpuset.cpus"), format_cpuset(cpus), band, ttl_ms)


def _plan(view: NodeView, file: CgroupFile, value: str, band: Band, ttl_ms: int) -> Plan:
    return Plan(
        plugin=PLUGIN,
        band=band,
        file=file,
        value=value,
        created_ms=view.now_ms,
        ttl_ms=ttl_ms,
        reason=AUDIT_REASON,
    )
