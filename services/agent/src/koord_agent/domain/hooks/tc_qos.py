"""Classes of tc (traffic control) for the network interface of the default route, and the class of each pod.

Source: runtime spec, 3.11. Vectors: tc_qos.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_agent.domain.hooks import network_qos

TC_POLICY: Final = "tc"
ROOT_CLASS: Final = "1:1"
SMALLEST_RATE: Final = 125
"""Smallest rate in bytes per second; htb refuses 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtbClass:
    """A class of the qdisc htb.

    Attributes:
        classid: Its id, `major:minor`.
        parent: Id of its parent, or `root`.
        rate: Guaranteed bandwidth in bytes per second.
        ceil: Largest bandwidth in bytes per second.
        prio: Priority; classes with a lower number borrow first.
    """

    classid: str
    parent: str
    rate: int
    ceil: int
    prio: int


@dataclass(frozen=True, slots=True)
class NetClass:
    """The network class of a QoS class.

    Attributes:
        name: Its name, which is also that of its ipset.
        classid: Value of net_cls.classid of its pods.
    """

    name: str
    classid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetClass:
    """The tc class of the packets of a pod: the class of its QoS class, or one of its own.

    Attributes:
        net_class: Class by its QoS label; None for a pod that is not handled.
        egress_bytes_per_second: Limit of the dedicated class of the pod; None without one.
    """

    net_class: NetClass | None = None
    egress_bytes_per_second: int | None = None


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
    """Return whether a NodeSLO (`spec` as JSON) chooses tc: it has a systemStrategy and no other network policy."""
    policy = network_qos.network_policy(network_qos.section(node_slo, "resourceQOSStrategy"))
    return policy in ("", TC_POLICY) and isinstance(node_slo.get("systemStrategy"), Mapping)


def bandwidth_bits(value: Any, total: int) -> int:
    """Return a bandwidth of the NodeSLO in bits per second; 0 if it is absent or invalid.

    Args:
        value: Percentage of the total (an integer), or bits per second (the text of a quantity).
        total: Bandwidth of the node in bits per second.
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
    total = network_qos.total_bits(network_qos.section(node_slo, "systemStrategy"))
    strategy = network_qos.section(node_slo, "resourceQOSStrategy")
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

    Args:
        labels: Labels of the pod.
        annotations: Annotations of the pod.
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
