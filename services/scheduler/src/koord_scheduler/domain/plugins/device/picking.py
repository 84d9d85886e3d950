"""The devices of a node that a pod may use, and the choice among them by score.

Source: scheduler-fine-grained spec, 2.5, 2.11
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from koordcore.protocol.hardware.device_requests import GPU_TYPE, with_both_memory_units
from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE
from koordcore.protocol.resource_names import GPU_MEMORY
from koordcore.protocol.selectors import Selector
from koordcore.values.allocation import AllocatedDevice, VirtualFunction

from koord_scheduler.domain.plugins.device.inventory import Card, Inventory
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal, insufficient
from koord_scheduler.domain.plugins.device.usage import DeviceUse

MAX_SCORE: Final = 100


class DeviceScoring(NamedTuple):
    """The scoring strategy for devices: least or most allocated first, and the weight of each resource."""

    weights: tuple[tuple[str, int], ...] = ()  # (Resource name, weight), each weight above 0
    is_least: bool = True  # True for LeastAllocated, False for MostAllocated


NO_SCORING: Final = DeviceScoring()
"""All scores are 0."""


def device_score(
    request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int], scoring: DeviceScoring
) -> int:
    """Return the score within 0..100 of one device, or of sums over devices, for a request. `request`: amounts by
    resource name; a missing name counts as 0. `total`: Capacity; resources without capacity do not count.
    """
    sum_, weights = 0, 0
    for name, weight in scoring.weights:
        capacity = total.get(name, 0)
        if capacity <= 0:
            continue
        left = free.get(name, 0)
        requested = capacity if left > capacity else capacity - left + request.get(name, 0)
        if not scoring.is_least:
            part = min(requested, capacity) * MAX_SCORE // capacity
        else:
            part = (capacity - requested) * MAX_SCORE // capacity if requested <= capacity else 0
        sum_ += weight * part
        weights += weight
    return sum_ // weights if weights else 0


MinorAmounts = Mapping[str, Mapping[int, Mapping[str, int]]]
"""Device type -> minor -> resource name -> amount."""

NO_SCORES: Final[Mapping[int, int]] = {}
"""Every card has the score of the strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Effect of a pod's Reservations on the devices of a node that the pod may use: restricted or extended."""

    # Device type -> minor numbers that are taken first.
    preferred: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    # Device type -> the only minor numbers that may be used, with the free amounts of their devices; types without an
    # entry are not restricted.
    required: MinorAmounts = field(default_factory=dict[str, Mapping[int, Mapping[str, int]]])
    # Amounts that count as free, by type, minor number and resource.
    preemptible: MinorAmounts = field(default_factory=dict[str, Mapping[int, Mapping[str, int]]])


NOT_RESERVED = Reserved()


def reserved_of(devices: Sequence[AllocatedDevice], limits: frozenset[str]) -> Reserved:
    """Return the effect of a Reservation for its owners: they take its devices first, or only its devices. `devices`:
    devices of the Reservation with the amounts that no owner holds. `limits`: resources that an owner may take only
    from the Reservation.
    """
    preferred: dict[str, frozenset[int]] = {}
    required: dict[str, dict[int, Mapping[str, int]]] = {}
    for device in devices:
        preferred[device.type] = preferred.get(device.type, frozenset()) | {device.minor}
        if not limits.isdisjoint(device.amounts):
            required.setdefault(device.type, {})[device.minor] = device.amounts
    return Reserved(preferred=preferred, required=required)


class Candidates(NamedTuple):
    """The devices of one type that a pod may use on a node, with their free amounts."""

    cards: Sequence[Card]  # The devices, ascending by minor number, unhealthy ones among them
    free: Mapping[int, Mapping[str, int]]  # Minor number -> resource -> free amount
    used: frozenset[int]  # Minor numbers of devices that are in use or that the pod may not use


_SCORE_AND_MINOR = itemgetter(0, 1)


class Picked(NamedTuple):
    """A device that was chosen for a pod, with a virtual function of it or None."""

    card: Card
    function: VirtualFunction | None = None


def candidates_of(
    inventory: Inventory,
    use: DeviceUse,
    pod: PodDevices,
    type_: str,
    zones: Collection[int] | None,
    reserved: Reserved,
) -> Candidates:
    """Return the devices of one type on a node that the pod may use. `use`: amounts of the devices that pods hold.
    `zones`: NUMA nodes from which devices must come; None: any.
    """
    cards = inventory.cards.get(type_, ())
    selector = pod.hint(type_).selector
    required = reserved.required.get(type_)
    preemptible = reserved.preemptible.get(type_, {})
    if zones is not None or selector is not None or required is not None:
        visible = [card for card in cards if _is_visible(card, zones, selector, required)]
    else:
        visible = list(cards)
    free: dict[int, Mapping[str, int]] = {}
    amounts = use.amounts.get(type_, {})
    taken = {minor for minor in amounts if not _is_returned(amounts[minor], preemptible.get(minor, {}))}
    if pod.needs_unused_switch(type_):
        busy = {card.pcie for card in cards if card.minor in taken}
        visible = [card for card in visible if card.has_topology and card.pcie not in busy]
    for card in visible:
        used = amounts.get(card.minor)
        left = card.total if used is None else use.free(card)
        if card.minor in preemptible:
            left = _with(card, used or {}, preemptible[card.minor])
        if required is not None:
            limit = required[card.minor]
            left = {name: min(amount, limit.get(name, 0)) for name, amount in left.items()}
        free[card.minor] = left
    if len(visible) < len(cards):
        taken.update(card.minor for card in cards if card.minor not in free)
    return Candidates(visible, free, frozenset(taken))


def _is_visible(
    card: Card, zones: Collection[int] | None, selector: Selector | None, required: Mapping[int, object] | None
) -> bool:
    if zones is not None and not (card.has_topology and (card.numa == UNKNOWN_NUMA_NODE or card.numa in zones)):
        return False
    if selector is not None and not selector.matches(card.labels):
        return False
    return required is None or card.minor in required


def _with(card: Card, used: Mapping[str, int], preemptible: Mapping[str, int]) -> dict[str, int]:
    return {
        name: max(0, total - max(0, used.get(name, 0) - preemptible.get(name, 0))) for name, total in card.total.items()
    }


def _is_returned(used: Mapping[str, int], preemptible: Mapping[str, int]) -> bool:
    return bool(preemptible) and all(preemptible.get(name, 0) >= amount for name, amount in used.items())


def request_for(card: Card, per_device: Mapping[str, int]) -> Mapping[str, int]:
    """Return resource -> amount that the pod takes of this device, if it requests `per_device` of each device. For
    GPUs, memory is given in bytes and in percent: the missing one is computed from the GPU's memory.
    """
    return with_both_memory_units(per_device, card.total.get(GPU_MEMORY, 0)) if card.type == GPU_TYPE else per_device


def is_fitting(card: Card, free: Mapping[str, int], per_device: Mapping[str, int]) -> bool:
    """Return whether the device has the amounts free. Resources that the device does not have are not compared. False
    if the device is used up: all its free amounts are 0. `per_device`: the amounts that the pod requests of each
    device.
    """
    if not any(free.values()):
        return False
    return all(amount <= free[name] for name, amount in request_for(card, per_device).items() if name in free)


def pick(
    pod: PodDevices,
    type_: str,
    candidates: Candidates,
    use: DeviceUse,
    per_device: Mapping[str, int],
    wanted: int,
    most: int,
    *,
    pcies: Collection[str] = (),
    preferred: Collection[int] = (),
    scoring: DeviceScoring,
    scores: Mapping[int, int] = NO_SCORES,
) -> list[Picked] | Refusal:
    """Choose devices of one type by their scores; GPU partitions and the topology tree are not considered.

    Args:
        candidates: The devices that the pod may use.
        use: Amounts of the node's devices that pods hold.
        wanted: Smallest number of devices that suffices.
        pcies: PCIe switches of the primary devices; devices there come first. Ignored if `preferred` is not empty.
        preferred: Minor numbers of devices that come before all others.
        scores: Minor number -> score that replaces the score of the strategy.

    Returns:
        Between `wanted` and `most` devices, or why there are too few.
    """
    known: dict[int, int] = {}  # unused devices of one kind have the same object left
    ranked: list[tuple[int, int, Card]] = []
    for card in candidates.cards:
        left = candidates.free[card.minor]
        score = scores.get(card.minor) if scores else known.get(id(left))
        if score is None:
            score = known[id(left)] = device_score(per_device, card.total, left, scoring)
        ranked.append((-score, card.minor, card))
    ranked.sort(key=_SCORE_AND_MINOR)
    plain = [card for _, _, card in ranked]
    if preferred:
        plain.sort(key=lambda card: card.minor not in preferred)
    elif pcies:
        plain = _by_switch(plain, pcies)
    vf_selector = pod.hint(type_).vf_selector
    found: list[Picked] = []
    for card in plain:
        if not is_fitting(card, candidates.free[card.minor], per_device):
            continue
        function = None
        if vf_selector is not None:
            function = _free_function(card, vf_selector, use.held_functions(card))
            if function is None:
                continue
        found.append(Picked(card, function))
        if len(found) == most:
            break
    return found if len(found) >= wanted else insufficient(type_)


def switches_of(
    pod: PodDevices, type_: str, candidates: Candidates, use: DeviceUse, per_device: Mapping[str, int]
) -> frozenset[str]:
    """Return the PCIe switches below which the pod can get a device of the type."""
    vf_selector = pod.hint(type_).vf_selector
    return frozenset(
        card.pcie
        for card in candidates.cards
        if card.has_topology
        and is_fitting(card, candidates.free[card.minor], per_device)
        and (vf_selector is None or _free_function(card, vf_selector, use.held_functions(card)) is not None)
    )


def _by_switch(plain: Sequence[Card], pcies: Collection[str]) -> list[Card]:
    """Return devices of these switches round-robin, each round in plain order, then all others."""
    on_switch: dict[str, int] = {}
    rounds: dict[int, list[Card]] = {}
    others: list[Card] = []
    for card in plain:
        if card.has_topology and card.pcie in pcies:
            turn = on_switch[card.pcie] = on_switch.get(card.pcie, -1) + 1
            rounds.setdefault(turn, []).append(card)
        else:
            others.append(card)
    return [card for turn in sorted(rounds) for card in rounds[turn]] + others


def _free_function(card: Card, selector: Selector, held: Mapping[str, int]) -> VirtualFunction | None:
    """Return the free virtual function with the smallest bus id of the groups that match; None without one."""
    free = (
        each
        for group in card.groups
        if selector.matches(group.labels)
        for each in group.functions
        if each.bus_id not in held
    )
    return min(free, key=lambda each: each.bus_id, default=None)
