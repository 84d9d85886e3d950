"""Hints: which sets of NUMA zones can satisfy a pod. They are merged into one affinity under a topology policy.

A set of NUMA zones is an integer: bit z is set if it contains zone z. Such sets compare as the specification compares
masks. One plugin (NodeNUMAResource) merges the hints of all plugins whose resources belong to zones, and reserves
first. It puts the affinity into `Affinities`; plugins that reserve after it allocate inside of these zones.

Source: scheduler-fine-grained spec, 1.6, 1.7, 2.10; vectors scheduler/numa_hint_merge
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod
from typing import Final, NamedTuple, Protocol, TypeAlias

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.framework.plugin import Plugin

Zones: TypeAlias = int
"""A set of NUMA zones: bit z stands for zone z."""


class Hint(NamedTuple):
    """One set of NUMA zones from which a resource of a pod can be allocated."""

    zones: Zones | None  # The zones, one bit per zone; None: any zones
    preferred: bool  # Whether no smaller set of zones satisfies the resource
    score: int = 0  # 0..100; decides between sets of equal size


Hints: TypeAlias = Mapping[str, Sequence[Hint] | None]
"""Resource -> its hints. None: the zones do not matter to it. An empty sequence: no zones satisfy it."""

NO_HINTS: Hints = {}
"""The zones do not matter to the pod."""


def zones_of(ids: Iterable[int]) -> Zones:
    """Return the set of these zone ids as an integer with one bit per zone."""
    mask = 0
    for zone in ids:
        mask |= 1 << zone
    return mask


def ids_of(zones: Zones) -> list[int]:
    """Return the zone ids of a set, ascending."""
    return [zone for zone in range(zones.bit_length()) if zones >> zone & 1]


def is_narrower(one: Zones, other: Zones) -> bool:
    """Return whether `one` has fewer zones than `other`, or equally many and the smaller bit mask."""
    return _width(one) < _width(other)


class Affinities:
    """The NUMA zones that were chosen for the pod at Reserve. Only one pod is at Reserve at a time."""

    def __init__(self) -> None:
        self._uid = ""
        self._zones: Zones | None = None

    def put(self, uid: str, zones: Zones | None) -> None:
        """Store the zones in which plugins must allocate for the pod; None: it may use the whole node."""
        self._uid, self._zones = uid, zones

    def of(self, uid: str) -> Zones | None:
        """Return the zones in which plugins must allocate for the pod; None: it may use the whole node. None also if
        another pod was stored since.
        """
        return self._zones if uid == self._uid else None


class TopologyPolicy(Enum):
    """Policy about the NUMA zones of a pod's resources: how strictly they must be the same (as in the kubelet)."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class ZoneStatus(Enum):
    """State of a NUMA zone by the pods with NUMA alignment that use it. IDLE: none. SINGLE: only pods that use this
    zone alone. SHARED: pods that span several zones.
    """

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


class Admission(NamedTuple):
    """The result of merging the hints of all plugins under a topology policy."""

    is_admitted: bool  # Whether the policy accepts the zones
    zones: Zones | None  # The chosen zones, one bit per zone; None: no alignment
    preferred: bool = False  # Whether every plugin prefers these zones
    score: int = 0  # Sum of the scores of the hints with exactly these zones
    unsatisfied: tuple[str, ...] = ()  # Resources that no zones satisfy
    reasons: tuple[str, ...] = ()  # Why the policy does not accept them


class _Best(NamedTuple):
    zones: Zones
    preferred: bool = False
    score: int = 0
    is_unsatisfied: bool = False


class _Candidates(NamedTuple):
    """The hints of one resource of one provider; "" names a provider that has no hints."""

    resource: str
    hints: Sequence[Hint]


_ANY = Hint(None, preferred=True)
_NEVER = Hint(None, preferred=False)
_MOST_COMBINATIONS: Final = 1_024
"""Combinations of hints that BestEffort compares one by one, about 4 us each: 8 zones and four lists may have 4 billion
of them (kubernetes#131738)."""
_MOST_UNIONS: Final = 70
"""Sets of zones that are kept while lists are joined: 8 zones have no more sets that do not contain each other."""


def admitted(
    policy: TopologyPolicy,
    zones: Zones,
    providers: Iterable[Hints],
    exclusive: Mapping[int, ZoneStatus] | None = None,
) -> Admission:
    """Merge the hints of all plugins into one set of zones, and decide under the policy whether the node is admitted.

    Args:
        policy: BestEffort, Restricted or SingleNUMANode.
        zones: All zones of the node, one bit per zone.
        providers: The hints of each plugin; a plugin without hints accepts any zones.
        exclusive: Zone -> its status, if pods that span zones must not share a zone with pods inside one zone; None if
            they may.
    """
    lists, unsatisfied = _flattened(providers)
    if unsatisfied and policy is not TopologyPolicy.BEST_EFFORT:
        reasons = tuple(f"Unsatisfied NUMA {resource}" for resource in unsatisfied)
        return Admission(is_admitted=False, zones=None, unsatisfied=unsatisfied, reasons=reasons)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        kept = [_Candidates(each.resource, [hint for hint in each.hints if _is_single(hint)]) for each in lists]
    else:
        kept = lists
    hints = [each.hints for each in kept]
    best = _best_of(_alike(hints), zones, exclusive)
    if not best.preferred and policy is TopologyPolicy.BEST_EFFORT:
        best = _best_unpreferred(hints, zones, exclusive, is_unsatisfied=bool(unsatisfied))
    if not best.preferred and policy is not TopologyPolicy.BEST_EFFORT:
        return Admission(is_admitted=False, zones=None, reasons=(_unaligned(lists),))
    found: Zones | None = best.zones
    if policy is TopologyPolicy.SINGLE_NUMA_NODE and best.zones == zones and zones.bit_count() > 1:
        found = None
    return Admission(is_admitted=True, zones=found, preferred=best.preferred, score=best.score)


def _flattened(providers: Iterable[Hints]) -> tuple[list[_Candidates], tuple[str, ...]]:
    """Return one list of hints for each resource, and the resources that no zones satisfy."""
    lists: list[_Candidates] = []
    unsatisfied: list[str] = []
    for hints in providers:
        if not hints:
            lists.append(_Candidates("", (_ANY,)))
        for resource, given in hints.items():
            if given is None:
                lists.append(_Candidates(resource, (_ANY,)))
            elif given:
                lists.append(_Candidates(resource, given))
            else:
                unsatisfied.append(resource)
                lists.append(_Candidates(resource, (_NEVER,)))
    return lists, tuple(unsatisfied)


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.zones is None or hint.zones.bit_count() == 1)


def _alike(lists: Sequence[Sequence[Hint]]) -> Iterator[tuple[Hint, ...]]:
    """Yield the combinations of preferred hints that agree in their zones, in the order of all combinations. Only these
    can be preferred, and they are few: all combinations may be millions.
    """
    return _agreeing([_by_zones([hint for hint in hints if hint.preferred]) for hints in lists], 0, None)


class _ByZones(NamedTuple):
    """The preferred hints of one list, in its order."""

    every: Sequence[Hint]
    anywhere: Sequence[Hint]  # Those that agree with all zones
    of: Mapping[Zones, Sequence[Hint]]  # Set of zones that a hint names -> the hints that agree with it


def _by_zones(hints: Sequence[Hint]) -> _ByZones:
    masks = {hint.zones for hint in hints if hint.zones is not None}
    if len(masks) == len(hints):
        return _ByZones(hints, (), {hint.zones: (hint,) for hint in hints if hint.zones is not None})
    of = {mask: [hint for hint in hints if hint.zones is None or hint.zones == mask] for mask in masks}
    return _ByZones(hints, [hint for hint in hints if hint.zones is None], of)


def _agreeing(lists: Sequence[_ByZones], index: int, chosen: Zones | None) -> Iterator[tuple[Hint, ...]]:
    if index == len(lists):
        yield ()
        return
    each = lists[index]
    for hint in each.every if chosen is None else each.of.get(chosen, each.anywhere):
        for rest in _agreeing(lists, index + 1, chosen if hint.zones is None else hint.zones):
            yield (hint, *rest)


def _best_unpreferred(
    lists: Sequence[Sequence[Hint]],
    zones: Zones,
    exclusive: Mapping[int, ZoneStatus] | None,
    *,
    is_unsatisfied: bool,
) -> _Best:
    """Return the zones of a pod under BestEffort for which no set of zones is preferred by all. `is_unsatisfied`:
    whether no zones satisfy some resource.
    """
    if is_unsatisfied:
        return _Best(zones)
    if prod(len(hints) for hints in lists) <= _MOST_COMBINATIONS:
        best = _best_of(product(*lists), zones, exclusive)
        return _Best(zones) if best.is_unsatisfied else best
    union = narrowest_union(lists, zones)
    return _Best(union, score=sum(hint.score for hints in lists for hint in hints if hint.zones == union))


def narrowest_union(lists: Iterable[Sequence[Hint]], zones: Zones) -> Zones:
    """Return the narrowest set of zones that contains a hint of each list; all zones if there is none. With more than 8
    zones the search is not exhaustive, so a narrower set may exist.
    """
    unions = [0]
    for hints in lists:
        masks = _narrowest({hint.zones or 0 for hint in hints if (hint.zones or 0) & ~zones == 0})
        unions = _narrowest({union | mask for union in unions for mask in masks})
    return (unions[0] if unions else 0) or zones


def _narrowest(masks: Iterable[Zones]) -> list[Zones]:
    """Return the sets that contain no other one, the narrowest first, and at most `_MOST_UNIONS` of them."""
    kept: list[Zones] = []
    for mask in sorted(masks, key=_width):
        if len(kept) == _MOST_UNIONS:
            break
        if not any(narrower & mask == narrower for narrower in kept):
            kept.append(mask)
    return kept


def _width(zones: Zones) -> tuple[int, Zones]:
    return zones.bit_count(), zones


def _best_of(
    combinations: Iterable[tuple[Hint, ...]], zones: Zones, exclusive: Mapping[int, ZoneStatus] | None
) -> _Best:
    """Return the best of the combinations; the order decides between some of them."""
    best = _Best(zones)
    for hints in combinations:
        present = {hint.zones for hint in hints if hint.zones is not None}
        merged = zones
        for mask in present:
            merged &= mask
        if not merged:
            continue
        preferred = len(present) <= 1 and all(hint.preferred for hint in hints) and _may_own(merged, exclusive)
        score = sum(hint.score for hint in hints if hint.zones == merged)
        if preferred == best.preferred:
            is_as_wide = merged.bit_count() == best.zones.bit_count()
            is_better = is_narrower(merged, best.zones) or (is_as_wide and score > best.score)
        else:
            is_better = preferred
        if is_better:
            widest = max((mask.bit_count() for mask in present), default=0)
            best = _Best(merged, preferred, score, _NEVER in hints or widest > merged.bit_count())
    return best


def _may_own(zones: Zones, exclusive: Mapping[int, ZoneStatus] | None) -> bool:
    """Return whether a pod may have the zones for itself as far as pods that span zones are concerned."""
    if exclusive is None:
        return True
    barred = ZoneStatus.SINGLE if zones.bit_count() > 1 else ZoneStatus.SHARED
    return all(exclusive.get(zone, ZoneStatus.IDLE) is not barred for zone in ids_of(zones))


def _unaligned(lists: Iterable[_Candidates]) -> str:
    """Return which zones each resource prefers and which it accepts, as binary masks."""
    parts: list[str] = []
    for resource, hints in lists:
        masks = [(f"{hint.zones:b}", hint.preferred) for hint in hints if hint.zones is not None]
        if masks:
            preferred = " ".join(mask for mask, is_preferred in masks if is_preferred)
            accepted = " ".join(mask for mask, _ in masks)
            parts.append(f"{resource} prefer [{preferred}] among [{accepted}]")
    return f"Unaligned NUMA Hint cause {', '.join(parts)}"


class TopologyHintsPlugin(Plugin, Protocol):
    """A plugin that tells which NUMA zones can satisfy a pod, and allocates inside the chosen zones. It is called only
    if the pod or the node has a NUMA topology policy. At Reserve, `Cluster.affinities` holds the zones that were chosen
    for the pod.
    """

    def gives_hints(self, pod: PodClass) -> bool:
        """Whether pods of this class request the plugin's resources. If not, its other methods are not called."""
        ...

    def topology_hints(self, pod: PodClass, row: int) -> Hints | str:
        """Which NUMA zones of a node can satisfy the pod, with the present allocations of the node's pods: resource ->
        hints, each a set of zones; `NO_HINTS` if the pod may use any zones; or a sentence about why the node cannot run
        the pod at all.
        """
        ...

    def refused_within(self, pod: PodClass, row: int, zones: Zones | None) -> str | None:
        """Return why the plugin cannot allocate for the pod inside these zones; None if it can. Nothing is allocated.
        `zones`: the zones that the merged hints allow, one bit per zone; None: the whole node.
        """
        ...

    def state_of(self, row: int) -> Hashable:
        """Return a value that describes the plugin's resources on a node and what pods use of them. A pod gets equal
        hints and zones on nodes with equal values, so results for one of them are used for all.
        """
        ...


class TopologyManagerPlugin(Plugin, Protocol):
    """The plugin that merges the NUMA hints of all plugins and decides in which zones a pod is allocated."""

    def use_hints_of(self, providers: Sequence[TopologyHintsPlugin]) -> None:
        """Set the plugins whose hints are merged. The scheduler calls it once, when it builds the profile."""
        ...
