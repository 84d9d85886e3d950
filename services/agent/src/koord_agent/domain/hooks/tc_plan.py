"""The wanted state of tc, ipset and net_cls on a node, and the lines for `tc -batch` and `ipset restore` that set it.

Source: runtime spec, 3.11.
"""

import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Any, Final

from koord_agent.domain.hooks import tc_qos

NET_CLASSES: Final = (tc_qos.SYSTEM_CLASS, tc_qos.LS_CLASS, tc_qos.BE_CLASS)
FIRST_OWN_MINOR: Final = 0x10
"""Smallest minor number of a class that belongs to one pod."""
_LAST_MINOR: Final = 0xFFFF
_MAJOR: Final = 0x10000


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPod:
    """The fields of a pod that network QoS with tc reads.

    Attributes:
        directory: Its cgroup directory, relative to the root of a hierarchy.
        ips: Its IP addresses. Only those of version 4 are classified.
    """

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    directory: str
    ips: tuple[str, ...] = ()
    is_on_host_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPlan:
    """Planned tc classes, filters and ipsets of a node, which limit the network bandwidth of its pods.

    Attributes:
        classes: Classes of the qdisc, the root first, then those of QoS classes, then those of pods.
        sets: Name of an ipset -> IP addresses, ascending.
        filters: Minor number of the class of one pod -> its IP addresses; empty for a pod on the host's network.
        classids: cgroup directory of a pod -> value of net_cls.classid.
    """

    classes: tuple[tc_qos.HtbClass, ...]
    sets: Mapping[str, tuple[str, ...]]
    filters: Mapping[int, tuple[str, ...]]
    classids: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TcPresent:
    """The qdisc, classes and filters that a network interface has now.

    Attributes:
        has_qdisc: Whether its root is the qdisc htb `1:`.
        minors: Minor numbers of its classes.
        filters: Minor number of the class of one pod -> IP addresses of its filter; None if they are unknown.
    """

    has_qdisc: bool = False
    minors: frozenset[int] = frozenset()
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
    classes = [*tc_qos.htb_classes(node_slo)]
    sets: dict[str, list[str]] = {each.name: [] for each in NET_CLASSES}
    filters: dict[int, tuple[str, ...]] = {}
    classids: dict[str, int] = {}
    for pod in sorted(pods, key=lambda pod: pod.uid):
        found = tc_qos.pod_net_class(pod.labels, pod.annotations)
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
        classes.append(
            tc_qos.HtbClass(classid=f"1:{minor:x}", parent=tc_qos.ROOT_CLASS, rate=rate, ceil=rate, prio=prio)
        )
    return TcPlan(
        classes=tuple(classes),
        sets={name: tuple(sorted(ips)) for name, ips in sets.items()},
        filters=filters,
        classids=classids,
    )


def tc_lines(plan: TcPlan, interface: str, present: TcPresent) -> list[str]:
    """Return the lines for `tc -batch` that change an interface from its present state to a plan.

    Args:
        plan: Classes, filters and sets that the node has to have.
        interface: Name of the interface.
        present: Qdisc, classes and filters that the interface has now.
    """
    return [*_lines(plan, f"dev {interface}", present)]


def ipset_lines(plan: TcPlan) -> list[str]:
    """Return the lines for `ipset restore`. Each set is filled under another name and then swapped with the old set."""
    lines: list[str] = []
    for name, ips in plan.sets.items():
        new = f"{name}_new"
        lines += [f"create {each} hash:ip family inet -exist" for each in (name, new)]
        lines += [f"flush {new}", *(f"add {new} {ip}" for ip in ips), f"swap {new} {name}", f"destroy {new}"]
    return lines


def mark_rule(net_class: tc_qos.NetClass) -> list[str]:
    """Return the arguments of an iptables rule that gives packets from the IP set of a network class this tc class.

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
        rate, ceil = max(each.rate, tc_qos.SMALLEST_RATE), max(each.ceil, tc_qos.SMALLEST_RATE)
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
    """Return the minor number of the tc class of one pod: its present number, else a free one derived from its uid.

    Args:
        pod: The pod.
        known: cgroup directory of a pod -> value of its net_cls.classid now.
        taken: Minor numbers of other classes.
    """
    minor = known.get(pod.directory, 0) - _MAJOR
    if not FIRST_OWN_MINOR <= minor <= _LAST_MINOR or minor in taken:
        minor = FIRST_OWN_MINOR + zlib.crc32(pod.uid.encode()) % (_LAST_MINOR - FIRST_OWN_MINOR)
    others = {classid - _MAJOR for directory, classid in known.items() if directory != pod.directory}
    while minor in taken or minor in others:
        minor = minor + 1 if minor < _LAST_MINOR else FIRST_OWN_MINOR
    return minor


def _quantum(rate: int) -> int:
    """Return the quantum of a tc class: the bytes that it may send in a row, within the bounds of the kernel.

    Args:
        rate: Guaranteed bandwidth of the class in bytes per second.
    """
    return min(max(rate // 10, 1_500), 60_000)


def _minor(net_class: tc_qos.NetClass) -> int:
    return net_class.classid - _MAJOR


def _is_version_4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
