"""RemovePodsViolatingTopologySpreadConstraint: evict pods so that topology domains can become even again.

`topology_domains` counts the pods per domain; this module decides how many leave which domain.

Source:
    descheduler spec, 10.10
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Text, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool

from koord_descheduler.domain.arguments.common import (
    LabelSelectorArgs,
    Namespaces,
    PodScope,
    check_choice,
    check_namespaces,
    check_selector,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.upstream import topology_domains
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import fits_upstream
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "RemovePodsViolatingTopologySpreadConstraint"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
KINDS: Final = (DO_NOT_SCHEDULE, "ScheduleAnyway")


class RemovePodsViolatingTopologySpreadConstraintArgs(WireModel):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint.

    Attributes:
        constraints: Kinds of constraints to enforce; empty: DoNotSchedule.
        topology_balance_node_fit: Whether only pods that fit a node of a domain with fewer pods are evicted.
    """

    namespaces: Namespaces | None = None
    label_selector: LabelSelectorArgs | None = None
    constraints: tuple[Text, ...] = ()
    topology_balance_node_fit: StrictBool = True


def check(args: RemovePodsViolatingTopologySpreadConstraintArgs) -> Iterator[InvalidInput]:
    """Yield every invalid value of the arguments."""
    yield from check_namespaces(args.namespaces, "namespaces")
    yield from check_selector(args.label_selector, "labelSelector")
    for index, kind in enumerate(args.constraints):
        yield from check_choice(kind, KINDS, f"constraints[{index}]")


class RemovePodsViolatingTopologySpreadConstraint:
    """Evicts pods from topology domains that have too many of them.

    Each constraint is balanced by itself: constraints do not see each other's moves.
    """

    name = NAME

    def __init__(self, args: RemovePodsViolatingTopologySpreadConstraintArgs) -> None:
        self._args = args
        self._kinds = frozenset(args.constraints or (DO_NOT_SCHEDULE,))
        self._scope = PodScope(args.namespaces, args.label_selector)

    def balance(self, run: PluginRun) -> None:
        """Evict pods of domains that have too many, until each constraint would be met.

        Only pods that the arguments and the filters admit are counted and evicted. Each pod is evicted once, even if
        several constraints choose it.
        """
        nodes = {node.name: node for node in run.nodes}
        by_namespace: dict[str, list[PodView]] = {}
        for node in run.nodes:
            for pod in run.cluster.unfinished_on(node.name):
                by_namespace.setdefault(pod.namespace, []).append(pod)
        chosen: dict[str, tuple[PodView, Number]] = {}
        accepted = topology_domains.AcceptedNodes(run.nodes)
        for pods in by_namespace.values():
            if run.is_exhausted or not any(pod.object.spec.topology_spread_constraints for pod in pods):
                continue
            visible = [pod for pod in pods if self._scope.admits(pod) and run.filter(pod)]
            by_label = topology_domains.PodsByLabel(visible)
            for constraint in topology_domains.distinct_constraints(visible, self._kinds):
                for pod, skew in self._leaving(constraint, by_label, nodes, accepted.by_value(constraint), run.cluster):
                    chosen.setdefault(pod.uid, (pod, skew))
        for pod, skew in chosen.values():
            if run.filter(pod) and run.pre_eviction_filter(pod):
                reason = f"topology spread constraint of the pod is violated on node {pod.node}"
                run.evict(pod, reason, {"skew": skew})

    def _leaving(
        self,
        constraint: topology_domains.Constraint,
        pods: topology_domains.PodsByLabel,
        nodes: dict[str, NodeView],
        accepted: Mapping[str, Sequence[NodeView]],
        cluster: ClusterView,
    ) -> Iterator[tuple[PodView, Number]]:
        """Yield the pods that leave so that one constraint is met, with the skew before that."""
        domains = topology_domains.domains_of(constraint, pods, nodes, accepted)
        skew = len(domains[-1].pods) - len(domains[0].pods) if domains else 0
        if not domains or skew <= constraint.max_skew:
            return
        average = sum(len(domain.pods) for domain in domains) / len(domains)
        below = [domain.value for domain in domains if len(domain.pods) < average]
        landing = [node for value in below for node in accepted.get(value, ())]
        fits = _Landing(landing, cluster)
        for pod in _moved(domains, constraint.max_skew, average, fits):
            if not self._args.topology_balance_node_fit or fits(pod):
                yield pod, Number(value=skew, limit=constraint.max_skew)


class _Landing:
    """Checks whether pods fit a node of a smaller domain other than their own; each pod is checked once."""

    def __init__(self, nodes: Sequence[NodeView], cluster: ClusterView) -> None:
        self._nodes, self._cluster = nodes, cluster
        self._known: dict[str, bool] = {}

    def __call__(self, pod: PodView) -> bool:
        known = self._known.get(pod.uid)
        if known is None:
            known = self._known[pod.uid] = any(
                fits_upstream(pod, node, self._cluster) for node in self._nodes if node.name != pod.node
            )
        return known


def _moved(
    domains: Sequence[topology_domains.Domain], max_skew: int, average: float, fits: _Landing
) -> Iterator[PodView]:
    """Yield the pods that move from large to small domains, and count them there.

    Args:
        domains: All domains by size, smallest first.
        max_skew: Largest difference that the constraint allows.
        average: Mean size of the domains.
        fits: Whether a pod fits a landing node. In its domain, such pods are moved first.

    Source:
        descheduler spec, 10.10 (4)
    """
    low, high = 0, len(domains) - 1
    while low < high:
        if len(domains[high].pods) <= average:
            high -= 1
        small, large = domains[low].pods, domains[high].pods
        skew = len(large) - len(small)
        moves = min(math.ceil(len(large) - average), math.ceil(average - len(small)), math.ceil((skew - max_skew) / 2))
        if skew <= max_skew or moves <= 0:
            low += 1
            continue
        large.sort(key=fits)
        moved = large[-moves:]
        del large[-moves:]
        small.extend(moved)
        yield from moved


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    decode=lambda raw: upstream_args(raw, RemovePodsViolatingTopologySpreadConstraintArgs),
    check=check,
    make=lambda args, _: RemovePodsViolatingTopologySpreadConstraint(args),
)
