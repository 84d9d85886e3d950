"""QoS classes of a pod: as the user wrote it (`qos_raw`), and with fallbacks (`qos`).

Admission uses the class as written. Accounting and enforcement use the class with fallbacks. Priority classes are in
`priority`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Container, Pod, ResourceRequirements
from koordcore.values.quantity import parse_quantity, quantity_from_json


class QosClass(StrEnum):
    """Koordinator QoS classes of pods: LSE, LSR, LS and BE from strict to best effort, and SYSTEM for system pods."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class KubeQos(StrEnum):
    """QoS classes of Kubernetes: Guaranteed, Burstable, BestEffort."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_BY_NAME: Final[Mapping[str, QosClass]] = {str(qos): qos for qos in QosClass}
_OF_KUBE_QOS: Final[Mapping[str, QosClass]] = {
    KubeQos.GUARANTEED: QosClass.LSR,
    KubeQos.BURSTABLE: QosClass.LS,
    KubeQos.BEST_EFFORT: QosClass.BE,
}
_NATIVE: Final = ("cpu", "memory")


def qos_raw(pod: Pod) -> QosClass | None:
    """Return the QoS class in the pod's label `koordinator.sh/qosClass`; None if it is missing or has another text.

    Source: protocol spec, 2.2 (1).
    """
    return _BY_NAME.get(pod.metadata.labels.get(keys.QOS_CLASS, ""))


def kube_qos(pod: Pod) -> str:
    """Return the Kubernetes QoS class of a pod: `status.qosClass`, or computed from cpu and memory if that is not set.
    Pod-level resources, if set, are used instead of those of the containers. Extended resources do not count, so a pod
    with batch resources only is BestEffort.

    Raises:
        InvalidInput: A cpu or memory quantity is invalid.

    Source: protocol spec, 2.2 (2).
    """
    if pod.status.qos_class:
        return pod.status.qos_class
    spec = pod.spec
    if spec.resources is not None:
        return _class_of_requirements([spec.resources])
    containers: list[Container] = spec.containers
    if spec.init_containers:
        containers = containers + spec.init_containers
    return _class_of_requirements([container.resources for container in containers])


def _class_of_requirements(items: list[ResourceRequirements]) -> KubeQos:
    asks_for_something = False
    guaranteed = bool(items)
    for item in items:
        for name in _NATIVE:
            request = _positive_nano(item.requests.get(name))
            limit = _positive_nano(item.limits.get(name))
            if request or limit:
                asks_for_something = True
            if limit == 0 or request != limit:
                guaranteed = False
    if not asks_for_something:
        return KubeQos.BEST_EFFORT
    return KubeQos.GUARANTEED if guaranteed else KubeQos.BURSTABLE


def _positive_nano(value: str | int | float | None) -> int:
    if value is None:
        return 0
    quantity = parse_quantity(value) if isinstance(value, str) else quantity_from_json(value)
    return max(quantity.nano, 0)


def qos(pod: Pod) -> QosClass:
    """Return the Koordinator QoS class of a pod. Without a valid label `koordinator.sh/qosClass`, the Kubernetes QoS
    class decides: Guaranteed -> LSR, Burstable -> LS, BestEffort -> BE.

    Source: protocol spec, 2.2 (3).
    """
    written = _BY_NAME.get(pod.metadata.labels.get(keys.QOS_CLASS, ""))
    return written if written is not None else _OF_KUBE_QOS.get(kube_qos(pod), QosClass.BE)
