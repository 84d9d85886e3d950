"""Arguments of the DefaultEvictor, the evictor of the Kubernetes descheduler.

Source:
    descheduler spec, 6.3
"""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol.component_config import Duration, Text, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.arguments.common import LabelSelectorArgs, PriorityThreshold, check_selector
from koord_descheduler.domain.arguments.selector_text import parse_selector_text

LOCAL_STORAGE: Final = "PodsWithLocalStorage"
SYSTEM_CRITICAL: Final = "SystemCriticalPods"
FAILED_BARE: Final = "FailedBarePods"
DAEMON_SET: Final = "DaemonSetPods"
WITH_PVC: Final = "PodsWithPVC"
WITHOUT_PDB: Final = "PodsWithoutPDB"
RESOURCE_CLAIMS: Final = "PodsWithResourceClaims"
DEFAULT_PROTECTIONS: Final = (LOCAL_STORAGE, SYSTEM_CRITICAL, FAILED_BARE, DAEMON_SET)
EXTRA_PROTECTIONS: Final = (WITH_PVC, WITHOUT_PDB, RESOURCE_CLAIMS)
PREFERRED: Final = "Preferred"
MANDATORY: Final = "Mandatory"


class StorageClassName(WireModel):
    """A storage class by its name."""

    name: Text = ""


class PvcProtection(WireModel):
    """Storage classes whose volume claims protect a pod from eviction; empty: every claim protects it."""

    protected_storage_classes: tuple[StorageClassName, ...] = ()


class ProtectionConfig(WireModel):
    """Details of the protections: for pods with volume claims, the storage classes; None: all claims protect."""

    pods_with_pvc: PvcProtection | None = None


class PodProtections(WireModel):
    """Protections of pods from eviction.

    Attributes:
        default_disabled: Names of default protections that are switched off.
        extra_enabled: Names of further protections that are switched on.
        config: Settings of protections.
    """

    default_disabled: tuple[Text, ...] = ()
    extra_enabled: tuple[Text, ...] = ()
    config: ProtectionConfig = ProtectionConfig()


class DefaultEvictorArgs(WireModel):
    """Arguments of the DefaultEvictor.

    The attributes `evict_...` and `ignore_...` are the deprecated form of `pod_protections`.

    Attributes:
        priority_threshold: Pods with this priority or a higher one stay; None: not checked. It counts only while pods
            critical for the system are protected.
        label_selector: Pods that may be evicted; None: all.
        node_fit: Whether a pod is evicted only if it fits another ready node.
        node_selector: Nodes that count for `node_fit`, as text such as "a=b,!c"; "": all.
        namespace_label_selector: Labels of the namespaces whose pods may be evicted; None: all.
        no_eviction_policy: "" or "Preferred": the annotation prefer-no-eviction only changes the order; "Mandatory": it
            forbids the eviction.
        min_replicas: Smallest number of pods that the owner of a pod must have, if there is only one owner; 0 or 1: not
            checked.
        min_pod_age: Seconds that a pod must have run; None: not checked.
    """

    evict_local_storage_pods: StrictBool = False
    evict_daemon_set_pods: StrictBool = False
    evict_system_critical_pods: StrictBool = False
    evict_failed_bare_pods: StrictBool = False
    ignore_pvc_pods: StrictBool = False
    ignore_pods_without_pdb: StrictBool = False
    pod_protections: PodProtections = PodProtections()
    no_eviction_policy: Text = ""
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelectorArgs | None = None
    min_replicas: StrictInt = 0
    min_pod_age: Duration | None = None
    node_fit: StrictBool = False
    node_selector: Text = ""
    namespace_label_selector: LabelSelectorArgs | None = None

    def protects(self, protection: str) -> bool:
        """Return whether a protection is in force, by the deprecated switches or by `pod_protections`.

        Args:
            protection: Name of the protection, such as `PodsWithLocalStorage`.
        """
        listed = self.pod_protections
        if protection in EXTRA_PROTECTIONS:
            switched = {WITH_PVC: self.ignore_pvc_pods, WITHOUT_PDB: self.ignore_pods_without_pdb}
            return switched.get(protection, False) or protection in listed.extra_enabled
        return not (self._lifted()[protection] or protection in listed.default_disabled)

    def _lifted(self) -> dict[str, bool]:
        return {
            LOCAL_STORAGE: self.evict_local_storage_pods,
            SYSTEM_CRITICAL: self.evict_system_critical_pods,
            FAILED_BARE: self.evict_failed_bare_pods,
            DAEMON_SET: self.evict_daemon_set_pods,
        }

    def uses_switches(self) -> bool:
        """Return whether at least one of the deprecated switches is on."""
        return any(self._lifted().values()) or self.ignore_pvc_pods or self.ignore_pods_without_pdb


def check(args: DefaultEvictorArgs) -> Iterator[InvalidInput]:
    """Yield every invalid value of the arguments.

    Source:
        descheduler spec, 6.3 (validation)
    """
    listed = args.pod_protections
    yield from _check_names(listed.default_disabled, DEFAULT_PROTECTIONS, "podProtections.defaultDisabled")
    yield from _check_names(listed.extra_enabled, EXTRA_PROTECTIONS, "podProtections.extraEnabled")
    if args.uses_switches() and (listed.default_disabled or listed.extra_enabled):
        names = [*listed.default_disabled, *listed.extra_enabled]
        yield InvalidInput("empty with a deprecated switch such as evictLocalStoragePods", names, "podProtections")
    if listed.config.pods_with_pvc is not None:
        for index, each in enumerate(listed.config.pods_with_pvc.protected_storage_classes):
            if not each.name:
                path = f"podProtections.config.PodsWithPVC.protectedStorageClasses[{index}].name"
                yield InvalidInput("the name of a storage class", each.name, path)
    if args.no_eviction_policy not in ("", PREFERRED, MANDATORY):
        yield InvalidInput(f"one of {PREFERRED}, {MANDATORY}", args.no_eviction_policy, "noEvictionPolicy")
    threshold = args.priority_threshold
    if threshold is not None and threshold.value is not None and threshold.name:
        yield InvalidInput("absent with a value", threshold.name, "priorityThreshold.name")
    yield from check_selector(args.label_selector, "labelSelector")
    yield from check_selector(args.namespace_label_selector, "namespaceLabelSelector")
    try:
        parse_selector_text(args.node_selector)
    except InvalidInput as error:
        yield error.at("nodeSelector")


def _check_names(names: tuple[str, ...], allowed: tuple[str, ...], path: str) -> Iterator[InvalidInput]:
    for index, name in enumerate(names):
        if name not in allowed:
            yield InvalidInput(f"one of {', '.join(allowed)}", name, f"{path}[{index}]")
        elif name in names[:index]:
            yield InvalidInput("named once", name, f"{path}[{index}]")
