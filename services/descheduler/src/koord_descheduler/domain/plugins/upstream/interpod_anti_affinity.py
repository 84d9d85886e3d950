"""RemovePodsViolatingInterPodAntiAffinity: evict pods that must not run near another pod.

Source:
    descheduler spec, 10.6
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol.objects import PodAffinityTerm
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import (
    PodScope,
    PodScopeArgs,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.fit import anti_affinity_terms
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.orders import upstream_order
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "RemovePodsViolatingInterPodAntiAffinity"


class RemovePodsViolatingInterPodAntiAffinityArgs(PodScopeArgs):
    """Arguments: namespaces and labels of pods that may be evicted, and of pods with which they are compared."""


@dataclass(slots=True)
class _Selected:
    """The pods that one anti-affinity term selects, counted per node and per topology domain."""

    selector: Selector | None
    namespaces: frozenset[str]
    topology_key: str
    # Node -> name of a pod -> number of such pods there.
    by_node: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    # Value of the topology key -> name of a pod -> number of such pods on nodes with that value.
    by_value: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def selects(self, pod: PodView) -> bool:
        return self.selector is not None and pod.namespace in self.namespaces and self.selector.matches(pod.labels)

    def count(self, pod: PodView, node: NodeView, change: int) -> None:
        self.by_node.setdefault(node.name, Counter())[pod.name] += change
        value = node.labels.get(self.topology_key)
        if value is not None:
            self.by_value.setdefault(value, Counter())[pod.name] += change

    def clashes(self, pod: PodView, node: NodeView) -> bool:
        near = self.by_node.get(node.name)
        if near is not None and near.total() > near[pod.name]:
            return True
        value = node.labels.get(self.topology_key)
        same = None if value is None else self.by_value.get(value)
        return same is not None and same.total() > same[pod.name]


class _Terms:
    """The selected pods of all distinct terms in a round."""

    def __init__(self, pods: Iterable[tuple[PodView, NodeView]]) -> None:
        self._pods = list(pods)
        self._known: dict[bytes, _Selected] = {}

    def of(self, pod: PodView) -> list[_Selected]:
        return [self._selected(term, pod) for term in anti_affinity_terms(pod)]

    def _selected(self, term: PodAffinityTerm, pod: PodView) -> _Selected:
        namespaces = term.namespaces or [pod.namespace]
        key = codec.encode((namespaces, term.label_selector, term.topology_key))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Selected(_compiled(term), frozenset(namespaces), term.topology_key)
            for other, node in self._pods:
                if found.selects(other):
                    found.count(other, node, 1)
        return found

    def evicted(self, pod: PodView, node: NodeView) -> None:
        self._pods.remove((pod, node))
        for found in self._known.values():
            if found.selects(pod):
                found.count(pod, node, -1)


def _compiled(term: PodAffinityTerm) -> Selector | None:
    """The selector of a term; None, which selects nothing, if it is absent or invalid."""
    try:
        return None if term.label_selector is None else compile_selector(term.label_selector)
    except InvalidInput:
        return None


class RemovePodsViolatingInterPodAntiAffinity:
    """Evicts pods whose required anti-affinity excludes another pod on the same node or in the same topology domain.

    A pod that this round evicted no longer counts.
    """

    name = NAME

    def __init__(self, args: RemovePodsViolatingInterPodAntiAffinityArgs) -> None:
        self._scope = PodScope(args.namespaces, args.label_selector)

    def deschedule(self, run: PluginRun) -> None:
        """Evict node by node in order, and on a node from low to high priority."""
        on_node = [
            (node, [pod for pod in run.cluster.unfinished_on(node.name) if self._scope.admits(pod)])
            for node in run.nodes
        ]
        terms = _Terms((pod, node) for node, pods in on_node for pod in pods)
        for node, pods in on_node:
            for pod in upstream_order(pod for pod in pods if anti_affinity_terms(pod)):
                if not any(term.clashes(pod, node) for term in terms.of(pod)):
                    continue
                if (
                    run.filter(pod)
                    and run.pre_eviction_filter(pod)
                    and run.evict(pod, f"required anti-affinity of the pod is violated on node {node.name}")
                ):
                    terms.evicted(pod, node)


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, RemovePodsViolatingInterPodAntiAffinityArgs),
    arguments=RemovePodsViolatingInterPodAntiAffinityArgs,
    check=check_pods,
    make=lambda args, _: RemovePodsViolatingInterPodAntiAffinity(args),
)
