"""The CPUs and zone amounts that the pods of one node hold: folded from their allocations, one pod at a time. Every
change is undone exactly: once all pods are gone, a book equals a new one.

Source: scheduler-fine-grained spec, 1.8 (6) and 6.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from koordcore.values.allocation import Allocation
from koordcore.values.resources import MAX_AMOUNT, Amounts

from koord_scheduler.domain.plugins.numa.accumulator import NOT_USED, CpuUse, ExclusivePolicy
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuMask, cpus_in, known_mask
from koord_scheduler.domain.plugins.numa.hardware import MOST_ZONES, UNKNOWN, NodeHardware
from koord_scheduler.domain.plugins.numa.zones import NodeZones, Share, with_share
from koord_scheduler.domain.plugins.reservation.lending import Rests

MOST_ALLOCATED = "MostAllocated"
_EXCLUSIVE = {str(policy): policy for policy in ExclusivePolicy}


class Taken(NamedTuple):
    """The CPUs and zone amounts that one pod holds on its node."""

    cpus: CpuMask  # CPUs that are bound to the pod
    exclusive: ExclusivePolicy  # Unit (core or zone) that the pod prefers not to share with other bound pods
    zones: Mapping[int, Mapping[str, int]]  # Zone -> resource -> amount


def without(taken: Taken, owners: Iterable[Taken]) -> Taken:
    """Return the CPUs and zone amounts of a Reservation without those that its owners hold. `owners`: CPUs and zone
    amounts of each owner, whether or not they belong to the Reservation.
    """
    cpus, zones = taken.cpus, {zone: dict(amounts) for zone, amounts in taken.zones.items()}
    for owner in owners:
        cpus &= ~owner.cpus
        for zone, amounts in owner.zones.items():
            left = zones.get(zone, {})
            for name in left.keys() & amounts.keys():
                left[name] = max(0, left[name] - amounts[name])
    rest = {zone: {name: amount for name, amount in amounts.items() if amount} for zone, amounts in zones.items()}
    return Taken(cpus, taken.exclusive, {zone: amounts for zone, amounts in rest.items() if amounts})


def taken_of(allocation: Allocation) -> Taken:
    """Return the CPUs and zone amounts in an allocation. Invalid CPUs, zones and amounts are left out; another
    scheduler may have written them.
    """
    zones: dict[int, dict[str, int]] = {}
    for zone in allocation.zones:
        for name, amount in zone.amounts.items():
            if amount > 0 and 0 <= zone.zone < MOST_ZONES:
                of_zone = zones.setdefault(zone.zone, {})
                of_zone[name] = min(of_zone.get(name, 0) + amount, MAX_AMOUNT)
    exclusive = _EXCLUSIVE.get(allocation.cpu_exclusive_policy, ExclusivePolicy.NONE)
    return Taken(known_mask(allocation.cpuset), exclusive, zones)


class NodeBook:
    """The hardware of one node, and which CPUs and zone amounts its pods hold."""

    __slots__ = ("_counts", "_exclusive", "_state", "allocated", "bound", "hardware", "pods", "rests", "share")

    def __init__(self) -> None:
        self.hardware: NodeHardware = UNKNOWN  # CPUs, zones and policies of the node
        # Uid -> CPUs and amounts that the pod holds; for a Reservation, those that no owner holds.
        self.pods: dict[str, Taken] = {}
        self.bound: CpuMask = 0  # CPUs that are bound to pods
        self.allocated: dict[int, Amounts] = {}  # Zone -> amounts that pods hold; without zeros
        self.rests: Rests[Taken] = Rests(without)  # Computes for each Reservation on the node what no owner holds
        # Unused part of the Reservation that is lent to the pod on trial; None if no Reservation is lent.
        self.share: Share | None = None
        self._counts: dict[int, int] = {}
        self._exclusive: dict[str, Taken] = {}
        self._state: Hashable = None

    @property
    def free(self) -> CpuMask:
        """Return the CPUs that may be bound to a further pod: all except reserved and bound ones."""
        layout = self.hardware.layout
        return 0 if layout is None else layout.cpus & ~self.hardware.reserved & ~self.bound

    def take(self, uid: str, taken: Taken) -> None:
        """Count the CPUs and amounts that a pod holds. They replace those that were counted for the pod before."""
        if uid in self.pods:
            self.give(uid)
        self._state = None
        self.pods[uid] = taken
        if taken.exclusive is not ExclusivePolicy.NONE:
            self._exclusive[uid] = taken
        shared = taken.cpus & self.bound
        for cpu in cpus_in(shared):
            self._counts[cpu] = self._counts.get(cpu, 1) + 1
        self.bound |= taken.cpus
        for zone, amounts in taken.zones.items():
            of_zone = self.allocated.setdefault(zone, {})
            for name, amount in amounts.items():
                of_zone[name] = of_zone.get(name, 0) + amount

    def give(self, uid: str) -> Taken | None:
        """Stop counting a pod. Return the CPUs and amounts that it held; None if the pod was not counted."""
        taken = self.pods.pop(uid, None)
        if taken is None:
            return None
        self._state = None
        self._exclusive.pop(uid, None)
        freed = taken.cpus
        for cpu in cpus_in(freed) if self._counts else ():
            count = self._counts.get(cpu, 1)
            if count > 1:
                freed &= ~(1 << cpu)
                if count == 2:
                    del self._counts[cpu]
                else:
                    self._counts[cpu] = count - 1
        self.bound &= ~freed
        for zone, amounts in taken.zones.items():
            of_zone = self.allocated[zone]
            for name, amount in amounts.items():
                left = of_zone[name] - amount
                if left:
                    of_zone[name] = left
                else:
                    del of_zone[name]
            if not of_zone:
                del self.allocated[zone]
        return taken

    def counts(self) -> dict[int, int]:
        """Return CPU -> number of pods to which it is bound. CPUs without a pod are left out."""
        return {cpu: self._counts.get(cpu, 1) for cpu in cpus_in(self.bound)}

    def zones(self, *, most_allocated: bool) -> NodeZones:
        """Return free CPUs and amounts of the node in the form that allocation needs. `most_allocated`: order of CPUs
        on nodes without label numa-allocate-strategy: True puts zones and sockets with the fewest free CPUs first.
        """
        hardware = self.hardware
        node = NodeZones(
            layout=hardware.layout,
            allocatable=hardware.zones,
            allocated=self.allocated,
            bound=self.bound,
            free=self.free,
            use=self._use(),
            ratio=hardware.ratio,
            most_allocated=hardware.strategy == MOST_ALLOCATED if hardware.strategy else most_allocated,
        )
        return node if self.share is None else with_share(node, self.share)

    def state(self) -> Hashable:
        """Return a value that is equal for nodes of one hardware whose pods hold the same CPUs and zone amounts. It is
        made once for each change of the pods.
        """
        if self._state is None:
            allocated = [(zone, *sorted(amounts.items())) for zone, amounts in sorted(self.allocated.items())]
            self._state = (self.bound, tuple(allocated), self.exclusive_cpus())
        return self._state

    def exclusive_cpus(self) -> tuple[tuple[ExclusivePolicy, CpuMask], ...]:
        """Return (exclusive policy, CPUs of the pods with this policy), for the policies that pods on the node have."""
        if not self._exclusive:
            return ()
        exclusive: dict[ExclusivePolicy, CpuMask] = {}
        for taken in self._exclusive.values():
            exclusive[taken.exclusive] = exclusive.get(taken.exclusive, 0) | taken.cpus
        return tuple([(policy, exclusive[policy]) for policy in ExclusivePolicy if policy in exclusive])

    def _use(self) -> CpuUse:
        return CpuUse(exclusive=dict(self.exclusive_cpus())) if self._exclusive else NOT_USED
