"""Allocation procedure of DeviceShare: which devices of a node a pod is given.

    allocate   candidates -> primary type -> secondary types -> other types

A pod with the annotation `scheduling.koordinator.sh/device-joint-allocate` has a joint rule: it lists device types
whose devices shall be near each other. The first type, usually gpu, is the primary one, the others are secondary.

Designated devices are those that another program has chosen and written into the scheduling hint of the pod: a node
gives exactly these or none.

Source: scheduler-fine-grained spec, 1.3 (designated allocation), 2.3, 2.5, 2.6, 2.9
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from koordcore.protocol.annotations.devices import (
    APPLY_FOR_ALL,
    DEVICE_LEVEL,
    REQUESTS_AS_COUNT,
    SAME_PCIE,
    DeviceHint,
    JointAllocation,
)
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE, TypeRequest
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.plugins.device.gpu_tree import GpuSearch, search_tree
from koord_scheduler.domain.plugins.device.inventory import Card, Inventory, partition_table
from koord_scheduler.domain.plugins.device.partitions import choose_partition
from koord_scheduler.domain.plugins.device.picking import (
    NO_SCORING,
    NOT_RESERVED,
    Candidates,
    DeviceScoring,
    Picked,
    Reserved,
    candidates_of,
    device_score,
    is_fitting,
    pick,
    request_for,
    switches_of,
)
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal, insufficient
from koord_scheduler.domain.plugins.device.templates import NO_TEMPLATE, Templates, equal_templates
from koord_scheduler.domain.plugins.device.usage import DeviceUse


def designated_devices(
    inventory: Inventory, use: DeviceUse, pod: PodDevices, zones: Collection[int] | None, reserved: Reserved
) -> tuple[AllocatedDevice, ...] | Refusal:
    """Return the designated devices of a pod with the ids of the node's cards, or why the node cannot give them. `use`:
    amounts of the devices that pods hold. `pod`: devices that the pod requests; some are designated. `zones`: NUMA
    nodes from which devices must come; None: any.
    """
    for type_, request in pod.requests.items():
        for name, amount in request.total.items():
            given = sum(each.amounts.get(name, 0) for each in pod.designated if each.type == type_)
            if given < amount:
                text = f"the designated devices have {given} of {amount} {name} that the pod requests"
                return Refusal(text, is_resolvable=False)
    found: list[AllocatedDevice] = []
    for device in sorted(pod.designated, key=lambda each: (each.type, each.minor)):
        card = inventory.by_minor.get(device.type, {}).get(device.minor)
        if card is None or not card.total:
            return Refusal(
                f"designated {device.type} {device.minor} is not on the node, or unhealthy", is_resolvable=False
            )
        candidates = candidates_of(inventory, use, pod, device.type, zones, reserved)
        if not _is_free(device, card, candidates, use):
            return Refusal(f"designated {device.type} {device.minor} is not free", is_resolvable=True)
        found.append(msgspec.structs.replace(device, id=card.id))
    return tuple(found)


def _is_free(device: AllocatedDevice, card: Card, candidates: Candidates, use: DeviceUse) -> bool:
    left = candidates.free.get(device.minor)
    if left is None or any(amount > left[name] for name, amount in device.amounts.items() if name in left):
        return False
    held = use.held_functions(card)
    existing = {each.bus_id for group in card.groups for each in group.functions}
    return all(each.bus_id in existing and each.bus_id not in held for each in device.virtual_functions)


MISSING_TREE: Final = "node(s) missing GPU Device Topology Tree"
SEVERAL_SHARED: Final = "node(s) Unsupported Multi-Shared GPU"
NOT_IN_SCOPE: Final = "Insufficient Topology Scoped GPU Devices"
INSUFFICIENT_GPUS: Final = "Insufficient GPU Devices"
JOINT_VIOLATED: Final = "node(s) Device Joint-Allocate rules violation"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevices:
    """Input of an allocation of devices on one node: the devices, their use by pods, and the node's labels."""

    inventory: Inventory
    use: DeviceUse  # Amounts of the devices that pods on the node hold
    labels: Mapping[str, str]
    # Shared-resource templates for the node's cards.
    templates: Templates = field(default_factory=dict[str, Mapping[str, int]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Conditions of an allocation that do not come from the pod itself."""

    zones: frozenset[int] | None = None  # NUMA nodes from which devices must come; None: any
    scoring: DeviceScoring = NO_SCORING
    reserved: Reserved = NOT_RESERVED  # Devices that the pod's Reservations hold for it
    # Minor number -> score of a GPU that replaces the score of the strategy.
    card_scores: Mapping[int, int] = field(default_factory=dict[int, int])
    types: frozenset[str] | None = None  # The device types to allocate; None: all that the pod requests


def allocate(node: NodeDevices, pod: PodDevices, terms: Terms) -> tuple[AllocatedDevice, ...] | Refusal:
    """Choose devices of a node for a pod. The node's free amounts do not change. `pod`: devices that the pod requests.
    The requests must be valid. Result: the devices, ascending by type and minor number, or why the pod cannot get them.
    """
    types = [type_ for type_ in pod.requests if terms.types is None or type_ in terms.types]
    counts: dict[str, tuple[int, Mapping[str, int]]] = {}
    for type_ in types:
        found = _per_device(node.inventory, type_, pod.requests[type_], pod.hint(type_))
        if isinstance(found, Refusal):
            return found
        counts[type_] = found
    if pod.designated:
        return designated_devices(node.inventory, node.use, pod, terms.zones, terms.reserved)
    joint = pod.joint if pod.joint is not None and len(types) > 1 else None
    given = _given(node, pod, terms, joint, types, counts, None)
    if isinstance(given, _Failed) and given.is_secondary and joint is not None and joint.required_scope == SAME_PCIE:
        for switches in _other_switches(node, pod, terms, joint, counts):
            again = _given(node, pod, terms, joint, types, counts, switches)
            if not isinstance(again, _Failed):
                given = again
                break
    return given.refusal if isinstance(given, _Failed) else _allocated(node, pod, given, counts)


class _Failed(NamedTuple):
    refusal: Refusal
    is_secondary: bool  # Whether the devices of the primary type were found


def _given(
    node: NodeDevices,
    pod: PodDevices,
    terms: Terms,
    joint: JointAllocation | None,
    types: Sequence[str],
    counts: Mapping[str, tuple[int, Mapping[str, int]]],
    switches: frozenset[str] | None,
) -> dict[str, list[Picked]] | _Failed:
    """Return the devices of each type. `switches`: the PCIe switches from which the primary devices must come; None:
    any.
    """
    given: dict[str, list[Picked]] = {}
    pcies: frozenset[str] = frozenset()
    order = [*joint.types, *(type_ for type_ in types if type_ not in joint.types)] if joint is not None else types
    for type_ in order:
        if type_ not in counts:
            continue
        wanted, per_device = counts[type_]
        most = wanted
        is_secondary = joint is not None and type_ in joint.types[1:]
        if joint is not None and is_secondary:
            if joint.required_scope == SAME_PCIE:
                wanted = max(wanted, len(pcies))
            most = max(wanted, len(pcies))
        candidates = candidates_of(node.inventory, node.use, pod, type_, terms.zones, terms.reserved)
        if switches is not None and joint is not None and type_ == joint.types[0]:
            candidates = _under(candidates, switches)
        on_switches = pcies if is_secondary else frozenset[str]()
        if type_ == GPU_TYPE:
            picked = _gpus(node, pod, candidates, terms, wanted, most, on_switches)
        else:
            picked = _others(node, pod, type_, candidates, terms, per_device, wanted, most, on_switches)
        if isinstance(picked, Refusal):
            return _Failed(picked, is_secondary)
        given[type_] = picked
        if joint is not None and type_ == joint.types[0]:
            pcies = _switches(picked)
        elif joint is not None and is_secondary and joint.required_scope == SAME_PCIE and _switches(picked) != pcies:
            return _Failed(Refusal(JOINT_VIOLATED, is_resolvable=True), is_secondary)
    return given


def _other_switches(
    node: NodeDevices,
    pod: PodDevices,
    terms: Terms,
    joint: JointAllocation,
    counts: Mapping[str, tuple[int, Mapping[str, int]]],
) -> list[frozenset[str]]:
    """Return the sets of PCIe switches to which the primary devices may be limited, so that secondary devices are below
    each of them: all such switches, those of one NUMA node, each alone.
    """
    able: frozenset[str] | None = None
    for type_ in joint.types[1:]:
        if type_ in counts:
            candidates = candidates_of(node.inventory, node.use, pod, type_, terms.zones, terms.reserved)
            found = switches_of(pod, type_, candidates, node.use, counts[type_][1])
            able = found if able is None else able & found
    if not able:
        return []
    by_numa: dict[int, set[str]] = {}
    for card in node.inventory.cards.get(joint.types[0], ()):
        if card.has_topology and card.pcie in able:
            by_numa.setdefault(card.numa, set()).add(card.pcie)
    of_zones = [frozenset(by_numa[numa]) for numa in sorted(by_numa)]
    return list(dict.fromkeys([able, *of_zones, *(frozenset((pcie,)) for pcie in sorted(able))]))


def _under(candidates: Candidates, switches: Collection[str]) -> Candidates:
    """Return the candidates below these PCIe switches; the others count as used."""
    cards = [card for card in candidates.cards if card.has_topology and card.pcie in switches]
    free = {card.minor: candidates.free[card.minor] for card in cards}
    hidden = [card.minor for card in candidates.cards if card.minor not in free]
    return Candidates(cards, free, candidates.used.union(hidden))


def is_well_planned_for(inventory: Inventory, pod: PodDevices) -> bool:
    """Return whether the Device object says that the pod's secondary devices fit wherever its whole GPUs do. They are
    looked for nevertheless: a device may be missing or unhealthy.
    """
    gpu = pod.gpu
    return inventory.is_well_planned and pod.joint is not None and gpu is not None and not gpu.is_shared


def _per_device(
    inventory: Inventory, type_: str, request: TypeRequest, hint: DeviceHint
) -> tuple[int, Mapping[str, int]] | Refusal:
    cards = inventory.cards.get(type_, ())
    if not any(card.total for card in cards):
        return insufficient(type_, is_resolvable=False)
    if hint.vf_selector is not None and not any(card.groups for card in cards):
        return Refusal(f"Insufficient {type_} VirtualFunctions", is_resolvable=False)
    count, per_device = request.count, request.per_device
    if type_ == GPU_TYPE or count > 1:
        return count, per_device
    (name,) = request.total
    if hint.allocate_strategy == APPLY_FOR_ALL:
        selector = hint.selector
        if selector is None:
            count = sum(1 for card in cards if card.total)
        else:
            count = sum(1 for card in cards if selector.matches(card.labels))
        if count == 0:
            return insufficient(type_, is_resolvable=False)
    elif hint.allocate_strategy == REQUESTS_AS_COUNT:
        count = request.total[name]
        per_device = {name: WHOLE if hint.exclusive_policy == DEVICE_LEVEL else 1}
    return count, per_device


def _others(
    node: NodeDevices,
    pod: PodDevices,
    type_: str,
    candidates: Candidates,
    terms: Terms,
    per_device: Mapping[str, int],
    wanted: int,
    most: int,
    pcies: Collection[str],
) -> list[Picked] | Refusal:
    preferred = terms.reserved.preferred.get(type_, frozenset())
    return pick(
        pod,
        type_,
        candidates,
        node.use,
        per_device,
        wanted,
        most,
        pcies=pcies,
        preferred=preferred,
        scoring=terms.scoring,
        scores=terms.card_scores if type_ == GPU_TYPE else {},
    )


def _gpus(
    node: NodeDevices,
    pod: PodDevices,
    candidates: Candidates,
    terms: Terms,
    wanted: int,
    most: int,
    pcies: Collection[str],
) -> list[Picked] | Refusal:
    """Return GPUs by partition table, else by the topology tree, else by the default picker."""
    request = pod.requests[GPU_TYPE]
    per_card = request.per_device
    by_minor = node.inventory.by_minor[GPU_TYPE]

    known_fits: dict[int, bool] = {}
    known_scores: dict[int, int] = {}

    def fits(minor: int) -> bool:
        left = candidates.free.get(minor)
        if left is None:
            return False
        answer = known_fits.get(id(left))  # unused cards of one kind have the same object left
        if answer is None:
            answer = known_fits[id(left)] = is_fitting(by_minor[minor], left, per_card)
        return answer

    if not request.is_shared:
        table, must_honor = partition_table(node.inventory, node.labels)
        if table is not None or must_honor or pod.partition is not None:
            able = [card.minor for card in candidates.cards if fits(card.minor)]
            chosen = choose_partition(table, wanted, candidates.used, able, pod.partition)
            if not isinstance(chosen, Refusal):
                return [Picked(by_minor[minor]) for minor in chosen]
            if must_honor or pod.partition is not None:
                return chosen
    level = pod.hint(GPU_TYPE).scope_level
    zones = node.inventory.zones
    if not zones or (request.is_shared and wanted > 1):
        if level:
            return Refusal(SEVERAL_SHARED if zones else MISSING_TREE, is_resolvable=False)
        return _others(node, pod, GPU_TYPE, candidates, terms, per_card, wanted, most, pcies)

    def score(minor: int) -> int:
        given = terms.card_scores.get(minor)
        if given is not None:
            return given
        left = candidates.free[minor]
        answer = known_scores.get(id(left))
        if answer is None:
            answer = known_scores[id(left)] = device_score(per_card, by_minor[minor].total, left, terms.scoring)
        return answer

    preferred = terms.reserved.preferred.get(GPU_TYPE, frozenset())
    search = GpuSearch(
        count=wanted,
        is_shared=request.is_shared,
        level=level,
        used=candidates.used,
        fits=fits,
        score=score,
        preferred=preferred,
    )
    minors = search_tree(zones, search)
    if minors is None:
        return Refusal(NOT_IN_SCOPE if level else INSUFFICIENT_GPUS, is_resolvable=True)
    return [Picked(by_minor[minor]) for minor in minors]


def _switches(picked: Collection[Picked]) -> frozenset[str]:
    return frozenset(each.card.pcie for each in picked if each.card.has_topology)


def _allocated(
    node: NodeDevices,
    pod: PodDevices,
    given: Mapping[str, list[Picked]],
    counts: Mapping[str, tuple[int, Mapping[str, int]]],
) -> tuple[AllocatedDevice, ...] | Refusal:
    template = template_of(node, pod)
    if template is None:
        return Refusal(NO_TEMPLATE, is_resolvable=False)
    return tuple(
        AllocatedDevice(
            type=type_,
            minor=each.card.minor,
            id=each.card.id,
            amounts=dict(request_for(each.card, counts[type_][1])),
            virtual_functions=() if each.function is None else (each.function,),
            template=template if type_ == GPU_TYPE else "",
        )
        for type_ in sorted(given)
        for each in sorted(given[type_], key=lambda each: each.card.minor)
    )


def template_of(node: NodeDevices, pod: PodDevices) -> str | None:
    """Return the name of the shared-resource template that the pod uses on the node. Empty: the pod needs no template,
    or several fit. None: the pod needs one that the node does not have.
    Source: scheduler-fine-grained spec, 2.13.
    """
    gpu = pod.gpu
    if gpu is None or not pod.needs_template:
        return ""
    names = equal_templates(node.templates, gpu)
    if not names:
        return None
    return names[0] if len(names) == 1 else ""
