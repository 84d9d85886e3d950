"""Classes of tc (traffic control) for the interface of the default route: the wanted state, and the lines that set it.

The lines are for `tc -batch` and `ipset restore`.

Source: runtime spec, 3.11. Vectors: tc_qos.
"""

import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Any, Final

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_agent.domain.hooks import network_qos
from koord_agent.domain.node.policies import section

TC_POLICY: Final = "tc"
ROOT_CLASS: Final = "1:1"
SMALLEST_RATE: Final = 125
"""Smallest rate in bytes per second; htb refuses 0."""
FIRST_OWN_MINOR: Final = 0x10
"""Smallest minor number of a class that belongs to one pod."""
_LAST_MINOR: Final = 0xFFFF
_MAJOR: Final = 0x10000


@dataclass(frozen=True, slots=True, kw_only=True)
class HtbClass:
    classid: str  # Its id, `major:minor`
    parent: str  # Id of its parent, or `root`
    rate: int  # Guaranteed bandwidth in bytes per second
    ceil: int  # Largest bandwidth in bytes per second
    prio: int  # Priority; classes with a lower number borrow first


@dataclass(frozen=True, slots=True)
class NetClass:
    name: str  # Its name, which is also that of its ipset
    classid: int  # Value of net_cls.classid of its pods


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetClass:
    """The tc class of the packets of a pod: the class of its QoS class, or one of its own."""

    net_class: NetClass | None = None  # Class by its QoS label; None for a pod that is not handled
    egress_bytes_per_second: int | None = None  # Limit of the dedicated class of the pod; None without one


SYSTEM_CLASS: Final = NetClass("system_class", 0x10002)
LS_CLASS: Final = NetClass("ls_class", 0x10003)
BE_CLASS: Final = NetClass("be_class", 0x10004)
_CLASS_OF_LABEL: Final = {
    QosClass.SYSTEM.value: SYSTEM_CLASS,
    QosClass.LSE.value: LS_CLASS,
    QosClass.LSR.value: LS_CLASS,
    QosClass.LS.value: LS_CLASS,
    QosClass.BE.value: BE_CLASS,
}


def is_tc_enabled(node_slo: Mapping[str, Any]) -> bool:
    """A NodeSLO (`spec` as JSON) chooses tc if it has a systemStrategy and no other network policy."""
    policy = network_qos.network_policy(section(node_slo, "resourceQOSStrategy"))
    return policy in ("", TC_POLICY) and isinstance(node_slo.get("systemStrategy"), Mapping)


def bandwidth_bits(value: Any, total: int) -> int:
    """Return a bandwidth of the NodeSLO in bits per second; 0 if it is absent or invalid.

    `value` is a percentage of the total (an integer), or bits per second (the text of a quantity).
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return total * value // network_qos.ALL_PERCENT if 0 <= value <= network_qos.ALL_PERCENT else 0
    try:
        return max(quantity_from_json(value).value(), 0)
    except InvalidInput:
        return 0


def htb_classes(node_slo: Mapping[str, Any]) -> tuple[HtbClass, ...]:
    """Return the classes of a NodeSLO (`spec` as JSON), the root first. Rates may be 0.

    Raises:
        InvalidInput: The bandwidth of the node is malformed or negative.
    """
    total = network_qos.total_bits(section(node_slo, "systemStrategy"))
    strategy = section(node_slo, "resourceQOSStrategy")
    below: list[HtbClass] = []
    requested = 0
    for minor, of_class in ((3, "lsClass"), (4, "beClass")):
        qos = network_qos.class_network_qos(strategy, of_class)
        rate = bandwidth_bits(qos.get("egressRequest"), total)
        ceil = bandwidth_bits(qos.get("egressLimit"), total) or rate
        requested += rate
        below.append(_htb(f"1:{minor}", ROOT_CLASS, rate, ceil, minor - 1))
    system = _htb("1:2", ROOT_CLASS, max(total - requested, 0), total, 1)
    return (_htb(ROOT_CLASS, "root", total, total, 0), system, *below)


def pod_net_class(labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodNetClass:
    """Return how the packets of a pod are classified: by its QoS label, or by a class of its own.

    A pod has a class of its own if its annotation limits its egress. A malformed annotation counts as absent.
    """
    of_label = _CLASS_OF_LABEL.get(labels.get(keys.QOS_CLASS, ""))
    if of_label is None:
        return PodNetClass()
    try:
        egress = network_qos.pod_bandwidth(annotations).egress
    except InvalidInput:
        egress = 0
    return PodNetClass(net_class=of_label, egress_bytes_per_second=egress or None)


def _htb(classid: str, parent: str, rate_bits: int, ceil_bits: int, prio: int) -> HtbClass:
    return HtbClass(
        classid=classid,
        parent=parent,
        rate=rate_bits // network_qos.BITS_PER_BYTE,
        ceil=ceil_bits // network_qos.BITS_PER_BYTE,
        prio=prio,
    )


NET_CLASSES: Final = (SYSTEM_CLASS, LS_CLASS, BE_CLASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPod:
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    directory: str  # Its cgroup directory, relative to the root of a hierarchy
    ips: tuple[str, ...] = ()  # Its IP addresses. Only those of version 4 are classified.
    is_on_host_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPlan:
    """Planned tc classes, filters and ipsets of a node, which limit the network bandwidth of its pods."""

    classes: tuple[HtbClass, ...]  # Classes of the qdisc, the root first, then those of QoS classes, then those of pods
    sets: Mapping[str, tuple[str, ...]]  # Name of an ipset -> IP addresses, ascending
    # Minor number of the class of one pod -> its IP addresses; empty for a pod on the host's network.
    filters: Mapping[int, tuple[str, ...]]
    classids: Mapping[str, int]  # cgroup directory of a pod -> value of net_cls.classid


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPresent:
    has_qdisc: bool = False  # Whether its root is the qdisc htb `1:`
    minors: frozenset[int] = frozenset()  # Minor numbers of its classes
    # Minor number of the class of one pod -> IP addresses of its filter; None if they are unknown.
    filters: Mapping[int, tuple[str, ...] | None] = field(default_factory=dict[int, tuple[str, ...] | None])


def tc_plan(node_slo: Mapping[str, Any], pods: Iterable[TcPod], known: Mapping[str, int]) -> TcPlan:
    """Return the tc classes, filters, IP sets and net_cls ids that a node has to have for its NodeSLO and pods.

    A pod without a known QoS label is left out. A pod on the host's network is classified by its net_cls id only.

    Args:
        node_slo: NodeSLO (`spec` as JSON), which chooses tc (see `is_tc_enabled`).
        pods: Pods of the node that have not finished.
        known: cgroup directory of a pod -> value of its net_cls.classid now. A pod keeps the class that it has.

    Raises:
        InvalidInput: The bandwidth of the node is malformed or negative.
    """
    classes = [*htb_classes(node_slo)]
    sets: dict[str, list[str]] = {each.name: [] for each in NET_CLASSES}
    filters: dict[int, tuple[str, ...]] = {}
    classids: dict[str, int] = {}
    for pod in sorted(pods, key=lambda pod: pod.uid):
        found = pod_net_class(pod.labels, pod.annotations)
        if found.net_class is None:
            continue
        addresses = tuple(sorted(ip for ip in pod.ips if not pod.is_on_host_network and _is_version_4(ip)))
        if found.egress_bytes_per_second is None:
            classids[pod.directory] = found.net_class.classid
            sets[found.net_class.name] += addresses
            continue
        minor = _own_minor(pod, known, filters)
        classids[pod.directory] = _MAJOR + minor
        filters[minor] = addresses
        rate, prio = found.egress_bytes_per_second, _minor(found.net_class) - 1
        classes.append(HtbClass(classid=f"1:{minor:x}", parent=ROOT_CLASS, rate=rate, ceil=rate, prio=prio))
    return TcPlan(
        classes=tuple(classes),
        sets={name: tuple(sorted(ips)) for name, ips in sets.items()},
        filters=filters,
        classids=classids,
    )


def tc_lines(plan: TcPlan, interface: str, present: TcPresent) -> list[str]:
    """Lines for `tc -batch`."""
    return [*_lines(plan, f"dev {interface}", present)]


def ipset_lines(plan: TcPlan) -> list[str]:
    """Lines for `ipset restore`. Each set is filled under another name and then swapped with the old set."""
    lines: list[str] = []
    for name, ips in plan.sets.items():
        new = f"{name}_new"
        lines += [f"create {each} hash:ip family inet -exist" for each in (name, new)]
        lines += [f"flush {new}", *(f"add {new} {ip}" for ip in ips), f"swap {new} {name}", f"destroy {new}"]
    return lines


def mark_rule(net_class: NetClass) -> list[str]:
    """Arguments of an iptables rule that gives packets from the IP set of a network class this tc class.

    The rule belongs into chain POSTROUTING of table mangle.
    """
    match = ["-m", "set", "--match-set", net_class.name, "src"]
    return [*match, "-j", "CLASSIFY", "--set-class", f"1:{_minor(net_class)}"]


def _lines(plan: TcPlan, device: str, present: TcPresent) -> Iterator[str]:
    if not present.has_qdisc:
        yield f"qdisc replace {device} root handle 1: htb default 2"
    wanted = {int(each.classid.partition(":")[2], 16) for each in plan.classes}
    stale = {minor for minor, ips in present.filters.items() if plan.filters.get(minor) != ips}
    for minor in sorted(stale):
        yield f"filter del {device} parent 1: protocol ip prio {minor}"
    for minor in sorted(present.minors - wanted):
        if minor >= FIRST_OWN_MINOR:
            yield f"class del {device} classid 1:{minor:x}"
    for each in plan.classes:
        parent = "1:" if each.parent == "root" else each.parent
        rate, ceil = max(each.rate, SMALLEST_RATE), max(each.ceil, SMALLEST_RATE)
        yield (
            f"class replace {device} parent {parent} classid {each.classid} htb"
            f" rate {rate}bps ceil {ceil}bps prio {each.prio} quantum {_quantum(rate)}"
        )
    if not present.has_qdisc:
        for each in NET_CLASSES:
            minor = _minor(each)
            yield f"filter replace {device} parent 1: protocol ip prio {minor - 1} handle {minor}: cgroup"
    for minor, ips in plan.filters.items():
        if minor in present.filters and minor not in stale:
            continue
        base = f"filter add {device} parent 1: protocol ip prio {minor}"
        if not ips:
            yield f"{base} handle {minor}: cgroup"
        for ip in ips:
            yield f"{base} u32 match ip src {ip}/32 flowid 1:{minor:x}"


def _own_minor(pod: TcPod, known: Mapping[str, int], taken: Container[int]) -> int:
    """The present number of the pod's class, else one derived from its uid that no class has `taken`."""
    minor = known.get(pod.directory, 0) - _MAJOR
    if not FIRST_OWN_MINOR <= minor <= _LAST_MINOR or minor in taken:
        minor = FIRST_OWN_MINOR + zlib.crc32(pod.uid.encode()) % (_LAST_MINOR - FIRST_OWN_MINOR)
    others = {classid - _MAJOR for directory, classid in known.items() if directory != pod.directory}
    while minor in taken or minor in others:
        minor = minor + 1 if minor < _LAST_MINOR else FIRST_OWN_MINOR
    return minor


def _quantum(rate: int) -> int:
    """Bytes that a class with a guaranteed rate (bytes per second) may send in a row, within the kernel's bounds."""
    return min(max(rate // 10, 1_500), 60_000)


def _minor(net_class: NetClass) -> int:
    return net_class.classid - _MAJOR


def _is_version_4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
