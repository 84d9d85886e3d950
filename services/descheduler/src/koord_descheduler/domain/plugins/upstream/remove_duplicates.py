"""RemoveDuplicates: spread the pods of one owner that crowd on a node.

Source:
    descheduler spec, 10.7
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Text, WireModel
from koordcore.protocol.placement import first_untolerated
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import Namespaces, PodScope, check_namespaces, upstream_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.fit import meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "RemoveDuplicates"


class RemoveDuplicatesArgs(WireModel):
    """Arguments: namespaces of the pods, and kinds of owners whose pods are not evicted."""

    namespaces: Namespaces | None = None
    exclude_owner_kinds: tuple[Text, ...] = ()


def check(args: RemoveDuplicatesArgs) -> Iterator[InvalidInput]:
    yield from check_namespaces(args.namespaces, "namespaces")


class _Group(NamedTuple):
    """Pods of one owner with the same images; `images` are sorted."""

    namespace: str
    kind: str
    owner: str
    images: tuple[str, ...]


class _Groups:
    """Occurrences and duplicates of all groups."""

    def __init__(self) -> None:
        self.occurrences: Counter[_Group] = Counter()  # Group -> number of its pods
        # Group -> node -> its pods there without the first one.
        self.duplicates: dict[_Group, dict[str, list[PodView]]] = {}

    def add_node(self, node: str, pods: Iterable[PodView]) -> None:
        seen: set[tuple[_Group, ...]] = set()
        for pod in pods:
            groups = _groups_of(pod)
            self.occurrences.update(groups)
            if groups not in seen:
                seen.add(groups)
                continue
            for group in groups:
                self.duplicates.setdefault(group, {}).setdefault(node, []).append(pod)


def _groups_of(pod: PodView) -> tuple[_Group, ...]:
    images = tuple(sorted(container.image for container in pod.object.spec.containers))
    return tuple(sorted(_Group(pod.namespace, owner.kind, owner.name, images) for owner in pod.owners))


class RemoveDuplicates:
    """Evicts pods of an owner from nodes with more of its pods than the average over the nodes that accept them."""

    name = NAME

    def __init__(self, args: RemoveDuplicatesArgs) -> None:
        self._scope = PodScope(args.namespaces)
        self._excluded = frozenset(args.exclude_owner_kinds)

    def balance(self, run: PluginRun) -> None:
        """Evict group by group in the order of first occurrence."""
        if run.is_exhausted:
            return
        groups, crowded = _Groups(), _crowded_owners(run)
        for node in run.nodes:
            pods = [
                pod
                for pod in run.cluster.unfinished_on(node.name)
                if any((pod.namespace, owner.name) in crowded for owner in pod.owners) and self._counts(pod, run)
            ]
            groups.add_node(node.name, pods)
        acceptance = _Acceptance(run.nodes)
        for group, by_node in groups.duplicates.items():
            targets = acceptance.targets(pod for pods in by_node.values() for pod in pods)
            if targets < 2:
                continue
            average = -(-groups.occurrences[group] // targets)
            for node, pods in by_node.items():
                reason = f"node {node} has more than {average} pods of {group.kind} {group.owner}"
                inputs = {"pods_of_owner": Number(value=len(pods) + 1, limit=average)}
                for pod in pods[average - 1 :] if len(pods) + 1 > average else ():
                    run.evict(pod, reason, inputs)

    def _counts(self, pod: PodView, run: PluginRun) -> bool:
        owners = pod.owners
        if not owners or any(owner.kind in self._excluded for owner in owners) or not self._scope.admits(pod):
            return False
        return run.filter(pod) and run.pre_eviction_filter(pod)


def _crowded_owners(run: PluginRun) -> set[tuple[str, str]]:
    """Namespace and name of the owners with two or more pods on one node. Only these can have duplicates."""
    crowded: set[tuple[str, str]] = set()
    for node in run.nodes:
        seen: set[tuple[str, str]] = set()
        for pod in run.cluster.unfinished_on(node.name):
            for owner in pod.owners:
                key = (pod.namespace, owner.name)
                if key in seen:
                    crowded.add(key)
                seen.add(key)
    return crowded


class _Acceptance:
    """The nodes that accept pods, by the needs of the pods: tolerations, node selector and node affinity."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self._nodes = nodes
        self._known: dict[bytes, frozenset[str]] = {}

    def targets(self, pods: Iterable[PodView]) -> int:
        """Number of nodes that accept one of the pods. Needs that a single node meets add none."""
        by_need = {_need(pod): pod for pod in pods}
        accepted = [self._accepting(need, pod) for need, pod in by_need.items()]
        return len(frozenset[str]().union(*(names for names in accepted if len(names) > 1)))

    def _accepting(self, need: bytes, pod: PodView) -> frozenset[str]:
        names = self._known.get(need)
        if names is None:
            tolerations = pod.object.spec.tolerations
            names = self._known[need] = frozenset(
                node.name
                for node in self._nodes
                if first_untolerated(node.taints, tolerations) is None and meets_node_selection(pod, node)
            )
        return names


def _need(pod: PodView) -> bytes:
    spec = pod.object.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return codec.encode((spec.tolerations, sorted(spec.node_selector.items()), affinity))


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    decode=lambda raw: upstream_args(raw, RemoveDuplicatesArgs),
    arguments=RemoveDuplicatesArgs,
    check=check,
    make=lambda args, _: RemoveDuplicates(args),
)
