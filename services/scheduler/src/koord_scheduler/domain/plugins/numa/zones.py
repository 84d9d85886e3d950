"""The free CPUs and amounts of the NUMA zones of a node, and how a request is split over some of them.

Source: scheduler-fine-grained spec, 1.6 (1, 2) and 1.8 (1 to 5); vectors scheduler/numa_allocate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from koordcore.protocol.amplification import amplify
from koordcore.protocol.resource_names import CPU
from koordcore.values.resources import Amounts

from koord_scheduler.domain.framework.topology_hints import Zones, ids_of, zones_of
from koord_scheduler.domain.plugins.numa.accumulator import (
    NOT_ENOUGH_CPUS,
    NOT_USED,
    BindPolicy,
    CpuRequest,
    CpuUse,
    take_cpus,
)
from koord_scheduler.domain.plugins.numa.binding import Binding
from koord_scheduler.domain.plugins.numa.core_sums import shares_of
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuLayout, CpuMask, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeZones:
    """The allocatable and used CPUs and zone amounts of one node at one moment: the input of an allocation."""

    layout: CpuLayout | None  # The CPUs of the node; None if the node does not report them
    # Zone -> amounts; empty if the node reports no zones. CPU is amplified.
    allocatable: Mapping[int, Amounts] = field(default_factory=dict[int, Amounts])
    # Zone -> amounts of the pods that recorded zones, not amplified.
    allocated: Mapping[int, Amounts] = field(default_factory=dict[int, Amounts])
    bound: CpuMask = 0  # CPUs that are bound to pods
    free: CpuMask = 0  # CPUs that may be bound
    use: CpuUse = NOT_USED  # Exclusive policies and reference counts of bound CPUs
    ratio: float = 1.0  # Amplification ratio of CPU
    most_allocated: bool = False  # Whether zones and sockets with the fewest free CPUs are used first; see `CpuRequest`
    preferred: CpuMask = 0  # Free CPUs that are taken before all others
    _kept: dict[object, int] = field(default_factory=dict[object, int], repr=False, compare=False)

    @property
    def zones(self) -> Zones:
        """Return all zones of the node, one bit per zone."""
        return zones_of(self.allocatable)

    def reports(self, resource: str) -> bool:
        return any(resource in amounts for amounts in self.allocatable.values())

    def candidates(self, binding: Binding) -> CpuMask:
        """Return the free CPUs that a pod may get. A required bind policy restricts them: to cores that are free as a
        whole, or to one CPU of each core.
        """
        if not binding.is_required or self.layout is None:
            return self.free
        kept = self._kept.get(binding.policy)
        if kept is None:
            is_full = binding.policy is BindPolicy.FULL_PCPUS
            kept = self.layout.full_cores(self.free) if is_full else self.layout.one_per_core(self.free)
            self._kept[binding.policy] = kept
        return kept

    def available(self, zone: int, resource: str) -> int:
        """Return the free amount of a resource in a zone, at least 0: for CPU in milli-cores, amplified."""
        key = (zone, resource)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        total = self.allocatable.get(zone, {}).get(resource, 0)
        used = self.allocated.get(zone, {}).get(resource, 0)
        if resource == CPU and self.ratio > 1:
            bound = self._cpus_of(zone, self.bound)
            used = used - 1000 * bound + amplify(1000 * bound, self.ratio)
        kept = self._kept[key] = max(0, total - used)
        return kept

    def available_to(self, zone: int, resource: str, binding: Binding | None) -> int:
        """Return the free amount of a resource in a zone that a pod may get. If the pod binds CPUs, CPU is limited to
        the CPUs that `candidates` returns: pods that recorded no zones hold some. `binding`: how the pod binds CPUs;
        None if it binds none.
        """
        left = self.available(zone, resource)
        if resource == CPU and binding is not None and self.layout is not None:
            left = min(left, 1000 * self._cpus_of(zone, self.candidates(binding)))
        return left

    def core_sums(self, unit: Unit, binding: Binding) -> int:
        """Return the sums of CPUs that whole cores of a zone have together, of those that a pod may get. Each set of
        zones asks for them again.
        """
        key = (binding.policy, binding.is_required, unit.id)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = unit.core_sums(self.candidates(binding))
        return kept

    def _cpus_of(self, zone: int, cpus: CpuMask) -> int:
        if self.layout is None or zone not in self.layout.zones:
            return 0
        return (self.layout.zones[zone].cpus & cpus).bit_count()


class Share(NamedTuple):
    """The CPUs and zone amounts of a Reservation that further owners may use."""

    cpus: CpuMask  # CPUs of the Reservation that no owner holds
    zones: Mapping[int, Mapping[str, int]]  # Zone -> amounts that no owner holds
    # Resources that an owner may take only from the Reservation; empty unless the policy is Restricted.
    limits: frozenset[str]


def with_share(node: NodeZones, share: Share) -> NodeZones:
    """Return the node as an owner of a Reservation sees it, if the share of the Reservation counts as free already. The
    CPUs of the share are preferred. For resources in `limits`, the owner can only get CPUs and zone amounts of the
    share. Zone amounts are not limited if the share has none.
    Source: scheduler-fine-grained spec, 3.9.
    """
    if not share.limits:
        return replace(node, preferred=share.cpus, _kept={})
    free = node.free & share.cpus if CPU in share.limits else node.free
    bound, allocatable, allocated = node.bound, node.allocatable, node.allocated
    if share.zones:
        limited: dict[int, Amounts] = {}
        for zone, amounts in node.allocatable.items():
            rest = share.zones.get(zone, {})
            limited[zone] = {
                name: min(node.available(zone, name), _weighed(name, rest.get(name, 0), share, node.ratio))
                if name in share.limits
                else node.available(zone, name)
                for name in amounts
            }
        allocatable, allocated, bound = limited, {}, 0
    return replace(
        node, free=free, bound=bound, preferred=share.cpus, allocatable=allocatable, allocated=allocated, _kept={}
    )


def _weighed(resource: str, amount: int, share: Share, ratio: float) -> int:
    """Return how much of a zone an amount counts that a Reservation has left; its bound CPUs are amplified."""
    return amplify(amount, ratio) if resource == CPU and share.cpus and ratio > 1 else amount


class Allocated(NamedTuple):
    """The CPUs and zone amounts that an allocation gives to a pod."""

    cpus: CpuMask  # CPUs that are bound to the pod
    zones: Mapping[int, Amounts]  # Zone -> amounts; empty if no zones are recorded


class Shortage(NamedTuple):
    """Reasons why a node cannot satisfy a pod, as phrases for users."""

    reasons: tuple[str, ...]


def allocate(
    node: NodeZones, requests: Mapping[str, int], binding: Binding | None, affinity: Zones | None
) -> Allocated | Shortage:
    """Choose CPUs and zone amounts for a pod inside a set of zones. The node's state does not change.

    Args:
        requests: Resource -> amount that the pod requests, not amplified.
        binding: How the pod binds CPUs; None if it binds none.
        affinity: Zones to use, one bit per zone; None: no zones are recorded, and CPUs come from the whole node.

    Returns:
        The CPUs and amounts, or why they cannot be allocated.
    """
    split = {} if affinity is None else _split(node, requests, binding, affinity)
    if isinstance(split, Shortage):
        return split
    if binding is None or node.layout is None:
        return Allocated(0, split)
    cpus = _bound_cpus(node, node.layout, binding, split)
    return Shortage((cpus,)) if isinstance(cpus, str) else Allocated(cpus, split)


def shortage(node: NodeZones, requests: Mapping[str, int], binding: Binding | None, affinity: Zones) -> Shortage | None:
    """Return why `allocate` would fail with these arguments; None if it would succeed. No CPUs are chosen."""
    split = _split(node, requests, binding, affinity)
    if isinstance(split, Shortage) or binding is None or node.layout is None:
        return split if isinstance(split, Shortage) else None
    candidates = node.candidates(binding)
    if candidates.bit_count() < binding.count:
        return Shortage((NOT_ENOUGH_CPUS,))
    shares = _cpu_shares(split)
    needs_cores = binding.is_required and binding.policy is BindPolicy.FULL_PCPUS
    if not shares:
        is_filled = not needs_cores or node.layout.is_regular or node.layout.fills(candidates, binding.count)
        return None if is_filled else Shortage((_not_as_required(binding),))
    units = node.layout.zones
    counts = [
        min((candidates & units[zone].cpus).bit_count() if zone in units else 0, share)
        for zone, share in shares.items()
    ]
    if sum(counts) != binding.count:
        return Shortage((NOT_ENOUGH_CPUS,))
    if needs_cores and node.layout.is_regular and any(count % node.layout.cpus_per_core for count in counts):
        return Shortage((_not_as_required(binding),))
    return None


def _split(
    node: NodeZones, requests: Mapping[str, int], binding: Binding | None, affinity: Zones
) -> dict[int, Amounts] | Shortage:
    split: dict[int, Amounts] = {}
    reasons: list[str] = []
    for resource, amount in requests.items():
        if amount <= 0 or not node.reports(resource):
            continue
        bound = binding if resource == CPU else None
        left = sorted((node.available_to(zone, resource, binding), zone) for zone in ids_of(affinity))
        if bound is not None and node.layout is not None and _is_unequal(node.layout, bound):
            cores = _core_shares(node, node.layout, bound, left)
            for zone, cpus in cores.items():
                split.setdefault(zone, {})[resource] = 1000 * cpus
            reasons += [] if cores else [f"Insufficient NUMA {resource}"]
            continue
        remaining = amount
        for index, (available, zone) in enumerate(left):
            share = _part(remaining, len(left) - index, bound, node.layout)
            given = min(share, available)
            if bound is not None and node.ratio > 1:
                given = min(given, _physical(node.available(zone, resource), node.ratio))
            if given > 0:
                split.setdefault(zone, {})[resource] = given
                remaining -= given
        if remaining > 0:
            reasons.append(f"Insufficient NUMA {resource}")
    return Shortage(tuple(reasons)) if reasons else dict(sorted(split.items()))


def _is_unequal(layout: CpuLayout, binding: Binding) -> bool:
    """Return whether the pod must have whole cores, and cores of the node have different numbers of CPUs."""
    return not layout.is_regular and binding.is_required and binding.policy is BindPolicy.FULL_PCPUS


def _core_shares(
    node: NodeZones, layout: CpuLayout, binding: Binding, left: Iterable[tuple[int, int]]
) -> dict[int, int]:
    """Return zone -> CPUs that it gives in whole cores of unequal size; empty if the zones cannot give enough. `left`:
    (available CPU, zone), in the order in which the zones give.
    """
    candidates, zones, sums = node.candidates(binding), list[int](), list[int]()
    for available, zone in left:
        if zone in layout.zones:
            most = available if node.ratio <= 1 else _physical(node.available(zone, CPU), node.ratio)
            zones.append(zone)
            cpus = candidates & layout.zones[zone].cpus
            whole = min(most // 1000, cpus.bit_count())  # the amount comes from a report, and may be astronomic
            sums.append(node.core_sums(layout.zones[zone], binding) & (1 << whole + 1) - 1)
    shares = shares_of(sums, binding.count)
    return {} if shares is None else {zone: share for zone, share in zip(zones, shares, strict=True) if share}


def _part(remaining: int, zones: int, binding: Binding | None, layout: CpuLayout | None) -> int:
    """Return the share of one of the remaining zones; bound CPUs are shared out as whole CPUs or cores."""
    if binding is None:
        return remaining // zones
    cpus = remaining // 1000
    if binding.is_required and binding.policy is BindPolicy.FULL_PCPUS and layout is not None:
        per_core = max(1, layout.cpus_per_core)
        return 1000 * (cpus // per_core // zones * per_core)
    return 1000 * (cpus // zones)


def _physical(amplified: int, ratio: float) -> int:
    """Return the most whole CPUs, in milli-cores, that weigh no more than an amplified amount."""
    cpus = int(amplified / ratio) // 1000
    while amplify(1000 * cpus, ratio) > amplified:
        cpus -= 1
    while amplify(1000 * (cpus + 1), ratio) <= amplified:
        cpus += 1
    return 1000 * max(0, cpus)


def _bound_cpus(node: NodeZones, layout: CpuLayout, binding: Binding, split: Mapping[int, Amounts]) -> CpuMask | str:
    """Return the CPUs, or why there are none."""
    candidates = node.candidates(binding)
    if candidates.bit_count() < binding.count:
        return NOT_ENOUGH_CPUS
    shares = _cpu_shares(split)
    cpus = 0
    if not shares:
        cpus = take_cpus(layout, candidates, _request(node, binding, binding.count), node.use, node.preferred) or 0
    for zone, share in shares.items():
        of_zone = candidates & layout.zones[zone].cpus if zone in layout.zones else 0
        count = min(of_zone.bit_count(), share)
        cpus |= take_cpus(layout, of_zone, _request(node, binding, count), node.use, node.preferred) or 0
    if cpus.bit_count() != binding.count:
        return NOT_ENOUGH_CPUS
    return not_as_required(layout, binding, cpus) or cpus


def not_as_required(layout: CpuLayout, binding: Binding, cpus: CpuMask) -> str:
    """Return a sentence if these CPUs violate the bind policy that is required, otherwise ""."""
    if not binding.is_required:
        return ""
    if binding.policy is BindPolicy.FULL_PCPUS:
        return "" if layout.full_cores(cpus) == cpus else _not_as_required(binding)
    return "" if layout.cores_touched(cpus) == binding.count else _not_as_required(binding)


def _cpu_shares(split: Mapping[int, Amounts]) -> dict[int, int]:
    """Return zone -> number of whole CPUs in its amounts."""
    return {zone: amounts[CPU] // 1000 for zone, amounts in split.items() if CPU in amounts}


def _not_as_required(binding: Binding) -> str:
    return f"insufficient CPUs to satisfy required cpu bind policy {binding.policy}"


def _request(node: NodeZones, binding: Binding, count: int) -> CpuRequest:
    return CpuRequest(
        count=count,
        bind_policy=binding.policy,
        exclusive_policy=binding.exclusive,
        most_allocated=node.most_allocated,
    )


def sums(amounts: Iterable[Mapping[str, int]]) -> Amounts:
    """Return resource -> sum over all of the amounts."""
    total: Amounts = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total
