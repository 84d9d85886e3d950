"""Base filter of the MigrationController: which pods may be evicted at all, whatever runs at the moment.

Source:
    descheduler spec, 6.1
"""

from collections.abc import Iterator, Mapping

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.annotations.pods import NEVER_EVICT
from koordcore.protocol.selectors import Selector

from koord_descheduler.domain.arguments.common import selector_or_all
from koord_descheduler.domain.arguments.migration_controller import Gate, MigrationControllerArgs
from koord_descheduler.domain.arguments.selector_text import parse_selector_text
from koord_descheduler.domain.evictability import codes
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import fits_upstream
from koord_descheduler.domain.view.pods import FAILED, PodView


class BaseFilter:
    """The checks of single pods, without the limits on jobs and without the state of workloads.

    Args:
        args: Arguments of the MigrationController.
        priority_classes: Name of a PriorityClass -> its value, at start.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.

    Source:
        descheduler spec, 6.1
    """

    def __init__(self, args: MigrationControllerArgs, priority_classes: Mapping[str, int]) -> None:
        self._args = args
        threshold = args.priority_threshold
        self._threshold = None if threshold is None else threshold.resolved(priority_classes)
        if args.evict_system_critical_pods or args.skips(Gate.SYSTEM_CRITICAL) or args.skips(Gate.PRIORITY_THRESHOLD):
            self._threshold = None
        self._protects_critical = not (args.evict_system_critical_pods or args.skips(Gate.SYSTEM_CRITICAL))
        self._protects_bare = not (args.evict_all_bare_pods or args.skips(Gate.BARE_PODS))
        self._protects_local = not (args.evict_local_storage_pods or args.skips(Gate.LOCAL_STORAGE))
        self._protects_claims = args.ignore_pvc_pods and not args.skips(Gate.PVC)
        selector = selector_or_all(None if args.skips(Gate.LABEL_SELECTOR) else args.label_selector)
        self._selector = selector if selector.requirements else None
        self._namespaces = None if args.skips(Gate.NAMESPACES) else args.namespaces
        self._node_fit = NodeFit(parse_selector_text(args.node_selector))
        self._asks_fit = args.node_fit and not args.skips(Gate.NODE_FIT)

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        """Return the codes of all reasons why a pod must not be evicted; empty if it may be.

        The evict annotation of the pod makes all checks pass.
        """
        return () if pod.has_evict_annotation else (*self._kind(pod), *self._value(pod), *self._scope(pod))

    def numbers(self, pod: PodView) -> Inputs:
        """Return the numbers that are compared with a limit, by the code of the reason."""
        cost = Number(value=pod.eviction_cost, limit=NEVER_EVICT)
        return {**priority_number(pod, self._threshold), codes.MAX_EVICTION_COST: cost}

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the code `node_fit` if the pod fits no other node, and the arguments ask for that check.

        The evict annotation of the pod makes the check pass.
        """
        if not self._asks_fit or pod.has_evict_annotation or self._node_fit.has_place(pod, cluster):
            return ()
        return (codes.NODE_FIT,)

    def _kind(self, pod: PodView) -> Iterator[str]:
        yield from identity_refusals(pod)
        if pod.is_daemon:
            yield codes.DAEMON_SET
        if pod.is_bare and self._protects_bare:
            is_failed = pod.object.status.phase == FAILED
            if not (is_failed and self._args.evict_failed_bare_pods):
                yield codes.BARE_POD

    def _value(self, pod: PodView) -> Iterator[str]:
        if self._protects_critical and pod.is_system_critical:
            yield codes.SYSTEM_CRITICAL
        if self._threshold is not None and pod.priority is not None and pod.priority >= self._threshold:
            yield codes.PRIORITY_THRESHOLD
        if pod.must_stay:
            yield codes.MAX_EVICTION_COST

    def _scope(self, pod: PodView) -> Iterator[str]:
        if self._protects_local and pod.has_local_storage:
            yield codes.LOCAL_STORAGE
        if self._protects_claims and pod.claims:
            yield codes.PVC
        if self._selector is not None and not self._selector.matches(pod.labels):
            yield codes.LABEL_SELECTOR
        if self._namespaces is not None and not self._namespaces.passes(pod.namespace):
            yield codes.NAMESPACE


def priority_number(pod: PodView, threshold: int | None) -> Inputs:
    """Return code `priority_threshold` -> priority of the pod, and the threshold that it must not reach.

    Empty if there is no threshold, or if the pod has no priority.
    """
    if threshold is None or pod.priority is None:
        return {}
    return {codes.PRIORITY_THRESHOLD: Number(value=pod.priority, limit=threshold)}


def identity_refusals(pod: PodView) -> Iterator[str]:
    """Yield the codes of the reasons against a pod that no argument switches off: mirror, static or terminating."""
    if pod.is_mirror:
        yield codes.MIRROR
    if pod.is_static:
        yield codes.STATIC
    if pod.is_terminating:
        yield codes.TERMINATING


class NodeFit:
    """Checks whether a pod would fit another node, by the rules of the Kubernetes descheduler.

    Args:
        nodes: Selects the nodes that count.

    Source:
        descheduler spec, 6.1 (`nodeFit`)
    """

    def __init__(self, nodes: Selector) -> None:
        self._nodes = nodes

    def has_place(self, pod: PodView, cluster: ClusterView) -> bool:
        """Return whether a pod fits a ready, selected node other than its own."""
        return any(
            fits_upstream(pod, node, cluster)
            for node in cluster.nodes
            if node.name != pod.node and node.is_ready and self._nodes.matches(node.labels)
        )
