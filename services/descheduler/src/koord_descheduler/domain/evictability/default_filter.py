"""Filter of the DefaultEvictor: which pods the evictor of the Kubernetes descheduler may evict.

Source:
    descheduler spec, 6.3
"""

from collections.abc import Iterator, Mapping

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol import keys
from koordcore.protocol.selectors import is_matching
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.arguments import default_evictor as names
from koord_descheduler.domain.arguments.common import selector_or_all
from koord_descheduler.domain.arguments.default_evictor import DefaultEvictorArgs
from koord_descheduler.domain.arguments.selector_text import parse_selector_text
from koord_descheduler.domain.evictability import codes
from koord_descheduler.domain.evictability.base_filter import NodeFit, identity_refusals, priority_number
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import FAILED, PodView


class DefaultFilter:
    """The checks of the DefaultEvictor for single pods.

    Args:
        args: Its arguments.
        priority_classes: Name of a PriorityClass -> its value, at start.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.

    Source:
        descheduler spec, 6.3
    """

    def __init__(self, args: DefaultEvictorArgs, priority_classes: Mapping[str, int]) -> None:
        self._args = args
        self._protects = {each for each in names.DEFAULT_PROTECTIONS + names.EXTRA_PROTECTIONS if args.protects(each)}
        threshold = args.priority_threshold if names.SYSTEM_CRITICAL in self._protects else None
        self._threshold = None if threshold is None else threshold.resolved(priority_classes)
        self._selector = selector_or_all(args.label_selector)
        namespaces = args.namespace_label_selector
        has_labels = namespaces is not None and bool(namespaces.match_labels)
        self._namespaces = selector_or_all(namespaces) if has_labels else None
        self._node_fit = NodeFit(parse_selector_text(args.node_selector)) if args.node_fit else None
        claims = args.pod_protections.config.pods_with_pvc
        self._classes = {each.name for each in claims.protected_storage_classes} if claims is not None else set[str]()

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of all reasons why a pod must not be evicted; empty if it may be.

        The evict annotation of the pod makes all checks pass. If the policy is Mandatory, the annotation
        prefer-no-eviction is the only reason.
        """
        if pod.has_evict_annotation:
            return ()
        if self._args.no_eviction_policy == names.MANDATORY and keys.PREFER_NO_EVICTION in pod.annotations:
            return (codes.NO_EVICTION,)
        return (*identity_refusals(pod), *self._protected(pod, cluster), *self._limited(pod, cluster))

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return the numbers that are compared with a limit, by the code of the reason. Ages are in seconds."""
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
        """Return the codes of the reasons that count just before an eviction: labels of the namespace, and node fit.

        The evict annotation does not lift them. A namespace selector counts only if it has `matchLabels`.
        """
        refusals: list[str] = []
        if self._namespaces is not None:
            labels = cluster.namespaces.get(pod.namespace)
            if labels is None or not self._namespaces.matches(labels):
                refusals.append(codes.NAMESPACE_LABEL_SELECTOR)
        if self._node_fit is not None and not self._node_fit.has_place(pod, cluster):
            refusals.append(codes.NODE_FIT)
        return tuple(refusals)

    def _protected(self, pod: PodView, cluster: ClusterView) -> Iterator[str]:
        protects = self._protects
        if names.DAEMON_SET in protects and pod.is_daemon:
            yield codes.DAEMON_SET
        if pod.is_bare and (names.FAILED_BARE in protects or pod.object.status.phase != FAILED):
            yield codes.BARE_POD
        if names.SYSTEM_CRITICAL in protects and pod.is_system_critical:
            yield codes.SYSTEM_CRITICAL
        if self._threshold is not None and pod.priority is not None and pod.priority >= self._threshold:
            yield codes.PRIORITY_THRESHOLD
        if names.LOCAL_STORAGE in protects and pod.has_local_storage:
            yield codes.LOCAL_STORAGE
        if names.WITH_PVC in protects and self._has_protected_claim(pod, cluster):
            yield codes.PVC
        if names.WITHOUT_PDB in protects and not _has_budget(pod, cluster):
            yield codes.NO_PDB
        if names.RESOURCE_CLAIMS in protects and pod.object.spec.resource_claims:
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
    """Return whether a PodDisruptionBudget selects the pod."""
    budgets = cluster.budgets.get(pod.namespace, ())
    return any(is_matching(budget.spec.selector, pod.labels, missing=False) for budget in budgets)
