"""Choose the CPUs of best-effort pods, if CPU suppression uses CPU lists.

Source: agent spec, 11.2-11.4. Vectors: be_cpuset_select, cpu_suppress.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

from koordcore.values.cpuset import EMPTY
from koordcore.values.topology import CpuPlace

MIN_CPUS = 2
MAX_GROWTH = 0.1
NO_CPUS = EMPTY


@dataclass(frozen=True, kw_only=True)
class CpuOwners:
    cpus: tuple[CpuPlace, ...]  # Online CPUs
    # CPU -> QoS label (LSE or LSR) of the pod that owns it.
    by_qos_label: Mapping[int, str] = field(default_factory=dict[int, str])
    """CPU -> QoS label of the pod that owns it exclusively (annotation resource-status)."""
    reserved: frozenset[int] = NO_CPUS
    """CPUs of the node reservation, and those that the kubelet keeps free of all containers."""
    system_exclusive: frozenset[int] = NO_CPUS  # CPUs of system QoS, if no other pod may use them
    """CPUs of system QoS, if they are exclusive."""

    def usable(self) -> tuple[CpuPlace, ...]:
        """Neither reserved nor exclusive to system QoS."""
        taken = self.reserved | self.system_exclusive
        return tuple(cpu for cpu in self.cpus if cpu.cpu not in taken)

    @cached_property
    def recovery_set(self) -> frozenset[int]:
        """CPUs of best-effort pods without suppression: not reserved, not exclusive to system QoS, not of LSE pods."""
        return frozenset(cpu.cpu for cpu in self.usable() if self.by_qos_label.get(cpu.cpu) != "LSE")


def select_cpus(count: int, cpus: Iterable[CpuPlace]) -> frozenset[int]:
    """Choose `count` CPUs spread over (socket, NUMA node), whole cores first; empty if there are too few.

    A CPU that is listed twice counts once.

    Round robin over the buckets: while two or more CPUs are needed, take two free CPUs of one core from each bucket,
    until no bucket has such a pair. Then continue with the first free CPU of each bucket.
    """
    ordered = sorted({c.cpu: c for c in cpus}.values(), key=lambda c: (c.socket, c.node, c.core, c.cpu))
    if count <= 0 or len(ordered) < count:
        return NO_CPUS
    buckets = [list(bucket) for _, bucket in groupby(ordered, key=lambda c: (c.socket, c.node))]
    buckets.sort(key=lambda bucket: (-len(bucket), bucket[0].cpu))
    chosen: set[int] = set()
    position, idle = 0, 0
    while count - len(chosen) >= 2 and idle < len(buckets):
        pair = _first_pair(buckets[position % len(buckets)], chosen)
        idle = 0 if pair else idle + 1
        chosen.update(pair)
        position += 1
    while len(chosen) < count:
        single = next((cpu.cpu for cpu in buckets[position % len(buckets)] if cpu.cpu not in chosen), None)
        if single is not None:
            chosen.add(single)
        position += 1
    return frozenset(chosen)


def _first_pair(bucket: Sequence[CpuPlace], chosen: set[int]) -> tuple[int, ...]:
    for one, other in pairwise(bucket):
        if one.core == other.core and one.cpu not in chosen and other.cpu not in chosen:
            return (one.cpu, other.cpu)
    return ()


def cannot_shrink(node_cpus: int) -> bool:
    """Return whether a node has so few CPUs that a CPU list cannot limit best-effort pods."""
    return 0 < node_cpus <= MIN_CPUS


def wanted_cpus(budget_milli: int, old_count: int, node_cpus: int) -> int:
    """Return how many CPUs best-effort pods get for a budget: ceil(budget / 1000), at least 2.

    The number grows by at most 10 % of the node's CPUs per cycle.
    """
    return min(max(math.ceil(budget_milli / 1000), MIN_CPUS), old_count + math.ceil(MAX_GROWTH * node_cpus))


def choose_be_cpus(want: int, owners: CpuOwners) -> frozenset[int]:
    """Choose `want` CPUs for best-effort pods from the CPUs of LSR pods and from CPUs without an owner.

    The number is divided between both groups in proportion to their sizes. CPUs of LSE pods are exclusive. If fewer
    CPUs than wanted are left, all of them are chosen. Empty means no change: no CPU is left (deviation D-17).

    Source: agent spec, 11.2 (3), which changes nothing if too few are left; reality, 4.11.
    """
    usable = owners.usable()
    lsr = [cpu for cpu in usable if owners.by_qos_label.get(cpu.cpu) == "LSR"]
    shared = [cpu for cpu in usable if owners.by_qos_label.get(cpu.cpu) not in ("LSR", "LSE")]
    left = len(lsr) + len(shared)
    if not left:
        return NO_CPUS
    want = min(want, left)
    from_lsr = want * len(lsr) // left
    return select_cpus(from_lsr, lsr) | select_cpus(want - from_lsr, shared)
