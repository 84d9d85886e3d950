"""Matching: whether a pod may use a Reservation, and if not, which rule forbids it.

Source: scheduler-fine-grained spec, 3.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, Taint
from koordcore.protocol.placement import NO_SCHEDULE, first_untolerated, term_matches_one
from koordcore.protocol.reservations import (
    Reservation,
    ReservationAffinity,
    inner_reserved,
    parse_exact_match,
    parse_reservation_affinity,
    restricted_options,
)

from koord_scheduler.domain.plugins.reservation.owners import Owners, compile_owners

_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_INT64: Final = 1 << 63


class Match(StrEnum):
    """The result of `match`: MATCHED or IGNORED if a pod may use a Reservation, or the first rule that forbids it.
    IGNORED: the pod has the label `scheduling.koordinator.sh/reservation-ignored`. It uses free room of Reservations
    without becoming an owner.
    """

    MATCHED = "matched"
    IGNORED = "ignored"
    OWNER_UNMATCHED = "owner_unmatched"
    NAME_UNMATCHED = "name_unmatched"
    UNSCHEDULABLE = "unschedulable"
    TAINT_UNTOLERATED = "taint_untolerated"
    AFFINITY_UNMATCHED = "affinity_unmatched"
    NOT_EXACT_MATCHED = "not_exact_matched"
    NOT_MATCHABLE = "not_matchable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Rules in the object of a Reservation: which pods may use it, and how."""

    name: str
    labels: Mapping[str, str]  # Its labels, for the reservation affinity of pods
    owners: Owners | None  # Owner rules, which select the pods that may use it; None if a selector is invalid
    is_once: bool = True  # Whether only one pod may use it
    policy: str = ""  # Allocate policy: "", "Aligned" or "Restricted"
    is_closed: bool = False  # Whether it takes no new owners, because it is unschedulable or being deleted
    taints: tuple[Taint, ...] = ()  # Taints that pods must tolerate
    # Value of the label `scheduling.koordinator.sh/reservation-order`; None if absent, zero or not a number.
    order: int | None = None
    inner: Mapping[str, int]  # Resource -> amount of the Reservation that owners may not use
    # Resources to which policy Restricted is limited; an empty set stands for all that it holds.
    restricted: frozenset[str] = frozenset()


def terms_of(reservation: Reservation) -> Terms:
    """Return the rules in a Reservation's object: which pods may use it, and how."""
    meta, spec = reservation.metadata, reservation.spec
    return Terms(
        name=meta.name,
        labels=meta.labels,
        owners=compile_owners(spec.owners),
        is_once=spec.allocate_once,
        policy=spec.allocate_policy,
        is_closed=spec.unschedulable or meta.deletion_timestamp is not None,
        taints=tuple(spec.taints),
        order=order_of(meta.labels),
        inner=inner_reserved(meta.annotations),
        restricted=restricted_options(meta.annotations),
    )


def order_of(labels: Mapping[str, str]) -> int | None:
    """Return the value of a Reservation's order label; None if it is absent, zero or not a 64-bit integer."""
    try:
        order = int(labels.get(keys.RESERVATION_ORDER, ""))
    except ValueError:
        return None
    return order if order and -_INT64 <= order < _INT64 else None


@dataclass(frozen=True, slots=True)
class Wish:
    """Wishes of one pod about Reservations, from its labels and annotations."""

    ignores: bool = False  # Whether the pod uses free room of Reservations without becoming an owner
    # The Reservations of which the pod must use one; None if it need not use any.
    affinity: ReservationAffinity | None = None
    # Names of resources of which the pod must request exactly as much as the Reservation holds.
    exact: tuple[str, ...] = ()


def wish_of(pod: Pod) -> Wish:
    """Return the wishes about Reservations in the labels and annotations of a pod. Raises InvalidInput: an annotation
    is not valid JSON, or has fields of another type than expected.
    """
    meta = pod.metadata
    return Wish(
        ignores=meta.labels.get(keys.RESERVATION_IGNORED) == "true",
        affinity=parse_reservation_affinity(meta.annotations),
        exact=parse_exact_match(meta.annotations),
    )


def match(
    wish: Wish,
    terms: Terms,
    *,
    is_owner: bool,
    requests: Mapping[str, int],
    allocatable: Mapping[str, int],
    node_labels: Mapping[str, str],
) -> Match:
    """Return whether a pod may use an available Reservation, or the first rule that forbids it. If the pod's
    reservation affinity names a Reservation, only owner rule, name and exact amounts are compared. Without a
    reservation affinity, taints of the Reservation are not compared.

    Args:
        is_owner: Whether an owner rule of the Reservation matches the pod.
        requests: Resource -> amount that the pod requests, in milli-cores and whole units.
        allocatable: What the Reservation holds, in the same units.
        node_labels: Labels of the Reservation's node, which the pod's reservation affinity may require; empty to leave
            them out.
    """
    if wish.ignores:
        return Match.IGNORED
    if not is_owner:
        return Match.OWNER_UNMATCHED
    affinity = wish.affinity
    if affinity is not None and affinity.name:
        if affinity.name != terms.name:
            return Match.NAME_UNMATCHED
        return Match.MATCHED if _is_exact(wish.exact, requests, allocatable) else Match.NOT_EXACT_MATCHED
    tolerations = () if affinity is None else affinity.tolerations
    if terms.is_closed and first_untolerated((_UNSCHEDULABLE,), tolerations) is not None:
        return Match.UNSCHEDULABLE
    if affinity is not None:
        if first_untolerated(terms.taints, tolerations) is not None:
            return Match.TAINT_UNTOLERATED
        if not _has_affinity(affinity, terms, node_labels):
            return Match.AFFINITY_UNMATCHED
    return Match.MATCHED if _is_exact(wish.exact, requests, allocatable) else Match.NOT_EXACT_MATCHED


def untolerated(wish: Wish, terms: Terms) -> Taint | None:
    """Return the first taint of the Reservation that the pod does not tolerate, or None. The tolerations are those in
    the pod's reservation affinity, not those of its spec.
    """
    tolerations = () if wish.affinity is None else wish.affinity.tolerations
    index = first_untolerated(terms.taints, tolerations)
    return None if index is None else terms.taints[index]


def _has_affinity(affinity: ReservationAffinity, terms: Terms, node_labels: Mapping[str, str]) -> bool:
    labels = {**node_labels, **terms.labels}
    if any(labels.get(key) != value for key, value in affinity.selector.items()):
        return False
    return affinity.terms is None or any(term_matches_one(term, labels, terms.name) for term in affinity.terms)


def _is_exact(names: tuple[str, ...], requests: Mapping[str, int], allocatable: Mapping[str, int]) -> bool:
    return not names or all(requests.get(name) == allocatable.get(name) for name in names)
