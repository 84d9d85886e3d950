"""CPU QoS by group identity: cpu.bvt_warp_ns gives precedence to threads, cpu.idle restricts them to idle CPUs.

Only pods are idle, no class: the kernel refuses shares of an idle cgroup, and a kubelet that cannot write the shares of
its classes does not start.

The value of cpu.bvt_warp_ns is the *group identity*, from -1 (lowest precedence) to 2. Only some kernels have it
(Alibaba Cloud Linux, Anolis). `cpu.idle` is in every kernel since 5.15.

Source: runtime spec, 3.1, 3.2 (cpu.idle; decision 0051).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordcore.protocol.annotations.cpu import parse_pod_cpu_qos
from koordcore.protocol.qos import KubeQos

from koord_agent.domain.node.policies import section

GROUP_IDENTITY: Final = "groupIdentity"
CORE_SCHED: Final = "coreSched"
BVT: Final = "cpu.bvt_warp_ns"
_CLASS_OF_LABEL: Final = {"LSE": "lsrClass", "LSR": "lsrClass", "LS": "lsClass", "BE": "beClass"}
_CLASSES: Final = ("lsrClass", "lsClass", "beClass")


@dataclass(frozen=True, slots=True)
class BvtRule:
    """The group identity of each QoS class of a NodeSLO."""

    # QoS class, such as `lsClass` -> group identity; 0 for a disabled class.
    values: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_CLASSES, 0))
    enabled: frozenset[str] = frozenset()  # QoS classes whose CPU QoS is enabled

    @property
    def is_enabled(self) -> bool:
        return bool(self.enabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class BvtKernel:
    has_file: bool  # Whether cpu.bvt_warp_ns exists in the root of the pods
    has_switch: bool = False  # Whether sysctl kernel.sched_group_identity_enabled exists
    is_on: bool | None = None  # Value of the sysctl; None if it is unreadable

    @property
    def lacks_identity(self) -> bool:
        """Whether this is a kernel without group identity, such as a mainline one."""
        return not self.has_file and not self.has_switch

    def takes(self, rule: BvtRule) -> bool:
        """Return whether group identities may be written to the files of this kernel.

        They may not if neither file nor sysctl exists, or if the sysctl cannot be read. If the sysctl is off, they are
        written only if the rule enables a class.
        """
        if self.lacks_identity:
            return False
        if not self.has_switch or self.is_on is None:
            return not self.has_switch
        # zeros undo what was set earlier; where the switch is off there is nothing to undo
        return rule.is_enabled or self.is_on


def bvt_rule(strategy: Mapping[str, Any] | None) -> BvtRule:
    """From a `resourceQOSStrategy` (JSON) of a NodeSLO.

    If the strategy is None or its CPU policy is not groupIdentity, all classes are disabled.
    """
    if not strategy or section(strategy, "policies").get("cpuPolicy") not in (None, "", GROUP_IDENTITY):
        return BvtRule()
    settings = {name: section(strategy, name, "cpuQOS") for name in _CLASSES}
    enabled = frozenset(name for name in _CLASSES if settings[name].get("enable"))
    values = {name: settings[name].get("groupIdentity") or 0 if name in enabled else 0 for name in _CLASSES}
    return BvtRule(values, enabled)


def pod_bvt(rule: BvtRule, qos_label: str, kube_qos: KubeQos, annotations: Mapping[str, str]) -> int:
    """Return the group identity of a pod: that of its QoS class (without a label, of `kube_qos`).

    For an LS pod, its annotation may override it. If that does not enable CPU QoS, the group identity is 0.

    Raises:
        InvalidInput: The annotation is invalid, in a pod of any class. Its files must not be changed then.
    """
    own = parse_pod_cpu_qos(annotations)
    value = _value_of(rule, qos_label, kube_qos)
    if own is None or qos_label != "LS":
        return value
    if not own.enable:
        return 0
    return value if own.group_identity is None else own.group_identity


def qos_bvt(rule: BvtRule, kube_qos: KubeQos) -> int:
    """0 for the root of the pods, which also contains the guaranteed pods."""
    match kube_qos:
        case KubeQos.GUARANTEED:
            return 0
        case KubeQos.BURSTABLE:
            return rule.values["lsClass"]
        case KubeQos.BEST_EFFORT:
            return rule.values["beClass"]


def application_bvt(rule: BvtRule, qos: str) -> int:
    """0 for an unknown class."""
    of_class = _CLASS_OF_LABEL.get(qos)
    return 0 if of_class is None else rule.values[of_class]


def is_idle(strategy: Mapping[str, Any] | None, qos_label: str, kube_qos: KubeQos) -> bool:
    """Return whether the threads of a pod run on idle CPUs only (cpu.idle).

    They do if the policy of the `resourceQOSStrategy` (JSON) is coreSched and the class of the pod sets schedIdle.
    """
    if not strategy or section(strategy, "policies").get("cpuPolicy") != CORE_SCHED:
        return False
    of_class = _CLASS_OF_LABEL.get(qos_label)
    if of_class is None:
        of_class = {KubeQos.BURSTABLE: "lsClass", KubeQos.BEST_EFFORT: "beClass"}.get(kube_qos)
    if of_class is None:
        of_class = "lsrClass" if section(strategy, "lsrClass", "cpuQOS").get("enable") else "lsClass"
    settings = section(strategy, of_class, "cpuQOS")
    return bool(settings.get("enable")) and settings.get("schedIdle") == 1


def _value_of(rule: BvtRule, qos_label: str, kube_qos: KubeQos) -> int:
    of_class = _CLASS_OF_LABEL.get(qos_label)
    if of_class is not None:
        return rule.values[of_class]
    if kube_qos is not KubeQos.GUARANTEED:
        return qos_bvt(rule, kube_qos)
    of_class = next((name for name in ("lsrClass", "lsClass") if name in rule.enabled), None)
    return 0 if of_class is None else rule.values[of_class]
