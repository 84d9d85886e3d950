"""Needs of a pod in CPUs and zones: what it asks for, what its class needs, and the exact decision for one node. A
designated allocation is one that another program has chosen and asks for by the scheduling hint of the pod: the node
gives exactly these CPUs and zone amounts or none.

Source: scheduler-fine-grained spec, 1.3, 1.5, 1.7
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.amplification import amplify
from koordcore.protocol.annotations.allocation import parse_allocation
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.scheduling_hint import is_designated
from koord_scheduler.domain.framework.topology_hints import (
    Hints,
    TopologyHintsPlugin,
    TopologyPolicy,
    Zones,
    admitted,
    zones_of,
)
from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy
from koord_scheduler.domain.plugins.numa.binding import Binding, PodBinding, ResourceSpec, binding_on, pod_binding
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.columns import WHOLE
from koord_scheduler.domain.plugins.numa.cpu_layout import mask_text, parsed_mask
from koord_scheduler.domain.plugins.numa.hardware import NodeHardware
from koord_scheduler.domain.plugins.numa.hinting import Strategy, zone_hints, zone_score
from koord_scheduler.domain.plugins.numa.node_book import NodeBook
from koord_scheduler.domain.plugins.numa.zones import Allocated, NodeZones, Shortage, allocate, not_as_required

T = TypeVar("T")
PLUGIN: Final = "NodeNUMAResource"
_REQUIRED: Final = "Required"
_BINDING: Final = (QosClass.LSE, QosClass.LSR)
_MOST_MILLI: Final = MAX_AMOUNT // 1000 * 1000  # whole CPUs
_POLICIES: Final = {policy.value: policy for policy in TopologyPolicy}


class _NumaTopologySpec(msgspec.Struct, frozen=True):
    policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Requests of a pod about CPUs and NUMA zones besides amounts, read from its labels and annotations."""

    binding: PodBinding  # How the pod binds CPUs
    policy: TopologyPolicy = TopologyPolicy.NONE  # NUMA topology policy of the pod
    # Whether the pod avoids zones of certain pods. If the pod spans zones, it gets no zone with bound pods. Otherwise
    # it gets no zone with pods that span zones.
    is_exclusive: bool = False
    # Text of its annotation resource-status, if the pod may get nothing else; "": any CPUs and zones.
    designated: str = ""
    refusal: str = ""  # Why the pod cannot be placed on any node; "" if it can


def asks(pod: Pod) -> bool:
    """Return whether the pod requests bound CPUs or NUMA alignment by itself, whatever its node demands. It does if its
    QoS label is LSE or LSR, or if it has the annotation resource-spec or numa-topology-spec, or if its CPUs and zones
    are designated.
    """
    meta = pod.metadata
    return (
        _is_designated(pod)
        or meta.labels.get(keys.QOS_CLASS) in _BINDING
        or keys.RESOURCE_SPEC in meta.annotations
        or keys.NUMA_TOPOLOGY_SPEC in meta.annotations
    )


def wish_of(pod: Pod, default_bind_policy: str) -> Wish | None:
    """Return the requests of a pod about CPUs and NUMA zones besides amounts; None if it has none (`asks` is False). If
    an annotation is invalid or contradicts the amounts, `Wish.refusal` says so. `default_bind_policy`: argument
    `defaultCPUBindPolicy` of the plugin. Raises InvalidInput: one of its requests is not a valid quantity.
    """
    if not asks(pod):
        return None
    milli = min(pod_requests(pod).get(CPU, 0), _MOST_MILLI)
    try:
        spec = _decoded(pod.metadata.annotations, keys.RESOURCE_SPEC, ResourceSpec)
        topology = _decoded(pod.metadata.annotations, keys.NUMA_TOPOLOGY_SPEC, _NumaTopologySpec)
        designated = pod.metadata.annotations[keys.RESOURCE_STATUS] if _is_designated(pod) else ""
        parse_allocation({keys.RESOURCE_STATUS: designated})
    except InvalidInput as error:
        return Wish(binding=PodBinding(milli=milli), refusal=str(error))
    qos = pod.metadata.labels.get(keys.QOS_CLASS, "")
    binding = pod_binding(milli, qos, priority_class(pod), spec, default_bind_policy)
    if isinstance(binding, str):
        return Wish(binding=PodBinding(milli=milli), refusal=binding)
    policy = _POLICIES.get(topology.policy, TopologyPolicy.NONE)
    exclusive = topology.exclusive or (_REQUIRED if policy is not TopologyPolicy.NONE else "")
    return Wish(binding=binding, policy=policy, is_exclusive=exclusive == _REQUIRED, designated=designated)


def designated_of(wish: Wish) -> Allocated | None:
    """Return the CPUs and zone amounts that the pod's annotation designates; None if the pod may get any."""
    if not wish.designated:
        return None
    allocation = parse_allocation({keys.RESOURCE_STATUS: wish.designated})
    return Allocated(parsed_mask(allocation.cpuset), {each.zone: dict(each.amounts) for each in allocation.zones})


def _is_designated(pod: Pod) -> bool:
    return bool(pod.metadata.annotations.get(keys.RESOURCE_STATUS)) and is_designated(pod.metadata.annotations, PLUGIN)


def _decoded(annotations: Mapping[str, str], key: str, kind: type[T]) -> T:
    text = annotations.get(key)
    try:
        return lenient_json.decode(text, kind) if text else kind()
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{key}]") from error


def problem_of_designated(
    node: NodeZones, requests: Mapping[str, int], binding: Binding | None, designated: Allocated
) -> str:
    """Return why the node cannot give a pod the designated CPUs and zone amounts; "" if it can. `requests`: resource ->
    amount that the pod requests, not amplified. `binding`: how the pod binds CPUs on the node; None if it binds none.
    """
    cpus, zones = designated
    count = 0 if binding is None else binding.count
    if cpus.bit_count() != count:
        return f"designated CPUs {mask_text(cpus) or 'none'}: the pod binds {count} on the node"
    if cpus & ~node.free:
        return f"designated CPUs {mask_text(cpus & ~node.free)} are not free"
    if binding is not None and node.layout is not None:
        refused = not_as_required(node.layout, binding, cpus)
        if refused:
            return refused
    for zone, amounts in zones.items():
        for name, amount in amounts.items():
            weight = amplify(amount, node.ratio) if name == CPU and binding is not None else amount
            left = node.available(zone, name)
            if weight > left:
                return f"designated zone {zone} has {left} of {weight} {name} free"
    for name, amount in requests.items() if zones else ():
        given = sum(amounts.get(name, 0) for amounts in zones.values())
        if node.reports(name) and given < amount:
            return f"the designated zones have {given} of {amount} {name} that the pod requests"
    return ""


POLICY_MISMATCH: Final = "node(s) NUMA Topology policy not match"
NO_ZONES: Final = "node(s) missing NUMA resources"
_MOST_ENUMERATED: Final = 8
"""On nodes with more zones only sets of one or two zones are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Needs of one pod equivalence class in CPUs and NUMA zones. They do not depend on the node."""

    pod: PodClass
    binding: PodBinding  # How the pods bind CPUs
    policy: TopologyPolicy  # NUMA topology policy of the pods themselves
    # Whether a pod that spans zones gets no zone where pods have bound CPUs, and a pod within one zone gets no zone
    # where pods with bound CPUs span zones.
    is_exclusive: bool
    is_asked: bool  # Whether the pods themselves request bound CPUs or a topology policy. If not, nodes are not scored.
    amounts: Mapping[str, int]  # Resource -> requested amount, above 0
    designated: Allocated | None  # The only CPUs and zone amounts that the pods may get; None: any
    providers: tuple[TopologyHintsPlugin, ...]  # Plugins that have NUMA hints for them


class Terms(NamedTuple):
    """The policies that apply to a pod on one node, from the pod and the node together."""

    policy: TopologyPolicy
    binding: Binding | None  # How CPUs are bound; None if they are not


class Planned(NamedTuple):
    """The CPUs and zones that a pod would get on one node."""

    terms: Terms  # The policies that apply to the pod on the node
    affinity: Zones | None  # Zones from which the pod's resources come, one bit per zone; None: no alignment
    allocated: Allocated  # CPUs and amounts per zone


def terms_on(need: Need, hardware: NodeHardware) -> Terms | str:
    """Return the policies that apply to a pod on a node, or a sentence about why the pod can never run there."""
    if TopologyPolicy.NONE not in (need.policy, hardware.policy) and need.policy is not hardware.policy:
        return POLICY_MISMATCH
    policy = hardware.policy if need.policy is TopologyPolicy.NONE else need.policy
    if policy is not TopologyPolicy.NONE and not hardware.zones:
        return NO_ZONES
    layout = hardware.layout
    binding = binding_on(need.binding, hardware.bind_policy, can_fill=None if layout is None else layout.can_fill)
    return binding if isinstance(binding, str) else Terms(policy, binding)


def plan(need: Need, row: int, books: NumaBooks, strategy: Strategy) -> Planned | str:
    """Choose zones and CPUs of a node for a pod, without counting them. `books`: CPUs and zone amounts that pods hold
    on all nodes. Result: the CPUs and zones, or a sentence about why the pod cannot get them.
    """
    book = books.book(row)
    terms = terms_on(need, book.hardware)
    if isinstance(terms, str):
        return terms
    node = book.zones(most_allocated=strategy.most_allocated)
    if need.designated is not None:
        return _designated(need, row, terms, node, need.designated)
    found = _affinities(need, row, books, terms, node, strategy)
    if isinstance(found, str):
        return found
    reason = ""
    for affinity in found:
        reason = _refused_within(need, row, affinity) if terms.policy is not TopologyPolicy.NONE else ""
        if not reason:
            allocated = allocate(node, need.amounts, terms.binding, affinity)
            if not isinstance(allocated, Shortage):
                return Planned(terms, affinity, allocated)
            reason = ", ".join(allocated.reasons)
    return reason


def _affinities(
    need: Need, row: int, books: NumaBooks, terms: Terms, node: NodeZones, strategy: Strategy
) -> list[Zones | None] | str:
    """Return the zones in which the pod may be allocated, those to try first; None stands for no alignment. A sentence
    if the node is refused.
    """
    if terms.policy is TopologyPolicy.NONE:
        return [None]
    book = books.book(row)
    is_limited = book.share is not None and bool(book.share.limits)
    single = None if is_limited else best_single_zone(need, row, books, node, terms.binding, strategy)
    is_best_effort = terms.policy is TopologyPolicy.BEST_EFFORT
    if single is not None:
        return [1 << single[0], None] if is_best_effort else [1 << single[0]]
    most = 1 if terms.policy is TopologyPolicy.SINGLE_NUMA_NODE else None
    most = 2 if most is None and len(node.allocatable) > _MOST_ENUMERATED else most
    hints = zone_hints(node, need.amounts, terms.binding, terms.policy, strategy, most_zones=most)
    providers: list[Hints] = [hints]
    for provider in need.providers:
        given = provider.topology_hints(need.pod, row)
        if isinstance(given, str):
            return [None] if is_best_effort else given
        providers.append(given)
    exclusive = books.columns.statuses(row, node.allocatable) if need.is_exclusive else None
    decision = admitted(terms.policy, node.zones, providers, exclusive)
    if not decision.is_admitted:
        return ", ".join(decision.reasons)
    return list(dict.fromkeys((decision.zones, node.zones, None))) if is_best_effort else [decision.zones]


def _designated(need: Need, row: int, terms: Terms, node: NodeZones, designated: Allocated) -> Planned | str:
    """Return the designated CPUs and zones, or why the node cannot give them."""
    problem = problem_of_designated(node, need.amounts, terms.binding, designated)
    if problem:
        return problem
    if terms.policy is TopologyPolicy.NONE:
        return Planned(terms, None, designated)
    if not designated.zones:
        return f"no zones are designated, and the NUMA topology policy {terms.policy} applies"
    affinity = zones_of(designated.zones)
    return _refused_within(need, row, affinity) or Planned(terms, affinity, designated)


def _refused_within(need: Need, row: int, affinity: Zones | None) -> str:
    """Return why a plugin cannot give the pod its resources in these zones; "" if all can."""
    refusals = (provider.refused_within(need.pod, row, affinity) for provider in need.providers)
    return next((refusal for refusal in refusals if refusal), "")


def single_zones(need: Need, row: int, books: NumaBooks, binding: Binding | None) -> list[int]:
    """Return the zones of a node that could each satisfy the whole pod alone, ascending. `books`: CPUs and zone amounts
    that pods hold on all nodes. `binding`: how CPUs are bound on the node; None if none are bound.
    """
    columns, hardware = books.columns, books.book(row).hardware
    reported = [
        (resource, amount, columns.available(resource))
        for resource, amount in need.amounts.items()
        if any(resource in amounts for amounts in hardware.zones.values())
    ]
    usable = None if binding is None else columns.usable(binding.policy, is_required=binding.is_required)
    if binding is not None and usable is not None and not any(resource == CPU for resource, _, _ in reported):
        if usable.item(WHOLE, row) < binding.count or not fills_cores(books.book(row), binding):
            return []
        usable = None
    found: list[int] = []
    for zone in hardware.zones:
        if need.is_exclusive and columns.spanning.item(zone + 1, row):
            continue
        if usable is not None and binding is not None and not fills_cores(books.book(row), binding, zone):
            continue
        for resource, amount, left in reported:
            available = left.item(zone + 1, row)
            if available < amount:
                break
            if resource == CPU and binding is not None and usable is not None:
                is_enough = usable.item(zone + 1, row) >= binding.count
                if not is_enough or amplify(amount, hardware.ratio) > available:
                    break
        else:
            found.append(zone)
    return found


def fills_cores(book: NodeBook, binding: Binding, zone: int | None = None) -> bool:
    """Return whether free cores of the node, or of one zone, have exactly the CPUs that the pod needs, if it must have
    whole cores and those of the node differ. True otherwise: numbers of free CPUs decide.
    """
    layout = book.hardware.layout
    if layout is None or layout.is_regular or not binding.is_required or binding.policy is not BindPolicy.FULL_PCPUS:
        return True
    if zone is None:
        return layout.fills(book.free, binding.count)
    return zone in layout.zones and layout.fills(book.free & layout.zones[zone].cpus, binding.count)


def best_single_zone(
    need: Need, row: int, books: NumaBooks, node: NodeZones, binding: Binding | None, strategy: Strategy
) -> tuple[int, int] | None:
    """Return (zone, score) of the best zone that can satisfy the whole pod, without merging hints. A merge of hints
    would choose the same zone. None if there is no such zone, or if a merge is necessary: other plugins give hints, or
    no zone reports a requested resource.
    """
    if need.providers or not any(node.reports(resource) for resource in need.amounts):
        return None
    best: tuple[int, int] | None = None
    for zone in single_zones(need, row, books, binding):
        score = zone_score(node, need.amounts, binding, 1 << zone, strategy)
        if best is None or score > best[1]:
            best = (zone, score)
    return best
