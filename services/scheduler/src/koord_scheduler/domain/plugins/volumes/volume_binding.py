"""VolumeBinding: nodes must reach the bound volumes of a pod, and offer volumes for its unbound claims.

A claim whose storage class waits for the first consumer is bound after the pod was placed. At Reserve the plugin
chooses a volume for each such claim, or lets a provisioner make one for the node. This choice is part of the
allocation. The gateway to the API server carries it out, and binds the pod once all of its claims are bound.

Source: scheduler-core spec, 5.9
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np
from koordcore.protocol.objects import NodeSelector
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.protocol.resource_names import gibibytes
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, Allocation, ClaimBinding

from koord_scheduler.domain.cluster.equivalence_classes import Claims, Subject
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS, Detail
from koord_scheduler.domain.framework.extension_points import (
    CONCERNS,
    CROSS_NODE_FILTER,
    PRE_FILTER,
    QUEUEING_HINTS,
    RESERVE,
)
from koord_scheduler.domain.framework.fact_points import WakesItself
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.plugins.affinity.node_affinity import term_matches
from koord_scheduler.domain.plugins.volumes.books import ClaimsByNeed, VolumeBooks
from koord_scheduler.domain.plugins.volumes.filters import ClaimsPlugin
from koord_scheduler.domain.plugins.volumes.matching import NO_SPACE, NO_VOLUME
from koord_scheduler.domain.plugins.volumes.objects import Claim, Volume

_AFFINITIES_KEPT: Final = 256
NODE_AFFINITY: Final = 3
NO_SUCH_VOLUME: Final = 4
REASONS: Final = {
    NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    NO_SPACE: "node(s) did not have enough free storage",
    NODE_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    NO_SUCH_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""Code of a refused node -> the phrase of kube-scheduler."""


class VolumeBinding(ClaimsPlugin, WakesItself):
    """The plugin VolumeBinding: refuses nodes without volumes for the pod, and chooses volumes for unbound claims.
    `bind_timeout_seconds`: time within which the claims of a placed pod must be bound.
    """

    name = "VolumeBinding"
    extension_points = (CONCERNS, PRE_FILTER, CROSS_NODE_FILTER, RESERVE, QUEUEING_HINTS)

    def __init__(self, nodes: NodeColumns, volumes: VolumeBooks, bind_timeout_seconds: int) -> None:
        super().__init__(volumes)
        self.nodes = nodes
        self._reached = NodesByAffinity(nodes)
        self._bind_timeout_seconds = bind_timeout_seconds

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """Reject a pod with a missing or lost claim, or with an unbound claim that must be bound before scheduling. The
        pod is woken when one of its claims changes.
        """
        claims = _claims_of(pod)
        if claims is None:
            return None
        for name in claims.names:
            problem = self._problem_of(name, claims, pod)
            if problem:
                return self._rejected(pod, claims, name, problem, ())
        waits_for = self.volumes.needs(claims).immediate
        if not waits_for:
            return None
        details = [f"claim {claim.key[1]} of {_class_text(claim)} is not bound" for claim in waits_for]
        message = "pod has unbound immediate PersistentVolumeClaims"
        return self._rejected(pod, claims, waits_for[0].key[1], message, details)

    def _problem_of(self, name: str, claims: Claims, pod: PodRecord) -> str:
        """Return why no pod can use a claim now, "" if one can."""
        claim = self.volumes.claims.get((claims.namespace, name))
        is_ephemeral = name in claims.ephemeral
        if claim is None and is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.is_lost:
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
        if claim.is_deleted:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if is_ephemeral and pod.uid not in claim.owners:
            own = f"{pod.namespace}/{pod.name}"
            return f"PVC {claims.namespace}/{name} was not created for pod {own} (pod is not owner)"
        return ""

    def _rejected(self, pod: PodRecord, claims: Claims, name: str, message: str, details: Iterable[str]) -> Rejection:
        for each in claims.names:
            self.volumes.waiting.wait((claims.namespace, each), pod.uid)
        return Rejection(plugin=self.name, message=message, key=f"{claims.namespace}/{name}", details=tuple(details))

    def filter_for(self, subject: Subject) -> "VolumeFilter | None":
        claims = subject.claims
        if claims is None:
            return None
        needs = self.volumes.needs(claims)
        bound = [(claim, self.volumes.volumes.get(claim.volume)) for claim in needs.bound]
        return VolumeFilter(self._reached, self.volumes, needs, bound)

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Choose a volume or a provisioner for each unbound claim on the node, and return them as the allocation.
        Claims of a Reservation stay unbound, because no pod uses them yet. Reject the pod if the volumes were taken
        meanwhile.
        """
        claims, row = _claims_of(pod), self.nodes.row(node)
        if claims is None or row is None or pod.pod is None or is_reserve_pod(pod.pod):
            return NOTHING
        needs = self.volumes.needs(claims)
        plan = self.volumes.matching.plan(needs.wants, row)
        if isinstance(plan, int):
            return Rejection(plugin=self.name, message=REASONS[plan])
        chosen = {
            **{claim.key[1]: "" for claim, _ in needs.selected},
            **{claim.key[1]: volume.name for claim, volume in needs.reserved},
            **{claim.key[1]: volume for claim, volume in zip(needs.free, plan, strict=True)},
        }
        if not chosen:
            return NOTHING
        bindings = tuple(
            ClaimBinding(namespace=claims.namespace, claim=name, volume=chosen[name])
            for name in claims.names
            if name in chosen
        )
        return Allocation(volume_claims=bindings, bind_timeout_seconds=self._bind_timeout_seconds)

    def unreserve(self, pod: PodRecord, node: str) -> tuple[str, ...]:
        """Return no pods. The chosen volumes become free with the pod's allocation."""
        return ()


class NodesByAffinity:
    """The nodes that can use volumes, by the node affinity of the volumes. Volumes with equal affinity share one
    result.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._position = -1
        self._reached: dict[bytes, BoolArray] = {}

    def of(self, affinity: NodeSelector) -> BoolArray:
        """Return for each node whether it can use a volume with this node affinity, bool (N,). Do not change the
        array.
        """
        nodes = self.nodes
        if self._position != nodes.shape.position or len(self._reached) >= _AFFINITIES_KEPT:
            self._position = nodes.shape.position
            self._reached.clear()
        key = codec.encode(affinity)
        reached = self._reached.get(key)
        if reached is None:
            reached = self._reached[key] = np.zeros(nodes.capacity, np.bool_)
            rows = np.arange(len(nodes.names), dtype=np.intp)
            for term in affinity.node_selector_terms:
                reached[rows] |= term_matches(term, nodes, rows)
        return reached


class VolumeFilter:
    """Refuses nodes that cannot reach the bound volumes of some claims, or that have no volumes for unbound ones.
    `reached`: finds the nodes that can use a volume. `needs`: the claims of the pods, in groups. `bound`: each bound
    claim with its volume; None if the volume does not exist.
    """

    def __init__(
        self,
        reached: NodesByAffinity,
        volumes: VolumeBooks,
        needs: ClaimsByNeed,
        bound: list[tuple[Claim, Volume | None]],
    ) -> None:
        self._nodes = reached.nodes
        self._reached = reached
        self._volumes = volumes
        self._needs = needs
        self._bound = bound
        restricted = (volume is None or volume.affinity is not None for _, volume in bound)
        self._is_idle = not (needs.reserved or needs.selected or needs.free or any(restricted))
        self._position = -1
        self._codes: IntArray = np.zeros(0, np.int64)

    def filter(self, rows: Rows) -> IntArray | None:
        if self._is_idle:
            return None
        if self._position != self._nodes.shape.position:
            self._position = self._nodes.shape.position
            self._codes = self._fixed_codes()
        codes = self._codes[rows]
        if self._needs.free:
            chosen = self._volumes.matching.codes(self._needs.wants)[rows]
            codes = np.where(codes == 0, chosen, codes)
        return codes

    def reason(self, code: int) -> str:
        return REASONS[code]

    def is_unresolvable(self, code: int) -> bool:
        """Return True: preemption cannot help, because it neither moves nor unbinds a volume."""
        return True

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        return [Detail(text) for text in islice(self._causes(reason), MOST_DETAILS)]

    def _causes(self, reason: str) -> Iterator[str]:
        if reason == REASONS[NODE_AFFINITY]:
            yield from (f"claim {claim.key[1]} has volume {claim.volume}" for claim, found in self._bound if found)
        elif reason == REASONS[NO_SUCH_VOLUME]:
            lost = (claim for claim, found in self._bound if found is None)
            yield from (f"claim {claim.key[1]} has volume {claim.volume}, which does not exist" for claim in lost)
        else:
            for claim, volume in self._needs.reserved:
                yield f"volume {volume.name} is reserved for claim {claim.key[1]}"
            for claim, node in self._needs.selected:
                yield f"a volume for claim {claim.key[1]} is made for node {node}"
            for claim in self._needs.free:
                size = gibibytes(claim.wanted.size_bytes)
                yield f"claim {claim.key[1]} of {_class_text(claim)} requests {size}"

    def _fixed_codes(self) -> IntArray:
        """Return the codes of all nodes, shape (N,), for the claims whose volume or node is fixed."""
        codes = np.zeros(self._nodes.capacity, np.int64)
        for _, volume in self._bound:
            if volume is None:
                codes[codes == 0] = NO_SUCH_VOLUME
            elif volume.affinity is not None:
                codes[~self._reached.of(volume.affinity) & (codes == 0)] = NODE_AFFINITY
        for _, volume in self._needs.reserved:
            # Unlike kube-scheduler, no second volume is made for a node that cannot reach the reserved one.
            if volume.affinity is not None:
                codes[~self._reached.of(volume.affinity) & (codes == 0)] = NO_VOLUME
        for _, name in self._needs.selected:
            row = self._nodes.row(name)
            missed = codes == 0
            if row is not None:
                missed[row] = False
            codes[missed] = NO_VOLUME
        return codes


def _claims_of(pod: PodRecord) -> Claims | None:
    return None if pod.subject is None else pod.subject.claims


def _class_text(claim: Claim) -> str:
    name = claim.wanted.storage_class
    return f"storage class {name}" if name else "no storage class"
