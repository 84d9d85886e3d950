"""Merge the hints of all providers into one affinity, and decide under a topology policy whether the node admits it.

Source: scheduler-fine-grained spec, 1.7; vectors scheduler/numa_hint_merge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import product
from typing import NamedTuple

from koord_scheduler.domain.topology_hints.hints import Hint, Hints, Zones, ids_of, is_narrower


class TopologyPolicy(Enum):
    """Policy about the NUMA zones of a pod's resources: how strictly they must be the same (as in the kubelet)."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class ZoneStatus(Enum):
    """State of a NUMA zone by the pods with NUMA alignment that use it.

    IDLE: none. SINGLE: only pods that use this zone alone. SHARED: pods that span several zones.
    """

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


class Admission(NamedTuple):
    """The result of merging the hints of all plugins under a topology policy.

    Attributes:
        is_admitted: Whether the policy accepts the zones.
        zones: The chosen zones, one bit per zone; None: no alignment.
        preferred: Whether every plugin prefers these zones.
        score: Sum of the scores of the hints with exactly these zones.
        unsatisfied: Resources that no zones satisfy.
        reasons: Why the policy does not accept them.
    """

    is_admitted: bool
    zones: Zones | None
    preferred: bool = False
    score: int = 0
    unsatisfied: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


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
        best = _best_of(product(*hints), zones, exclusive)
        if best.is_unsatisfied:
            best = _Best(zones)
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


def _alike(lists: Sequence[Sequence[Hint]], chosen: Zones | None = None) -> Iterator[tuple[Hint, ...]]:
    """Yield the combinations of preferred hints that agree in their zones, in the order of all combinations.

    Only these can be preferred, and they are few: all combinations may be millions.
    """
    if not lists:
        yield ()
        return
    for hint in lists[0]:
        if hint.preferred and (hint.zones is None or chosen is None or hint.zones == chosen):
            for rest in _alike(lists[1:], chosen if hint.zones is None else hint.zones):
                yield (hint, *rest)


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
