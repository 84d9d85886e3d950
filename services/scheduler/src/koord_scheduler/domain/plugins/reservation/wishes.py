"""Properties of pods that concern Reservations. Pods with equal values share cached results."""

from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations import Reservation, is_reserve_pod

from koord_scheduler.domain.plugins.reservation.fit import RESTRICTED
from koord_scheduler.domain.plugins.reservation.matching import Terms

ASPECT: Final = "Reservation"
"""Name of the plugin, under which pod classes keep what it reads of pods."""
CLUSTER: Final = "Cluster"
"""The mode of pre-allocation in which a label chooses the pods, and not the owner rules."""
POLICY: Final = "internal.scheduling.koordinator.sh/reservation-allocate-policy"
"""Annotation of pods that stand for Reservations: the allocate policy. It exists only in the scheduler."""
CONCERNING: Final = (keys.RESERVATION_AFFINITY, keys.EXACT_MATCH_RESERVATION)


@dataclass(frozen=True, slots=True)
class PreAllocating:
    """Rules of a Reservation with `preAllocation` about the running pods whose place it takes."""

    name: str
    owners: bytes  # Its owner rules as bytes. Reservations with different rules are different classes of pods.
    is_restricted: bool  # Whether its policy is Restricted
    in_cluster_mode: bool  # Whether a label chooses the pods, and not its owner rules
    takes_many: bool  # Whether it may take the place of several pods
    is_required: bool  # Whether it must not be placed without taking the place of a pod


def pre_allocating(reservation: Reservation, terms: Terms) -> PreAllocating | None:
    """Return the rules of a Reservation about the running pods whose place it takes; None without `preAllocation`."""
    spec = reservation.spec
    if not spec.pre_allocation:
        return None
    return PreAllocating(
        name=reservation.metadata.name,
        owners=b"" if terms.owners is None else terms.owners.key,
        is_restricted=spec.allocate_policy == RESTRICTED,
        in_cluster_mode=spec.pre_allocation_policy.mode == CLUSTER,
        takes_many=spec.pre_allocation_policy.enable_multiple,
        is_required=reservation.metadata.labels.get(keys.PRE_ALLOCATION_REQUIRED) == "true",
    )


@dataclass(frozen=True, slots=True)
class PodWish:
    """The properties of a pod that concern Reservations. Pods with equal values share cached results."""

    groups: tuple[int, ...] = ()  # Ids of the groups of Reservations that are for the pod
    ignores: bool = False  # Whether the pod uses free room of Reservations without becoming an owner
    affinity: str = ""  # Text of the annotation `scheduling.koordinator.sh/reservation-affinity`
    exact: str = ""  # Text of the annotation `scheduling.koordinator.sh/exact-match-reservation`
    is_reserve: bool = False  # Whether the pod is a reserve pod: it stands for a Reservation itself
    node: str = ""  # Node that the template of the Reservation names; "": any
    policy: str = ""  # Allocate policy of the Reservation, if the pod is a reserve pod
    # If the pod is a reserve pod, the rules about running pods whose place the Reservation takes; None if it takes no
    # pod's place.
    pre: PreAllocating | None = None


def pod_wish(pod: Pod, groups: tuple[int, ...], pre: PreAllocating | None = None) -> PodWish | None:
    """Return the properties of a pod that concern Reservations; None if no Reservation concerns the pod. `groups`: ids
    of the groups of Reservations that are for the pod. `pre`: if the pod is a reserve pod, the rules about running pods
    whose place the Reservation takes.
    """
    meta = pod.metadata
    if is_reserve_pod(pod):
        return PodWish(
            is_reserve=True,
            node=meta.annotations.get(keys.RESERVATION_NODE, ""),
            policy=meta.annotations.get(POLICY, ""),
            pre=pre,
        )
    ignores = meta.labels.get(keys.RESERVATION_IGNORED) == "true"
    affinity, exact = (meta.annotations.get(key, "") for key in CONCERNING)
    if not groups and not ignores and not affinity:
        return None
    return PodWish(groups=groups, ignores=ignores, affinity=affinity, exact=exact)
