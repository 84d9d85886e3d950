"""Which protection of pods this machine allows: by its kernel, by the agent's permissions and by its feature gates.

`features` has what was found, file by file. Here a person reads what it means: what the agent can put in force, what is
refused, and what does not exist here. Whether it is in force also depends on the NodeSLO.

Source: reality, 4; agent spec, 3.4, 11 to 16.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord_agent.domain import gate_names as gates
from koord_agent.domain.kernel.features import Feature, Features, Finding


class State(StrEnum):
    AVAILABLE = "available"
    GATE_OFF = "gate off"
    """The kernel has it; the feature gate is off."""
    REFUSED = "refused"
    """The kernel has it; the agent may not use it."""
    ABSENT = "does not exist"
    """This kernel, this CPU or this cgroup version does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    name: str
    # Features, or v1 names of files. All are needed, but of each inner tuple one is enough.
    needs: tuple[str | tuple[str, ...], ...]
    gate: str  # Feature gate that switches it on
    setting: str  # Section or field of the NodeSLO that asks for it; "" if pods ask for it


PROTECTIONS: Final = (
    Protection(
        name="best effort: fewer CPUs",
        needs=("cpuset.cpus", Feature.CPU_TOPOLOGY),
        gate=gates.BE_CPU_SUPPRESS,
        setting="resourceUsedThresholdWithBE (cpuset)",
    ),
    Protection(
        name="best effort: CPU quota",
        needs=("cpu.cfs_quota_us",),
        gate=gates.BE_CPU_SUPPRESS,
        setting="resourceUsedThresholdWithBE (cfsQuota)",
    ),
    Protection(
        name="batch pods: shares, quota, memory limit",
        needs=("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"),
        gate=gates.BATCH_RESOURCE,
        setting="",
    ),
    Protection(
        name="exclusive CPUs and shared pools",
        needs=("cpuset.cpus", Feature.CPU_TOPOLOGY),
        gate=gates.CPUSET_ALLOCATOR,
        setting="",
    ),
    Protection(
        name="precedence on a CPU",
        needs=(("cpu.bvt_warp_ns", "cpu.idle"),),
        gate=gates.GROUP_IDENTITY,
        setting="resourceQOSStrategy.*.cpuQOS",
    ),
    Protection(name="CPU burst", needs=("cpu.cfs_burst_us",), gate=gates.CPU_BURST, setting="cpuBurstStrategy.policy"),
    Protection(
        name="protected memory",
        needs=("memory.min", "memory.low"),
        gate=gates.CGROUP_RECONCILE,
        setting="memoryQOS.minLimitPercent, lowLimitPercent",
    ),
    Protection(
        name="throttled memory",
        needs=("memory.high",),
        gate=gates.CGROUP_RECONCILE,
        setting="memoryQOS.throttlingPercent",
    ),
    Protection(
        name="reclaim in the background",
        needs=("memory.wmark_ratio",),
        gate=gates.CGROUP_RECONCILE,
        setting="memoryQOS.wmarkRatio",
    ),
    Protection(
        name="order of OOM kills",
        needs=("memory.priority", "memory.use_priority_oom"),
        gate=gates.CGROUP_RECONCILE,
        setting="memoryQOS.priority",
    ),
    Protection(
        name="block I/O limits",
        needs=("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
        gate=gates.BLKIO_RECONCILE,
        setting="blkioQOS (readBPS, ...)",
    ),
    Protection(
        name="block I/O weights",
        needs=("blkio.cost.weight", "blkio.cost.qos"),
        gate=gates.BLKIO_RECONCILE,
        setting="blkioQOS (ioWeightPercent)",
    ),
    Protection(
        name="cache ways and memory bandwidth",
        needs=(Feature.RESCTRL_CONTROL,),
        gate=gates.RDT_RESCTRL,
        setting="resourceQOSStrategy.*.resctrlQOS",
    ),
    Protection(
        name="eviction before the node is short",
        needs=(Feature.NODE_COUNTERS, Feature.CGROUP_COUNTERS),
        gate="BEMemoryEvict",
        setting="resourceUsedThresholdWithBE",
    ),
    Protection(
        name="interference: pressure (PSI)", needs=(Feature.PSI,), gate="PSICollector", setting="interference detection"
    ),
    Protection(name="interference: CPI", needs=(Feature.CPI,), gate="CPICollector", setting="interference detection"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    protection: Protection
    state: State
    why: str = ""  # Reason; "" if it is available


def verdicts(features: Features, gates_on: Collection[str], may_write: Callable[[str], bool]) -> tuple[Verdict, ...]:
    """Judge each protection on one machine. `may_write` tells it of a file of the kernel by its path."""
    found = {finding.feature: finding for finding in features.findings}
    return tuple(_verdict(protection, found, gates_on, may_write) for protection in PROTECTIONS)


def _verdict(
    protection: Protection, found: dict[str, Finding], gates_on: Collection[str], may_write: Callable[[str], bool]
) -> Verdict:
    used: list[Finding] = []
    for need in protection.needs:
        names = (need,) if isinstance(need, str) else need
        usable = next((found[name] for name in names if found[name].usable), None)
        if usable is None:
            why = "; ".join(found[name].why for name in names if found[name].why)
            is_refused = any(_REFUSAL in found[name].why for name in names)
            state = State.REFUSED if is_refused else State.ABSENT
            return Verdict(protection=protection, state=state, why=f"{' or '.join(names)}: {why}")
        used.append(usable)
    refused = [one.file for one in used if one.feature not in set(Feature) and not may_write(one.file)]
    if refused:
        return Verdict(protection=protection, state=State.REFUSED, why=f"{', '.join(refused)}: not writable")
    if protection.gate not in gates_on:
        return Verdict(protection=protection, state=State.GATE_OFF, why=f"--feature-gates={protection.gate}=true")
    return Verdict(protection=protection, state=State.AVAILABLE)


_REFUSAL: Final = "ermission denied"
