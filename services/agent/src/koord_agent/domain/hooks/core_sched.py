"""Core scheduling: which pods may share a physical core, as groups of pods.

The kernel lets threads of one core run together only if they have the same cookie. Each group has one cookie.

Source: runtime spec, 3.2. Vectors: coresched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.cpu import CoreSchedPolicy, core_sched
from koordcore.protocol.qos import KubeQos

from koord_agent.domain.node.policies import section
from koord_agent.domain.strategies.group_identity import CORE_SCHED

EXPELLER_SUFFIX: Final = "-expeller"
_CLASS_OF_LABEL: Final = {"LSE": "lsrClass", "LSR": "lsrClass", "LS": "lsClass", "BE": "beClass"}
_EXPELLER_BY_DEFAULT: Final = {"lsrClass": True, "lsClass": True, "beClass": False}


@dataclass(frozen=True, slots=True)
class CoreSchedClass:
    enabled: bool = False  # Whether its pods get a cookie
    expeller: bool = False  # Whether its pods keep other groups away from their cores. They are in groups of their own.


@dataclass(frozen=True, slots=True)
class CoreSchedGroup:
    enabled: bool  # Whether the pod gets the cookie of the group
    group_id: str  # Name of the group. "" is a group, too: that of all pods without the label.


def core_sched_classes(strategy: Mapping[str, Any] | None) -> Mapping[str, CoreSchedClass]:
    """QoS class, such as `lsClass` -> its settings in a `resourceQOSStrategy` (JSON) of a NodeSLO.

    All classes are disabled if the strategy is None or its CPU policy is not coreSched.
    """
    policy = section(strategy, "policies").get("cpuPolicy")
    if policy != CORE_SCHED:
        return dict.fromkeys(_EXPELLER_BY_DEFAULT, CoreSchedClass())
    classes: dict[str, CoreSchedClass] = {}
    for name, is_expeller in _EXPELLER_BY_DEFAULT.items():
        settings = section(strategy, name, "cpuQOS")
        expeller = settings.get("coreExpeller")
        classes[name] = CoreSchedClass(
            bool(settings.get("enable")), is_expeller if expeller is None else bool(expeller)
        )
    return classes


def core_sched_group(
    classes: Mapping[str, CoreSchedClass], labels: Mapping[str, str], kube_qos: KubeQos, pod_uid: str
) -> CoreSchedGroup:
    """`kube_qos` counts for a pod without a QoS label. `pod_uid` names the group of an `exclusive` pod."""
    wanted = core_sched(labels)
    group_id = pod_uid if wanted.policy is CoreSchedPolicy.EXCLUSIVE else wanted.group
    if not any(one.enabled for one in classes.values()):
        return CoreSchedGroup(enabled=False, group_id=group_id)
    of_pod = classes[_class_of(classes, labels.get(keys.QOS_CLASS, ""), kube_qos)]
    suffix = EXPELLER_SUFFIX if of_pod.expeller else ""
    return CoreSchedGroup(
        enabled=of_pod.enabled and wanted.policy is not CoreSchedPolicy.NONE, group_id=group_id + suffix
    )


def _class_of(classes: Mapping[str, CoreSchedClass], qos_label: str, kube_qos: KubeQos) -> str:
    of_label = _CLASS_OF_LABEL.get(qos_label)
    if of_label is not None:
        return of_label
    if kube_qos is KubeQos.GUARANTEED:
        return "lsrClass" if classes["lsrClass"].enabled else "lsClass"
    return "lsClass" if kube_qos is KubeQos.BURSTABLE else "beClass"
