"""RemovePodsViolatingTopologySpreadConstraint: evict pods so that topology domains can become even again.

Source:
    descheduler spec, 10.10
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Text
from koordcore.protocol.objects import TopologySpreadConstraint
from koordcore.protocol.placement import first_untolerated
from koordcore.protocol.selectors import Operator, Requirement, Selector, compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import (
    PodScope,
    PodScopeArgs,
    check_choice,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import fits_upstream, meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

HONOR: Final = "Honor"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology spread constraint of one or more pods of a namespace."""

    max_skew: int  # Largest difference between the sizes of two domains
    topology_key: str  # Label of the nodes whose values are the domains
    selector: Selector  # Selects the pods that count
    affinity_of: PodView | None  # Pod whose node selector and node affinity exclude nodes; None: they are ignored
    tolerations_of: PodView | None  # Pod whose missing tolerations exclude nodes; None: taints are ignored
    need: bytes  # Equal for constraints that accept the same nodes

    def accepts(self, node: NodeView) -> bool:
        """Whether a node has the topology key, and the honoured policies do not exclude it."""
        if self.topology_key not in node.labels:
            return False
        if self.affinity_of is not None and not meets_node_selection(self.affinity_of, node):
            return False
        pod = self.tolerations_of
        return pod is None or first_untolerated(node.taints, pod.object.spec.tolerations) is None


def distinct_constraints(pods: Iterable[PodView], kinds: frozenset[str]) -> list[Constraint]:
    """The distinct constraints of the pods of one namespace, in the order in which they first appear.

    With `matchLabelKeys`, the selector also requires the pod's own values of these labels. Constraints are equal if
    skew, key, selector and policies are equal, and also node affinity and tolerations where policies honour them.
    Constraints without a selector, or with an invalid one, are left out (descheduler spec, 10.10 (1)).

    `kinds`: values of `whenUnsatisfiable` that count.
    """
    found: dict[bytes, Constraint] = {}
    for pod in pods:
        spec = pod.object.spec
        for written in spec.topology_spread_constraints:
            if written.when_unsatisfiable not in kinds or written.label_selector is None:
                continue
            own = [(key, pod.labels[key]) for key in written.match_label_keys if key in pod.labels]
            honours_affinity = (written.node_affinity_policy or HONOR) == HONOR
            honours_taints = (written.node_taints_policy or IGNORE) == HONOR
            affinity = spec.affinity.node_affinity if spec.affinity is not None else None
            needs = (
                (sorted(spec.node_selector.items()), affinity) if honours_affinity else None,
                spec.tolerations if honours_taints else None,
            )
            key = codec.encode((written.max_skew, written.topology_key, written.label_selector, own, needs))
            if key in found:
                continue
            selector = _selector(written, own)
            if selector is not None:
                found[key] = Constraint(
                    written.max_skew,
                    written.topology_key,
                    selector,
                    pod if honours_affinity else None,
                    pod if honours_taints else None,
                    codec.encode((written.topology_key, needs)),
                )
    return list(found.values())


def _selector(written: TopologySpreadConstraint, own: Sequence[tuple[str, str]]) -> Selector | None:
    assert written.label_selector is not None
    try:
        selector = compile_selector(written.label_selector)
    except InvalidInput:
        return None
    if not own:
        return selector
    return Selector(
        (*selector.requirements, *(Requirement(key, Operator.IN, frozenset({value})) for key, value in own))
    )


class PodsByLabel:
    """Pods of one namespace with an index by label, so that a constraint looks only at pods that may match it. Order is
    kept.
    """

    def __init__(self, pods: Sequence[PodView]) -> None:
        self._pods = pods
        self._by_key: dict[str, dict[str, list[PodView]]] = {}

    def selected(self, selector: Selector) -> list[PodView]:
        candidates = self._pods
        for requirement in selector.requirements:
            if requirement.operator is Operator.IN and len(requirement.values) == 1:
                (value,) = requirement.values
                candidates = self._index(requirement.key).get(value, [])
                break
        return [pod for pod in candidates if selector.matches(pod.labels)]

    def _index(self, key: str) -> dict[str, list[PodView]]:
        index = self._by_key.get(key)
        if index is None:
            index = self._by_key[key] = {}
            for pod in self._pods:
                value = pod.labels.get(key)
                if value is not None:
                    index.setdefault(value, []).append(pod)
        return index


class AcceptedNodes:
    """The nodes that constraints accept, by value of the topology key. Constraints with equal needs share them."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._nodes = list(nodes)
        self._known: dict[bytes, dict[str, list[NodeView]]] = {}

    def by_value(self, constraint: Constraint) -> Mapping[str, Sequence[NodeView]]:
        """Value of the topology key -> nodes that the constraint accepts, in order."""
        found = self._known.get(constraint.need)
        if found is None:
            found = self._known[constraint.need] = {}
            for node in self._nodes:
                if constraint.accepts(node):
                    found.setdefault(node.labels[constraint.topology_key], []).append(node)
        return found


@dataclass(slots=True)
class Domain:
    """A topology domain: a value of the topology key, and its pods.

    Pods that should leave first are last in the list.
    """

    value: str
    pods: list[PodView]


def domains_of(
    constraint: Constraint, pods: PodsByLabel, nodes: Mapping[str, NodeView], accepted: Iterable[str]
) -> list[Domain]:
    """The domains of a constraint by size, smallest first; equal ones by value (descheduler spec, 10.10 (2), (3)).

    Args:
        pods: Evictable pods of the constraint's namespace. Other pods are not counted.
        nodes: Name -> node of the round.
        accepted: Values of the topology key on nodes that the constraint accepts. They are domains even without pods.
    """
    found: dict[str, list[PodView]] = {value: [] for value in accepted}
    for pod in pods.selected(constraint.selector):
        value = nodes[pod.node].labels.get(constraint.topology_key)
        if value is not None and not pod.is_terminating:
            found.setdefault(value, []).append(pod)
    domains = [Domain(value, sorted(members, key=_stay_rank)) for value, members in found.items()]
    return sorted(domains, key=lambda domain: (len(domain.pods), domain.value))


def _stay_rank(pod: PodView) -> tuple[bool, bool, int]:
    """The sort key of a pod in a domain; pods with a higher key leave first.

    Pods with a node selector or node affinity stay longest, then those of higher priority, then those of lower or no
    priority.
    """
    spec = pod.object.spec
    is_bound = bool(spec.node_selector) or (spec.affinity is not None and spec.affinity.node_affinity is not None)
    return (not is_bound, spec.priority is None, -(spec.priority or 0))


NAME: Final = "RemovePodsViolatingTopologySpreadConstraint"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
KINDS: Final = (DO_NOT_SCHEDULE, "ScheduleAnyway")


class RemovePodsViolatingTopologySpreadConstraintArgs(PodScopeArgs):
    constraints: tuple[Text, ...] = ()  # Kinds of constraints to enforce; empty: DoNotSchedule
    # Whether only pods that fit a node of a domain with fewer pods are evicted.
    topology_balance_node_fit: StrictBool = True


def check(args: RemovePodsViolatingTopologySpreadConstraintArgs) -> Iterator[InvalidInput]:
    yield from check_pods(args)
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
        """Only pods that the arguments and the filters admit are counted and evicted.

        Each pod is evicted once, even if several constraints choose it.
        """
        nodes = {node.name: node for node in run.nodes}
        by_namespace: dict[str, list[PodView]] = {}
        for node in run.nodes:
            for pod in run.cluster.unfinished_on(node.name):
                by_namespace.setdefault(pod.namespace, []).append(pod)
        chosen: dict[str, tuple[PodView, Number]] = {}
        accepted = AcceptedNodes(run.nodes)
        for pods in by_namespace.values():
            if run.is_exhausted or not any(pod.object.spec.topology_spread_constraints for pod in pods):
                continue
            visible = [pod for pod in pods if self._scope.admits(pod) and run.filter(pod)]
            by_label = PodsByLabel(visible)
            for constraint in distinct_constraints(visible, self._kinds):
                for pod, skew in self._leaving(constraint, by_label, nodes, accepted.by_value(constraint), run.cluster):
                    chosen.setdefault(pod.uid, (pod, skew))
        for pod, skew in chosen.values():
            if run.filter(pod) and run.pre_eviction_filter(pod):
                reason = f"topology spread constraint of the pod is violated on node {pod.node}"
                run.evict(pod, reason, {"skew": skew})

    def _leaving(
        self,
        constraint: Constraint,
        pods: PodsByLabel,
        nodes: dict[str, NodeView],
        accepted: Mapping[str, Sequence[NodeView]],
        cluster: ClusterView,
    ) -> Iterator[tuple[PodView, Number]]:
        """The pods that leave so that one constraint is met, with the skew before that."""
        domains = domains_of(constraint, pods, nodes, accepted)
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


def _moved(domains: Sequence[Domain], max_skew: int, average: float, fits: _Landing) -> Iterator[PodView]:
    """Yield the pods that move from large to small domains, and count them there (descheduler spec, 10.10 (4)).

    Args:
        domains: All domains by size, smallest first.
        average: Mean size of the domains.
        fits: Whether a pod fits a landing node. In its domain, such pods are moved first.
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
    arguments=RemovePodsViolatingTopologySpreadConstraintArgs,
    check=check,
    make=lambda args, _: RemovePodsViolatingTopologySpreadConstraint(args),
)
