"""Caps of antagonists: pods that disturb another pod get a small CPU quota for some minutes.

`cpi_detection` chooses the pods. While a cap lasts, every cycle proposes a plan with the highest priority for the
quota. After its end, a plan of low priority is proposed until the file has the previous quota. If an agent is killed,
its caps stay; the next agent recognises and lifts them. On cgroup v1, containers with a larger quota are capped with
their pod, because the kernel refuses a quota of the pod below theirs.

Source: agent spec, 18 (antagonist).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from koordcore.protocol.resource_names import BATCH_CPU, CPU

from koord_agent.domain.kernel.cfs_bandwidth import QUOTA, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import milli_to_quota_us
from koord_agent.domain.metrics import cpi as rules
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.contention.contentions import VICTIMS
from koord_agent.domain.strategies.strategy import CycleState, Needs, Pace, Proposal

PLUGIN = "CPI"
AUDIT_REASON = "CapAntagonist"


@dataclass(slots=True)
class _Cap:
    quota_us: int
    before_us: int
    since_ms: int
    lasts_ms: int
    cause: str
    # Directory of a capped container -> its quota before.
    containers: dict[str, int] = field(default_factory=dict[str, int])

    def is_over(self, now_ms: int) -> bool:
        # a clock that was set back must not hold a pod down for longer
        return not 0 <= now_ms - self.since_ms < self.lasts_ms


@dataclass(slots=True)
class Caps:
    """The capped pods of one node. Only its `CpiDetection` changes them."""

    _caps: dict[str, _Cap] = field(default_factory=dict[str, _Cap])
    _looked_at: set[str] = field(default_factory=set[str])

    def __contains__(self, uid: str) -> bool:
        return uid in self._caps

    def hold(self, uid: str, *, quota_us: int, before_us: int, now_ms: int, seconds: int, cause: str) -> None:
        """Limit the CPU of a pod for some time to `quota_us`, microseconds per period.

        It gets `before_us` back afterwards.
        """
        lasts_ms = seconds * 1000
        self._caps[uid] = _Cap(quota_us=quota_us, before_us=before_us, since_ms=now_ms, lasts_ms=lasts_ms, cause=cause)

    def plans(
        self, look: NodeLook, read_quota: Callable[[str], int | None], *, ttl_ms: int, ends: bool = False
    ) -> tuple[Plan, ...]:
        """Return plans for ongoing caps, and for ended caps until the previous quota is restored.

        A cap whose quota is restored, or whose pod is gone, is forgotten. Frozen pods get no plan. `read_quota` returns
        None for an unreadable quota. If the agent stops, all caps end (`ends`).
        """
        self._take_over(look, read_quota)
        plans: list[Plan] = []
        for uid, cap in list(self._caps.items()):
            pod = look.by_uid.get(uid)
            if pod is None:
                del self._caps[uid]
            elif uid in look.frozen:
                continue
            elif not ends and not cap.is_over(look.now_ms):
                _remember_containers(look, pod, cap, read_quota)
                plans.extend(
                    _plan(look, directory, cap.quota_us, Band.EMERGENCY, cap.cause, ttl_ms)
                    for directory in (look.pod_directory(pod), *cap.containers)
                )
            else:
                before = {} if self._is_lifted(look, pod, cap, read_quota) else {look.pod_directory(pod): cap.before_us}
                before |= {each: us for each, us in cap.containers.items() if read_quota(each) == cap.quota_us}
                if not before:
                    del self._caps[uid]
                plans.extend(
                    _plan(look, directory, quota_us, Band.RECOVER, cap.cause, ttl_ms)
                    for directory, quota_us in before.items()
                )
        return tuple(plans)

    def _is_lifted(self, look: NodeLook, pod: AgentPod, cap: _Cap, read_quota: Callable[[str], int | None]) -> bool:
        """Return whether the file has the previous quota, or a quota that another writer set.

        If it has the quota of its class, the kernel limited it to that, so the cap is not lifted yet.
        """
        quota = read_quota(look.pod_directory(pod))
        if quota in (None, cap.before_us):
            return quota is not None
        return quota not in (cap.quota_us, read_quota(look.layout.qos_directory(pod.kube_qos)))

    def _take_over(self, look: NodeLook, read_quota: Callable[[str], int | None]) -> None:
        """Check each pod once for a cap that a killed agent left behind, and take it over."""
        self._looked_at &= look.by_uid.keys()
        for pod in look.pods:
            quota_us = rules.CAP_QUOTA_US.get(pod.priority)
            if quota_us is None or pod.qos in VICTIMS or pod.uid in self._looked_at or pod.uid in look.frozen:
                continue
            self._looked_at.add(pod.uid)
            limit_milli = pod.limits.get(BATCH_CPU, 0) or pod.limits.get(CPU, 0)
            own_us = milli_to_quota_us(limit_milli) if limit_milli > 0 else UNLIMITED
            if quota_us != own_us and read_quota(look.pod_directory(pod)) == quota_us:
                self.hold(pod.uid, quota_us=quota_us, before_us=own_us, now_ms=look.now_ms, seconds=0, cause="")


def _remember_containers(look: NodeLook, pod: AgentPod, cap: _Cap, read_quota: Callable[[str], int | None]) -> None:
    for _, directory in look.created_containers(pod) if look.cgroup_version == 1 else ():
        quota_us = read_quota(directory)
        if quota_us is not None and quota_us > cap.quota_us:
            cap.containers[directory] = quota_us


def _plan(look: NodeLook, directory: str, quota_us: int, band: Band, cause: str, ttl_ms: int) -> Plan:
    return Plan(
        plugin=PLUGIN,
        band=band,
        file=CgroupFile(directory, QUOTA),
        value=str(quota_us),
        created_ms=look.now_ms,
        ttl_ms=ttl_ms,
        reason=AUDIT_REASON,
        cause=cause,
    )


class AntagonistCapsStrategy:
    """Proposes the caps of one node. They are lifted when the agent stops."""

    name = PLUGIN
    needs = Needs(pace=Pace.EVERY_CYCLE, node_slo=False)

    def __init__(self, caps: Caps) -> None:
        self._caps = caps

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        return Proposal(self._caps.plans(look, state.readings.quota_us, ttl_ms=state.ttl_ms, ends=state.is_last))
