"""Topology domains of a constraint with the pods that it selects.

Source:
    descheduler spec, 10.10 (1) to (3)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.objects import TopologySpreadConstraint
from koordcore.protocol.placement import first_untolerated
from koordcore.protocol.selectors import Operator, Requirement, Selector, compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.view.fit import meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

HONOR: Final = "Honor"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology spread constraint of one or more pods of a namespace.

    Attributes:
        max_skew: Largest difference between the sizes of two domains.
        topology_key: Label of the nodes whose values are the domains.
        selector: Selects the pods that count.
        affinity_of: Pod whose node selector and node affinity exclude nodes; None: they are ignored.
        tolerations_of: Pod whose missing tolerations exclude nodes; None: taints are ignored.
        need: Equal for constraints that accept the same nodes.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    affinity_of: PodView | None
    tolerations_of: PodView | None
    need: bytes

    def accepts(self, node: NodeView) -> bool:
        """Return whether a node has the topology key, and the honoured policies do not exclude it."""
        if self.topology_key not in node.labels:
            return False
        if self.affinity_of is not None and not meets_node_selection(self.affinity_of, node):
            return False
        pod = self.tolerations_of
        return pod is None or first_untolerated(node.taints, pod.object.spec.tolerations) is None


def distinct_constraints(pods: Iterable[PodView], kinds: frozenset[str]) -> list[Constraint]:
    """Return the distinct constraints of pods, in the order in which they first appear.

    With `matchLabelKeys`, the selector also requires the pod's own values of these labels. Constraints are equal if
    skew, key, selector and policies are equal, and also node affinity and tolerations where policies honour them.
    Constraints without a selector, or with an invalid one, are left out.

    Args:
        pods: Pods of one namespace.
        kinds: Values of `whenUnsatisfiable` that count.

    Source:
        descheduler spec, 10.10 (1)
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
    """Pods of one namespace with an index by label, so that a constraint looks only at pods that may match it.

    Args:
        pods: The pods, in order.
    """

    def __init__(self, pods: Sequence[PodView]) -> None:
        self._pods = pods
        self._by_key: dict[str, dict[str, list[PodView]]] = {}

    def selected(self, selector: Selector) -> list[PodView]:
        """Return the pods that a selector matches, in order."""
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
    """The nodes that constraints accept, by value of the topology key. Constraints with equal needs share them.

    Args:
        nodes: Nodes of the round.
    """

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._nodes = list(nodes)
        self._known: dict[bytes, dict[str, list[NodeView]]] = {}

    def by_value(self, constraint: Constraint) -> Mapping[str, Sequence[NodeView]]:
        """Return value of the topology key -> nodes that the constraint accepts, in order."""
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
    """Return the domains of a constraint by size, smallest first; equal ones by value.

    Args:
        constraint: The constraint.
        pods: Evictable pods of the constraint's namespace. Other pods are not counted.
        nodes: Name -> node of the round.
        accepted: Values of the topology key on nodes that the constraint accepts. They are domains even without pods.

    Source:
        descheduler spec, 10.10 (2), (3)
    """
    found: dict[str, list[PodView]] = {value: [] for value in accepted}
    for pod in pods.selected(constraint.selector):
        value = nodes[pod.node].labels.get(constraint.topology_key)
        if value is not None and not pod.is_terminating:
            found.setdefault(value, []).append(pod)
    domains = [Domain(value, sorted(members, key=_stay_rank)) for value, members in found.items()]
    return sorted(domains, key=lambda domain: (len(domain.pods), domain.value))


def _stay_rank(pod: PodView) -> tuple[bool, bool, int]:
    """Return the sort key of a pod in a domain; pods with a higher key leave first.

    Pods with a node selector or node affinity stay longest, then those of higher priority, then those of lower or no
    priority.
    """
    spec = pod.object.spec
    is_bound = bool(spec.node_selector) or (spec.affinity is not None and spec.affinity.node_affinity is not None)
    return (not is_bound, spec.priority is None, -(spec.priority or 0))
