"""RemovePodsViolatingNodeAffinity: evict pods whose node violates their node affinity, or no longer matches it best.

Source:
    descheduler spec, 10.5
"""

from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.component_config import Text
from koordcore.protocol.objects import PreferredSchedulingTerm
from koordcore.protocol.placement import term_matches_one
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import (
    PREFERRED,
    REQUIRED,
    PodScope,
    PodScopeArgs,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.fit import fits_upstream, meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "RemovePodsViolatingNodeAffinity"


class RemovePodsViolatingNodeAffinityArgs(PodScopeArgs):
    node_affinity_type: tuple[Text, ...] = ()  # Kinds of affinity to check, in this order. Unknown texts are skipped.


def check(args: RemovePodsViolatingNodeAffinityArgs) -> Iterator[InvalidInput]:
    yield from check_pods(args)
    if not args.node_affinity_type:
        yield InvalidInput(f"a list with {REQUIRED} or {PREFERRED}", [], "nodeAffinityType")


class RemovePodsViolatingNodeAffinity:
    """Evicts unfinished pods whose node violates their affinity, or matches their preferences less than another node.

    A pod stays if it fits no node of the round. That a preferred node has room for it is not checked.
    """

    name = NAME

    def __init__(self, args: RemovePodsViolatingNodeAffinityArgs) -> None:
        self._types = args.node_affinity_type
        self._scope = PodScope(args.namespaces, args.label_selector)

    def deschedule(self, run: PluginRun) -> None:
        """Evict for each kind of affinity in the arguments, node by node in order."""
        for kind in self._types:
            violation = _CHECKS.get(kind)
            if violation is None:
                continue
            for node in run.nodes:
                for pod in run.cluster.unfinished_on(node.name):
                    if pod.object.spec.affinity is None or not self._scope.admits(pod):
                        continue
                    inputs = violation(pod, node, run)
                    if inputs is None or not run.filter(pod) or not run.pre_eviction_filter(pod):
                        continue
                    run.evict(pod, f"node {node.name} violates the node affinity of the pod ({kind})", inputs)


def _required(pod: PodView, node: NodeView, run: PluginRun) -> Inputs | None:
    """No numbers if the node of a pod violates its required affinity, else None."""
    affinity = pod.object.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    return {} if not meets_node_selection(pod, node) and _has_place(pod, run) else None


def _preferred(pod: PodView, node: NodeView, run: PluginRun) -> Inputs | None:
    """The weight of the preferences that the node matches, and the largest one; None if no node has more."""
    affinity = pod.object.spec.affinity
    if affinity is None or affinity.node_affinity is None or not affinity.node_affinity.preferred:
        return None
    terms = affinity.node_affinity.preferred
    own, best = _weight(terms, node), max(_weight(terms, other) for other in run.nodes)
    return {"preference_weight": Number(value=own, limit=best)} if best > own and _has_place(pod, run) else None


def _has_place(pod: PodView, run: PluginRun) -> bool:
    return any(fits_upstream(pod, other, run.cluster) for other in run.nodes)


def _weight(terms: Sequence[PreferredSchedulingTerm], node: NodeView) -> int:
    return sum(term.weight for term in terms if term_matches_one(term.preference, node.labels, node.name))


_CHECKS: Final = {REQUIRED: _required, PREFERRED: _preferred}

KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, RemovePodsViolatingNodeAffinityArgs),
    arguments=RemovePodsViolatingNodeAffinityArgs,
    check=check,
    make=lambda args, _: RemovePodsViolatingNodeAffinity(args),
)
