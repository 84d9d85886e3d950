"""Files by which Terway, a network plugin, limits the bandwidth of QoS classes and pods.

Source: runtime spec, 3.10. Vectors: terwayqos.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_agent.domain.hooks import network_qos

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPod:
    """The fields of a pod that network QoS with Terway reads.

    Attributes:
        qos_label: QoS label; "" without one.
        kube_qos: Kubernetes QoS class; "" if unknown.
        cgroup_dir: Directory of the pod, relative to the root of a hierarchy.
    """

    uid: str
    name: str
    namespace: str
    qos_label: str
    kube_qos: str
    annotations: Mapping[str, str]
    cgroup_dir: str


def is_terway_enabled(node_slo: Mapping[str, Any]) -> bool:
    """Return whether a NodeSLO (`spec` as JSON) chooses Terway. If not, both files have to be removed."""
    return network_qos.network_policy(network_qos.section(node_slo, "resourceQOSStrategy")) == TERWAY_POLICY


def global_bandwidths(node_slo: Mapping[str, Any]) -> str:
    """Return the text of `global_bps_config`: bandwidths of the node and of both classes in bytes per second.

    All are zero if the NodeSLO has no systemStrategy.

    Raises:
        InvalidInput: A bandwidth is malformed, negative, or above that of the node.
    """
    system = network_qos.section(node_slo, "systemStrategy")
    total = network_qos.total_bits(system)
    lines = [f"hw_{way}_bps_max {total // network_qos.BITS_PER_BYTE}" for way in ("tx", "rx")]
    for level, of_class in (("l1", "lsClass"), ("l2", "beClass")):
        strategy = network_qos.class_network_qos(network_qos.section(node_slo, "resourceQOSStrategy"), of_class)
        for line, name in _FIELDS:
            bits = _class_bits(strategy.get(name), total, name) if system else 0
            lines.append(f"offline_{level}_{line} {bits // network_qos.BITS_PER_BYTE}")
    return "\n".join(lines) + "\n"


def terway_pods(pods: Iterable[NetworkPod]) -> dict[str, dict[str, Any]]:
    """Return the content of `pod.json`: UID -> priority and bandwidths of a pod in bytes per second.

    A pod whose annotation is malformed is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for pod in pods:
        try:
            bandwidth = network_qos.pod_bandwidth(pod.annotations)
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
    """Return the bandwidth of a class in bits per second. An integer is a percentage of the bandwidth of the node."""
    if isinstance(value, int) and not isinstance(value, bool):
        bits = total * value // network_qos.ALL_PERCENT
    else:
        bits = quantity_from_json(value).value()
    if not 0 <= bits <= total:
        raise InvalidInput(f"a bandwidth from 0 to that of the node, {total} bits per second", value, name)
    return bits
