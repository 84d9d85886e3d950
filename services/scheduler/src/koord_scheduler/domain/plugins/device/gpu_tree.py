"""Choice of GPUs by the topology tree of a node: the node, its NUMA nodes, their PCIe switches. The GPUs come from the
smallest scope (switch, NUMA node or node) that has enough of them. Among equal scopes, one is taken that lies below the
most scopes with GPUs in use.

Source: scheduler-fine-grained spec, 2.6.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.protocol.annotations.devices import SCOPE_LEVELS

from koord_scheduler.domain.plugins.device.inventory import Zone

_NODE: Final = SCOPE_LEVELS["Node"]
_NUMA_NODE: Final = SCOPE_LEVELS["NUMANode"]
_PCIE: Final = SCOPE_LEVELS["PCIe"]
_DEVICE: Final = SCOPE_LEVELS["Device"]


class _Result(NamedTuple):
    depth: int
    crowd: int
    score: int
    reserved: int
    minors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSearch:
    """Conditions of a search for GPUs in the topology tree of a node."""

    count: int  # Number of GPUs
    is_shared: bool  # Whether the pod takes a part of a GPU; then `count` is 1
    # Number of the largest allowed scope in `SCOPE_LEVELS`: device, PCIe switch, NUMA node or node. A greater number is
    # a smaller scope; 0 if none is required.
    level: int
    used: frozenset[int]  # Minor numbers of GPUs that are in use
    fits: Callable[[int], bool]  # Returns whether the GPU with a minor number has the requested amounts free
    score: Callable[[int], int]  # Returns the score of a GPU by its minor number, for a shared request
    preferred: Collection[int] = ()  # Minor numbers that a reservation of the pod holds


def search_tree(zones: Sequence[Zone], search: GpuSearch) -> tuple[int, ...] | None:
    """Return the minor numbers of the GPUs in the smallest scope that has room, ascending; None if no scope has room.
    If the scope `Device` is required, only a search for one GPU can succeed.
    """
    if search.level >= _DEVICE and search.count > 1:
        return None
    fits, used = search.fits, search.used
    best: _Result | None = None
    crowd = int(any(not used.isdisjoint(zone.minors) for zone in zones))
    for zone in zones:
        if len(zone.minors) < search.count:
            continue
        zone_crowd = crowd + (not used.isdisjoint(zone.minors))
        found: _Result | None = None
        for switch in zone.switches:
            if len(switch.minors) >= search.count:
                switch_crowd = zone_crowd + (not used.isdisjoint(switch.minors))
                found = _better(found, _inside(switch.minors, 3, switch_crowd, search, fits), search)
        if found is None and search.level <= _NUMA_NODE:
            found = _inside(zone.minors, 2, zone_crowd, search, fits)
        best = _better(best, found, search)
    if best is None and search.level <= _NODE:
        minors = sorted(minor for zone in zones for minor in zone.minors)
        if len(minors) >= search.count:
            best = _inside(minors, 1, crowd, search, fits)
    return best.minors if best is not None else None


def _better(best: _Result | None, other: _Result | None, search: GpuSearch) -> _Result | None:
    """Return the better result; the first one among equals."""
    if best is None or other is None:
        return best if other is None else other
    if search.is_shared:
        return other if other[:4] > best[:4] else best
    return other if (other.depth, other.crowd, other.reserved) > (best.depth, best.crowd, best.reserved) else best


def _inside(
    minors: Sequence[int], depth: int, crowd: int, search: GpuSearch, fits: Callable[[int], bool]
) -> _Result | None:
    """Return the cards that are taken inside a scope; None if too few fit."""
    fitting = [minor for minor in minors if fits(minor)]
    if len(fitting) < search.count:
        return None
    reserved = search.preferred
    if search.is_shared:
        score, is_reserved, negated = max([(search.score(minor), minor in reserved, -minor) for minor in fitting])
        return _Result(depth, crowd, score, int(is_reserved), (-negated,))
    if reserved:
        fitting.sort(key=lambda minor: (minor not in reserved, minor))
    taken = tuple(sorted(fitting[: search.count]))
    return _Result(depth, crowd, 0, sum(minor in reserved for minor in taken), taken)


def free_in_scopes(zones: Sequence[Zone], level: int, is_free: Callable[[int], bool]) -> tuple[str, Mapping[str, int]]:
    """Return a phrase and the number of free GPUs in each scope of the required kind, for an explanation. `level`:
    number of the required scope, see `GpuSearch.level`. `is_free`: takes a minor number, and returns whether the GPU is
    free. Result: (phrase such as "under one PCIe switch: switches have", scope -> number of free GPUs in it).
    """
    if level >= _PCIE:
        counted = {each.pcie: sum(map(is_free, each.minors)) for zone in zones for each in zone.switches}
        return "under one PCIe switch: switches have", counted
    if level == _NUMA_NODE:
        return "in one NUMA node: NUMA nodes have", {str(zone.numa): sum(map(is_free, zone.minors)) for zone in zones}
    return "on one node: the node has", {"": sum(is_free(minor) for zone in zones for minor in zone.minors)}
