"""DefaultEvictor: filter and evict plugin of the Kubernetes descheduler. It evicts at once, without a migration job.

Source:
    descheduler spec, 6.3
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol import keys
from koordcore.protocol.component_config import Duration, NotNegative, Text, WireModel
from koordcore.protocol.selectors import is_matching
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import (
    LabelSelectorArgs,
    PriorityThreshold,
    check_selector,
    check_threshold,
    parse_selector_text,
    selector_or_all,
    upstream_args,
)
from koord_descheduler.domain.framework import codes
from koord_descheduler.domain.framework.codes import NodeFit, identity_refusals, priority_number
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import FAILED, PodView

NAME: Final = "DefaultEvictor"
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
    name: Text = ""


class PvcProtection(WireModel):
    """Storage classes whose volume claims protect a pod from eviction; empty: every claim protects it."""

    protected_storage_classes: tuple[StorageClassName, ...] = ()


class ProtectionConfig(WireModel):
    """Details of the protections: for pods with volume claims, the storage classes; None: all claims protect."""

    pods_with_pvc: PvcProtection | None = None


class PodProtections(WireModel):
    default_disabled: tuple[Text, ...] = ()  # Names of default protections that are switched off
    extra_enabled: tuple[Text, ...] = ()  # Names of further protections that are switched on
    config: ProtectionConfig = ProtectionConfig()


class DefaultEvictorArgs(WireModel):
    """The attributes `evict_...` and `ignore_...` are the deprecated form of `pod_protections`."""

    evict_local_storage_pods: StrictBool = False
    evict_daemon_set_pods: StrictBool = False
    evict_system_critical_pods: StrictBool = False
    evict_failed_bare_pods: StrictBool = False
    ignore_pvc_pods: StrictBool = False
    ignore_pods_without_pdb: StrictBool = False
    # Whether pods leave although an annotation for an autoscaler forbids it. The Kubernetes descheduler does not know
    # this argument.
    evict_do_not_disrupt_pods: StrictBool = False
    pod_protections: PodProtections = PodProtections()
    # "" or "Preferred": the annotation prefer-no-eviction only changes the order; "Mandatory": it forbids the eviction.
    no_eviction_policy: Text = ""
    # Pods with this priority or a higher one stay; None: not checked. It counts only while pods critical for the system
    # are protected.
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelectorArgs | None = None  # Pods that may be evicted; None: all
    # Smallest number of pods that the owner of a pod must have, if there is only one owner; 0 or 1: not checked.
    min_replicas: NotNegative = 0
    min_pod_age: Duration | None = None  # Seconds that a pod must have run; None: not checked
    node_fit: StrictBool = False  # Whether a pod is evicted only if it fits another ready node
    node_selector: Text = ""  # Nodes that count for `node_fit`, as text such as "a=b,!c"; "": all
    # Labels of the namespaces whose pods may be evicted; None: all.
    namespace_label_selector: LabelSelectorArgs | None = None

    def protects(self, protection: str) -> bool:
        """By the deprecated switches or by `pod_protections`.

        `protection`: its name, such as `PodsWithLocalStorage`.
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
        return any(self._lifted().values()) or self.ignore_pvc_pods or self.ignore_pods_without_pdb


def check(args: DefaultEvictorArgs) -> Iterator[InvalidInput]:
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
    yield from check_threshold(args.priority_threshold)
    yield from check_selector(args.label_selector, "labelSelector")
    yield from check_selector(args.namespace_label_selector, "namespaceLabelSelector")
    try:
        parse_selector_text(args.node_selector)
    except InvalidInput as error:
        yield error.at("nodeSelector")


def _check_names(names: tuple[str, ...], allowed: tuple[str, ...], path: str) -> Iterator[InvalidInput]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name not in allowed:
            yield InvalidInput(f"one of {', '.join(allowed)}", name, f"{path}[{index}]")
        elif name in seen:
            yield InvalidInput("named once", name, f"{path}[{index}]")
        seen.add(name)


class DefaultEvictor:
    """Filters pods by their own properties. The service sends its evictions to the eviction API after the round.

    The attempt in the outcome of the round is the request. It implements FilterPlugin, CountingPlugin and EvictPlugin.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.
    """

    name = NAME

    def __init__(self, args: DefaultEvictorArgs, priority_classes: Mapping[str, int]) -> None:
        self._args = args
        self._protects = {each for each in DEFAULT_PROTECTIONS + EXTRA_PROTECTIONS if args.protects(each)}
        threshold = args.priority_threshold if SYSTEM_CRITICAL in self._protects else None
        self._threshold = None if threshold is None else threshold.resolved(priority_classes)
        self._selector = selector_or_all(args.label_selector)
        namespaces = args.namespace_label_selector
        has_labels = namespaces is not None and bool(namespaces.match_labels)
        self._namespaces = selector_or_all(namespaces) if has_labels else None
        self._node_fit = NodeFit(parse_selector_text(args.node_selector)) if args.node_fit else None
        claims = args.pod_protections.config.pods_with_pvc
        self._classes = {each.name for each in claims.protected_storage_classes} if claims is not None else set[str]()

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """The evict annotation of the pod makes all checks pass. If the policy is Mandatory, the annotation
        prefer-no-eviction is the only reason.
        """
        if pod.has_evict_annotation:
            return ()
        if self._args.no_eviction_policy == MANDATORY and keys.PREFER_NO_EVICTION in pod.annotations:
            return (codes.NO_EVICTION,)
        return (*identity_refusals(pod), *self._protected(pod, cluster), *self._limited(pod, cluster))

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Ages are in seconds."""
        found = priority_number(pod, self._threshold)
        if pod.owners:
            replicas = len(cluster.pods_of_owner(pod.owners[0].uid))
            found[codes.MIN_REPLICAS] = Number(value=replicas, limit=self._args.min_replicas)
        started = pod.object.status.start_time
        if started is not None:
            found[codes.MIN_POD_AGE] = Number(
                value=round(cluster.now - unix_seconds(started)), limit=self._args.min_pod_age
            )
        return found

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Labels of the namespace, and node fit. The evict annotation does not lift them.

        A namespace selector counts only if it has `matchLabels`.
        """
        refusals: list[str] = []
        if self._namespaces is not None:
            labels = cluster.namespaces.get(pod.namespace)
            if labels is None or not self._namespaces.matches(labels):
                refusals.append(codes.NAMESPACE_LABEL_SELECTOR)
        if self._node_fit is not None and not self._node_fit.has_place(pod, cluster):
            refusals.append(codes.NODE_FIT)
        return tuple(refusals)

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """Every eviction is accepted here, and the API server decides later."""
        del pod, reason, plugin, cluster
        return True

    def _protected(self, pod: PodView, cluster: ClusterView) -> Iterator[str]:
        protects = self._protects
        if DAEMON_SET in protects and pod.is_daemon:
            yield codes.DAEMON_SET
        if pod.is_bare and (FAILED_BARE in protects or pod.object.status.phase != FAILED):
            yield codes.BARE_POD
        if SYSTEM_CRITICAL in protects and pod.is_system_critical:
            yield codes.SYSTEM_CRITICAL
        if self._threshold is not None and pod.priority is not None and pod.priority >= self._threshold:
            yield codes.PRIORITY_THRESHOLD
        if LOCAL_STORAGE in protects and pod.has_local_storage:
            yield codes.LOCAL_STORAGE
        if WITH_PVC in protects and self._has_protected_claim(pod, cluster):
            yield codes.PVC
        if WITHOUT_PDB in protects and not _has_budget(pod, cluster):
            yield codes.NO_PDB
        if not self._args.evict_do_not_disrupt_pods and pod.forbids_disruption:
            yield codes.DO_NOT_DISRUPT
        if RESOURCE_CLAIMS in protects and pod.object.spec.resource_claims:
            yield codes.RESOURCE_CLAIMS

    def _limited(self, pod: PodView, cluster: ClusterView) -> Iterator[str]:
        args = self._args
        if self._selector.requirements and not self._selector.matches(pod.labels):
            yield codes.LABEL_SELECTOR
        if (
            args.min_replicas > 1
            and len(pod.owners) == 1
            and len(cluster.pods_of_owner(pod.owners[0].uid)) < args.min_replicas
        ):
            yield codes.MIN_REPLICAS
        if args.min_pod_age is not None:
            started = pod.object.status.start_time
            if started is None or cluster.now - unix_seconds(started) < args.min_pod_age:
                yield codes.MIN_POD_AGE

    def _has_protected_claim(self, pod: PodView, cluster: ClusterView) -> bool:
        if not self._classes:
            return bool(pod.claims)
        for name in pod.claims:
            claim = cluster.claims.get((pod.namespace, name))
            storage_class = None if claim is None else claim.spec.storage_class_name
            if not storage_class or storage_class in self._classes:
                return True
        return False


def _has_budget(pod: PodView, cluster: ClusterView) -> bool:
    budgets = cluster.budgets.get(pod.namespace, ())
    return any(is_matching(budget.spec.selector, pod.labels, missing=False) for budget in budgets)


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.EVICT, Point.FILTER}),
    decode=lambda raw: upstream_args(raw, DefaultEvictorArgs),
    arguments=DefaultEvictorArgs,
    check=check,
    make=lambda args, shared: DefaultEvictor(args, shared.priority_classes),
)
