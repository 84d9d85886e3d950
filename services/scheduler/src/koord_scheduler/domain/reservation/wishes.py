"""What the scheduler reads from a pod about Reservations. Pods with equal values share cached results."""

from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations.document import is_reserve_pod

POLICY: Final = "internal.scheduling.koordinator.sh/reservation-allocate-policy"
"""Annotation of pods that stand for Reservations: the allocate policy. It exists only in the scheduler."""
CONCERNING: Final = (keys.RESERVATION_AFFINITY, keys.EXACT_MATCH_RESERVATION)


@dataclass(frozen=True, slots=True)
class PodWish:
    """What the scheduler reads from a pod about Reservations. Pods with equal values share cached results.

    Attributes:
        groups: Ids of the groups of Reservations that are for the pod.
        ignores: Whether the pod uses free room of Reservations without becoming an owner.
        affinity: Text of the annotation `scheduling.koordinator.sh/reservation-affinity`.
        exact: Text of the annotation `scheduling.koordinator.sh/exact-match-reservation`.
        is_reserve: Whether the pod is a reserve pod: it stands for a Reservation itself.
        node: Node that the template of the Reservation names; empty: any.
        policy: Allocate policy of the Reservation, if the pod is a reserve pod.
    """

    groups: tuple[int, ...] = ()
    ignores: bool = False
    affinity: str = ""
    exact: str = ""
    is_reserve: bool = False
    node: str = ""
    policy: str = ""


def pod_wish(pod: Pod, groups: tuple[int, ...]) -> PodWish | None:
    """Return what the scheduler reads from a pod about Reservations; None if no Reservation concerns the pod.

    Args:
        pod: The pod.
        groups: Ids of the groups of Reservations that are for the pod.
    """
    meta = pod.metadata
    if is_reserve_pod(pod):
        return PodWish(
            is_reserve=True,
            node=meta.annotations.get(keys.RESERVATION_NODE, ""),
            policy=meta.annotations.get(POLICY, ""),
        )
    ignores = meta.labels.get(keys.RESERVATION_IGNORED) == "true"
    affinity, exact = (meta.annotations.get(key, "") for key in CONCERNING)
    if not groups and not ignores and not affinity:
        return None
    return PodWish(groups=groups, ignores=ignores, affinity=affinity, exact=exact)
