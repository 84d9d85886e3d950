"""CPUs and zones of all nodes as arrays, so that a filter evaluates all nodes at once. Row numbers are those of
`NodeColumns`. An array over zones has one more entry than there are zones: entry 0 is the whole node, entry z + 1 is
zone z. Amounts are as `NodeZones.available` returns them.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy, ZoneStatus
from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuLayout, CpuMask
from koord_scheduler.domain.plugins.numa.node_book import NodeBook, Taken
from koord_scheduler.domain.plugins.numa.zones import NodeZones

WHOLE: Final = 0
"""Entry of the whole node in arrays over zones."""
NOT_REPORTED: Final = -1
"""The zone does not report the resource."""
UNEQUAL_CORES: Final = 255
"""Instead of the CPUs per core of a node whose cores differ: counts of CPUs do not say which sums its cores have."""
POLICIES: Final = tuple(TopologyPolicy)
"""Topology policies by the number that the column holds."""
BIND_POLICIES: Final = ("None", "FullPCPUsOnly", "SpreadByPCPUs")
"""Bind policies of nodes by the number that the column holds."""


class NumaColumns:
    """CPUs and NUMA zones of all nodes as arrays. N is the capacity of the node columns, Z the greatest number of
    zones. Entry 0 of a dimension Z + 1 is the whole node, entry z + 1 is zone z.

    Attributes:
        free: int64 (Z + 1, N)  number of CPUs that may be bound.
        full: int64 (Z + 1, N)  number of those whose core is free as a whole.
        open: int64 (Z + 1, N)  number of cores with a free CPU.
        spanning: int64 (Z + 1, N)  number of pods that have CPUs in this zone and in another one.
        single: int64 (Z + 1, N)  number of pods that have CPUs in this zone only.
        exists: int64 (Z + 1, N)  1 if the zone exists; entry 0: if the node has zones.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._zones = 2
        # int64 (N,)  NUMA topology policy of the node: index into `POLICIES`.
        self.policy = np.zeros(capacity, np.int64)
        # int64 (N,)  CPU bind policy of the node: index into `BIND_POLICIES`.
        self.bind_policy = np.zeros(capacity, np.int64)
        # int64 (N,)  CPUs per core; 0 if the CPUs of the node are unknown, `UNEQUAL_CORES` if cores differ.
        self.per_core = np.zeros(capacity, np.int64)
        # float64 (N,)  amplification ratio of the node's annotation; -1 if it is invalid.
        self.ratio = np.ones(capacity, np.float64)
        self.zone_ratio = np.ones(capacity, np.float64)  # float64 (N,)  amplification ratio of its zones
        self.bound = np.zeros(capacity, np.int64)  # int64 (N,)  number of bound CPUs
        self.free, self.full, self.open = (self._over_zones() for _ in range(3))
        self.spanning, self.single, self.exists = (self._over_zones() for _ in range(3))
        self.totals: dict[str, IntArray] = {}
        self.left: dict[str, IntArray] = {}

    @property
    def zones(self) -> int:
        """Return the length Z + 1 of the arrays over zones."""
        return self._zones + 1

    def total(self, resource: str) -> IntArray:
        """Return the allocatable amount of a resource in each zone, int64 (Z + 1, N). `NOT_REPORTED` where it is not
        reported.
        """
        self._known(resource)
        return self.totals[resource]

    def available(self, resource: str) -> IntArray:
        """Return the free amount of a resource in each zone, int64 (Z + 1, N). 0 if a zone does not report the
        resource.
        """
        self._known(resource)
        return self.left[resource]

    def usable(self, policy: BindPolicy, *, is_required: bool) -> IntArray:
        """Return the number of CPUs that a pod with this bind policy may bind in each zone, int64 (Z + 1, N).
        `is_required`: whether CPUs that violate the policy are refused.
        """
        if not is_required:
            return self.free
        return self.full if policy is BindPolicy.FULL_PCPUS else self.open

    def put(self, row: int, book: NodeBook) -> None:
        """Write hardware and use of the node at position `row` into all arrays."""
        self.clear(row)
        hardware = book.hardware
        if hardware.zones:
            self._widen(max(hardware.zones) + 1)
        if hardware.layout is not None:
            self._widen(max(hardware.layout.zones) + 1)
            per_core = max(1, hardware.layout.cpus_per_core)
            self.per_core[row] = per_core if hardware.layout.is_regular else UNEQUAL_CORES
        self.policy[row] = POLICIES.index(hardware.policy)
        self.bind_policy[row] = BIND_POLICIES.index(hardware.bind_policy)
        self.ratio[row], self.zone_ratio[row] = hardware.node_ratio, hardware.ratio
        for zone, amounts in hardware.zones.items():
            self.exists[WHOLE, row] = self.exists[zone + 1, row] = 1
            for resource, amount in amounts.items():
                totals = self.total(resource)
                totals[zone + 1, row] = amount
                totals[WHOLE, row] = max(0, totals[WHOLE, row]) + amount
        self._put_cpus(row, book)
        self._put_amounts(row, book, hardware.zones)

    def moved(self, row: int, book: NodeBook, taken: Taken, before: CpuMask, sign: int) -> None:
        """Update the node at position `row` after a pod came or left. `book`: its hardware and use after the change.
        `before`: CPUs that were free before. `sign`: 1 if the pod came, -1 if it left.
        """
        layout = book.hardware.layout
        if taken.cpus:
            self.bound[row] = book.bound.bit_count()
        if taken.cpus and layout is not None:
            self._move_cores(row, layout, before, book.free)
            self._span(row, layout, taken.cpus, sign)
        is_weighed = taken.cpus and book.hardware.ratio > 1
        self._put_amounts(row, book, book.hardware.zones if is_weighed else taken.zones)

    def _put_cpus(self, row: int, book: NodeBook) -> None:
        layout = book.hardware.layout
        self.bound[row] = book.bound.bit_count()
        if layout is not None:
            self._move_cores(row, layout, 0, book.free)
            for taken in book.pods.values():
                self._span(row, layout, taken.cpus, 1)

    def _move_cores(self, row: int, layout: CpuLayout, before: CpuMask, after: CpuMask) -> None:
        """Count the CPUs and cores that have become free or are no longer free."""
        moved: dict[int, list[int]] = {}
        changed = before ^ after
        while changed:
            core = layout.core_of[(changed & -changed).bit_length() - 1]
            cpus = core.cpus
            changed &= ~cpus
            was, now = before & cpus, after & cpus
            of_zone = moved.get(core.zone)
            if of_zone is None:
                of_zone = moved[core.zone] = [0, 0, 0]
            of_zone[0] += now.bit_count() - was.bit_count()
            of_zone[1] += len(core.members) * ((now == cpus) - (was == cpus))
            of_zone[2] += (now != 0) - (was != 0)
        arrays = (self.free.data, self.full.data, self.open.data)
        for zone, amounts in moved.items():
            for array, amount in zip(arrays, amounts, strict=True):
                if amount:
                    array[WHOLE, row] += amount
                    array[zone + 1, row] += amount

    def _span(self, row: int, layout: CpuLayout, cpus: CpuMask, sign: int) -> None:
        """Count a pod in each of its zones: as one that spans zones, or as one that does not."""
        touched = [zone.id for zone in layout.zones.values() if zone.cpus & cpus]
        array = self.spanning if len(touched) > 1 else self.single
        for zone in touched:
            array[zone + 1, row] += sign

    def statuses(self, row: int, zones: Iterable[int]) -> dict[int, ZoneStatus]:
        """Return zone -> IDLE, SINGLE or SHARED, for one node. IDLE: no pod with bound CPUs. SHARED: a pod has CPUs in
        this zone and in another one. SINGLE: neither.
        Source: scheduler-fine-grained spec, 1.7 (exclusive check).
        """
        statuses: dict[int, ZoneStatus] = {}
        for zone in zones:
            if self.spanning.item(zone + 1, row):
                statuses[zone] = ZoneStatus.SHARED
            else:
                statuses[zone] = ZoneStatus.SINGLE if self.single.item(zone + 1, row) else ZoneStatus.IDLE
        return statuses

    def status_bytes(self, row: int) -> bytes:
        """Return bytes that are equal for nodes whose zones have equal `statuses`."""
        return (self.spanning[1:, row] > 0).tobytes() + (self.single[1:, row] > 0).tobytes()

    def _put_amounts(self, row: int, book: NodeBook, zones: Iterable[int]) -> None:
        node: NodeZones | None = None
        for zone in zones:
            for resource in book.hardware.zones.get(zone, ()):
                node = book.zones(most_allocated=False) if node is None else node
                self.left[resource][zone + 1, row] = node.available(zone, resource)

    def clear(self, row: int) -> None:
        """Reset all arrays at position `row`, because its node was deleted or is written anew."""
        for flags in (self.policy, self.bind_policy, self.per_core, self.bound):
            flags[row] = 0
        self.ratio[row] = self.zone_ratio[row] = 1.0
        for array in (*self._counts(), *self.left.values()):
            array[:, row] = 0
        for array in self.totals.values():
            array[:, row] = NOT_REPORTED

    def grow(self, capacity: int) -> None:
        """Extend the arrays to `capacity` nodes."""
        if capacity <= self._capacity:
            return
        more = capacity - self._capacity
        self._capacity = capacity
        for name in ("policy", "bind_policy", "per_core", "bound"):
            setattr(self, name, np.pad(getattr(self, name), (0, more)))
        for name in ("ratio", "zone_ratio"):
            setattr(self, name, np.pad(getattr(self, name), (0, more), constant_values=1.0))
        self._reshape(((0, 0), (0, more)))

    def _widen(self, zones: int) -> None:
        if zones > self._zones:
            more, self._zones = zones - self._zones, zones
            self._reshape(((0, more), (0, 0)))

    def _reshape(self, by: tuple[tuple[int, int], tuple[int, int]]) -> None:
        for name in ("free", "full", "open", "spanning", "single", "exists"):
            setattr(self, name, np.pad(getattr(self, name), by))
        for resource, array in self.left.items():
            self.left[resource] = np.pad(array, by)
        for resource, array in self.totals.items():
            self.totals[resource] = np.pad(array, by, constant_values=NOT_REPORTED)

    def _counts(self) -> tuple[IntArray, ...]:
        return (self.free, self.full, self.open, self.spanning, self.single, self.exists)

    def _over_zones(self) -> IntArray:
        return np.zeros((self.zones, self._capacity), np.int64)

    def _known(self, resource: str) -> None:
        if resource not in self.totals:
            self.totals[resource] = np.full((self.zones, self._capacity), NOT_REPORTED, np.int64)
            self.left[resource] = self._over_zones()
