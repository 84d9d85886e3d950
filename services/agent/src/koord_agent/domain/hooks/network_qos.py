"""Bandwidths of QoS classes and pods, and the files by which Terway, a network plugin, limits them.

`traffic_control` is the other way of network QoS. Bandwidths are in bits per second in the NodeSLO and in annotations,
and in bytes per second everywhere else.

Source: runtime spec, 3.10, 3.11. Vectors: terwayqos.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_agent.domain.node.policies import section

BITS_PER_BYTE: Final = 8
ALL_PERCENT: Final = 100
TERWAY_POLICY: Final = "terway-qos"
NET_CLS: Final = "/sys/fs/cgroup/net_cls"
GLOBAL_FILE: Final = "global_bps_config"
PODS_FILE: Final = "pod.json"
_PRIORITY_OF_LABEL: Final = {
    QosClass.SYSTEM: 0,
    QosClass.LSE: 1,
    QosClass.LSR: 1,
    QosClass.LS: 1,
    QosClass.BE: 2,
}
_PRIORITY_OF_KUBE_QOS: Final = {KubeQos.GUARANTEED: 1, KubeQos.BURSTABLE: 1, KubeQos.BEST_EFFORT: 2}
_FIELDS: Final = (
    ("tx_bps_min", "egressRequest"),
    ("tx_bps_max", "egressLimit"),
    ("rx_bps_min", "ingressRequest"),
    ("rx_bps_max", "ingressLimit"),
)
"""Line of the file -> field of `networkQOS`."""


class _Limits(msgspec.Struct, rename="camel"):
    ingress_limit: str | int | float | None = None
    egress_limit: str | int | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBandwidth:
    """Largest bandwidth of a pod in bytes per second; 0 without a limit."""

    ingress: int = 0
    egress: int = 0


def pod_bandwidth(annotations: Mapping[str, str]) -> PodBandwidth:
    """From the annotation networkQOS.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    text = annotations.get(keys.NETWORK_QOS)
    if not text:
        return PodBandwidth()
    limits = decode(text, _Limits)
    return PodBandwidth(ingress=_bytes_of_limit(limits.ingress_limit), egress=_bytes_of_limit(limits.egress_limit))


def network_policy(strategy: Mapping[str, Any]) -> str:
    """`policies.netQOSPolicy` of a `resourceQOSStrategy` (JSON); "" if it is absent."""
    return str(section(strategy, "policies").get("netQOSPolicy") or "")


def class_network_qos(strategy: Mapping[str, Any], of_class: str) -> Mapping[str, Any]:
    """The section `networkQOS` of a QoS class (such as `lsClass`) in a strategy; empty if absent or disabled."""
    found = section(strategy, of_class, "networkQOS")
    return found if found.get("enable") else {}


def total_bits(system_strategy: Mapping[str, Any]) -> int:
    """The bandwidth of the node in bits per second from a `systemStrategy` (JSON); 0 if it is absent.

    Raises:
        InvalidInput: It is malformed or negative.
    """
    total = quantity_from_json(system_strategy.get("totalNetworkBandwidth")).value()
    if total < 0:
        raise InvalidInput("a bandwidth of at least 0", total, "systemStrategy.totalNetworkBandwidth")
    return total


def _bytes_of_limit(value: str | int | float | None) -> int:
    bits = quantity_from_json(value).value()
    if bits < 0:
        raise InvalidInput("a bandwidth of at least 0", value, f"[{keys.NETWORK_QOS}]")
    return bits // BITS_PER_BYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPod:
    uid: str
    name: str
    namespace: str
    qos_label: str  # QoS label; "" without one
    kube_qos: str  # Kubernetes QoS class; "" if unknown
    annotations: Mapping[str, str]
    cgroup_dir: str  # Directory of the pod, relative to the root of a hierarchy


def is_terway_enabled(node_slo: Mapping[str, Any]) -> bool:
    """If a NodeSLO (`spec` as JSON) does not choose Terway, both files have to be removed."""
    return network_policy(section(node_slo, "resourceQOSStrategy")) == TERWAY_POLICY


def global_bandwidths(node_slo: Mapping[str, Any]) -> str:
    """Return the text of `global_bps_config`: bandwidths of the node and of both classes in bytes per second.

    All are zero if the NodeSLO has no systemStrategy.

    Raises:
        InvalidInput: A bandwidth is malformed, negative, or above that of the node.
    """
    system = section(node_slo, "systemStrategy")
    total = total_bits(system)
    lines = [f"hw_{way}_bps_max {total // BITS_PER_BYTE}" for way in ("tx", "rx")]
    for level, of_class in (("l1", "lsClass"), ("l2", "beClass")):
        strategy = class_network_qos(section(node_slo, "resourceQOSStrategy"), of_class)
        for line, name in _FIELDS:
            bits = _class_bits(strategy.get(name), total, name) if system else 0
            lines.append(f"offline_{level}_{line} {bits // BITS_PER_BYTE}")
    return "\n".join(lines) + "\n"


def terway_pods(pods: Iterable[NetworkPod]) -> dict[str, dict[str, Any]]:
    """Return the content of `pod.json`: UID -> priority and bandwidths of a pod in bytes per second.

    A pod whose annotation is malformed is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for pod in pods:
        try:
            bandwidth = pod_bandwidth(pod.annotations)
        except InvalidInput:
            continue
        found[pod.uid] = {
            "podName": pod.name,
            "podNamespace": pod.namespace,
            "podUID": pod.uid,
            "prio": _priority(pod),
            "cgroupDir": f"{NET_CLS}/{pod.cgroup_dir}",
            "qosConfig": {"ingressBandwidth": bandwidth.ingress, "egressBandwidth": bandwidth.egress},
        }
    return found


def _priority(pod: NetworkPod) -> int:
    of_label = _PRIORITY_OF_LABEL.get(QosClass(pod.qos_label)) if pod.qos_label in set(QosClass) else None
    if of_label is not None:
        return of_label
    return _PRIORITY_OF_KUBE_QOS[KubeQos(pod.kube_qos)] if pod.kube_qos in set(KubeQos) else 0


def _class_bits(value: Any, total: int, name: str) -> int:
    """Bits per second. An integer is a percentage of the bandwidth of the node."""
    if isinstance(value, int) and not isinstance(value, bool):
        bits = total * value // ALL_PERCENT
    else:
        bits = quantity_from_json(value).value()
    if not 0 <= bits <= total:
        raise InvalidInput(f"a bandwidth from 0 to that of the node, {total} bits per second", value, name)
    return bits
