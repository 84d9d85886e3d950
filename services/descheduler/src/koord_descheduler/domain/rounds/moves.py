"""The nodes on which evicted pods would land: the question to the scheduler, its answer, and the cluster afterwards."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from koordcore.protocol import objects as kube
from koordcore.protocol.annotations.allocation import ALLOCATION_KEYS
from koordcore.protocol.objects import PodStatus
from koordcore.requests.fit import FitAnswer, FitRequest, PodSet
from koordcore.values.resources import Amounts

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from koord_descheduler.domain.view.pods import PodView

COMPARED: Final = ("cpu", "memory")
"""Resources by which a cluster is compared before and after."""
_NAME_FIELD: Final = "metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    pod: PodView
    target: str
    plugin: str
    reason: str


def question(
    pods: Sequence[PodView], avoided: Mapping[str, Collection[str]] = {}, waiting: Sequence[PodView] = ()
) -> FitRequest:
    """Ask the scheduler: where do these pods land if all of them leave their nodes first?

    A pod must not land on the node that it leaves, as with the Reservation of a migration.

    Args:
        avoided: Uid of a pod -> further nodes on which it must not land.
        waiting: Pods without a node that must find one afterwards.
    """
    sets = [PodSet(pod=_successor(pod, avoided.get(pod.uid, ()))) for pod in pods]
    sets += [PodSet(pod=_successor(pod)) for pod in waiting]
    return FitRequest(pods=sets, leaving=[pod.uid for pod in (*pods, *waiting)])


def staying(pod: PodView) -> PodSet:
    """The entry of a question for a pod that an earlier round moved: it must land on `pod.node` again."""
    found = _successor(pod)
    spec = _replaced(found.spec, affinity=_bound(pod.object.spec.affinity, "In", [pod.node]))
    return PodSet(pod=_replaced(found, spec=spec))


def landings(pods: Iterable[PodView], answer: FitAnswer) -> dict[str, str]:
    """Uid of a pod -> the node on which it lands. Pods without a place are absent."""
    nodes = {key: fit.node for fit in answer.nodes for key in fit.pods}
    return {pod.uid: nodes[pod.key] for pod in pods if pod.key in nodes}


def moved(cluster: ClusterView, targets: Mapping[str, str], seconds: float) -> ClusterView:
    """The cluster as it will be after moves, when `seconds` have passed.

    `targets`: uid of a pod -> node on which it lands. The usage of a pod moves with the pod; usage reports do not age.
    """
    pods = tuple(replace(pod, node=targets[pod.uid]) if pod.uid in targets else pod for pod in cluster.pods)
    usage: dict[str, dict[str, Amounts]] = {name: dict(metric.pods) for name, metric in cluster.metrics.items()}
    for uid, target in targets.items():
        pod = cluster.pod_by_uid[uid]
        used = usage.get(pod.node, {}).pop(pod.key, None)
        if used is not None and target in usage:
            usage[target][pod.key] = used
    metrics = {
        name: NodeMetric(
            updated=None if metric.updated is None else metric.updated + seconds,
            system=metric.system,
            pods=usage[name],
        )
        for name, metric in cluster.metrics.items()
    }
    return replace(cluster, now=cluster.now + seconds, pods=pods, metrics=metrics)


def _successor(pod: PodView, avoided: Collection[str] = ()) -> kube.Pod:
    """The pod that replaces an evicted one: without a node, and without what server and scheduler set.

    It excludes the node of the pod, and the nodes `avoided`.
    """
    meta, spec = pod.object.metadata, pod.object.spec
    annotations = {key: text for key, text in meta.annotations.items() if key not in ALLOCATION_KEYS}
    metadata = _replaced(
        meta, uid=f"moved-{pod.uid}", annotations=annotations, creation_timestamp=None, deletion_timestamp=None
    )
    spec = _replaced(spec, node_name="", affinity=_bound(spec.affinity, "NotIn", sorted({pod.node, *avoided} - {""})))
    return msgspec.structs.replace(pod.object, metadata=metadata, spec=spec, status=PodStatus())


def _bound(affinity: kube.Affinity | None, operator: str, nodes: list[str]) -> kube.Affinity | None:
    """An affinity that also requires (In) or excludes (NotIn) nodes, in every required term."""
    if not nodes:
        return affinity
    # Kubernetes allows one value in each condition on a field.
    conditions = [kube.LabelSelectorRequirement(key=_NAME_FIELD, operator=operator, values=[node]) for node in nodes]
    affinity = affinity or kube.Affinity()
    own = affinity.node_affinity or kube.NodeAffinity()
    if own.required is None:
        terms = [kube.NodeSelectorTerm(match_fields=conditions)]
    else:
        # A term without conditions matches no node; a condition would make it match.
        terms = [
            _replaced(term, match_fields=[*term.match_fields, *conditions])
            if term.match_expressions or term.match_fields
            else term
            for term in own.required.node_selector_terms
        ]
    return _replaced(affinity, node_affinity=_replaced(own, required=kube.NodeSelector(node_selector_terms=terms)))


def _replaced(struct: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(struct, **changes)
