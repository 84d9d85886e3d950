"""What a Reservation holds of other plugins, such as CPUs or devices, and lends to its owners. An owner may hold the
same CPUs or devices as the Reservation. They count once: with the owner. While a node is checked for an owner, the rest
counts as free.

Source: scheduler-fine-grained spec, 3.9
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Generic, Protocol, TypeVar

from koord_scheduler.domain.cluster.equivalence_classes import PodClass


class Lender(Protocol):
    """A plugin whose resources a Reservation may hold besides amounts of its node, such as CPUs or devices."""

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether pods of this class request resources of the plugin."""
        ...

    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> AbstractContextManager[None]:
        """Count the resources of a Reservation that no owner uses as free inside the context, for one of its owners.
        `limits`: resources that the owner may take only from the Reservation. None for a pod that ignores Reservations:
        it is not an owner, and does not prefer what the Reservation holds.
        """
        ...

    def reservation_score(self, pod_class: PodClass, row: int, uid: str) -> int:
        """Return a score for the plugin's resources in a Reservation, at least 0; 0 if the plugin gives no score."""
        ...

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        """Return why the plugin refuses the node for pods of a class, with lent resources as free. Empty if it accepts
        it.
        """
        ...


@contextmanager
def all_lent(lenders: Sequence[Lender], row: int, uid: str, limits: frozenset[str] | None) -> Generator[None]:
    """Count the resources of a Reservation that no owner uses as free inside the context, for all these plugins.
    `limits`: resources that the owner may take only from the Reservation; None for a pod that ignores Reservations.
    """
    with ExitStack() as stack:
        for lender in lenders:
            stack.enter_context(lender.lent(row, uid, limits))
        yield


def refused_by(lenders: Sequence[Lender], pod_class: PodClass, row: int) -> tuple[str, ...]:
    """Return the reasons of the first plugin that refuses the node at position `row`; empty if none refuses it."""
    for lender in lenders:
        reasons = lender.refused(pod_class, row)
        if reasons:
            return reasons
    return ()


T = TypeVar("T")


class Rests(Generic[T]):
    """CPUs or devices of each Reservation of one node without those that its owners hold. `minus`: takes the CPUs or
    devices of a Reservation, and those of each owner. Returns the first without the second.
    """

    __slots__ = ("_held", "_minus", "_owners")

    def __init__(self, minus: Callable[[T, Iterable[T]], T]) -> None:
        self._minus = minus
        self._held: dict[str, T] = {}
        self._owners: dict[str, dict[str, T]] = {}

    def came(self, uid: str, reservation: str, held: T) -> dict[str, T]:
        """Record the CPUs or devices that a pod or a Reservation holds from now on. `reservation`: uid of the
        Reservation that it uses; its own uid if it is a Reservation; "" for none. The holder may be a pod with
        operating mode `Reservation`, which acts as one. `held`: CPUs or devices that the holder has. Result: uid ->
        what counts as held from now on, for the holder and for the Reservation that the holder uses.
        """
        if not reservation or reservation == uid:
            self._held[uid] = held
            return {uid: self._rest(uid)}
        self._owners.setdefault(reservation, {})[uid] = held
        return {reservation: self._rest(reservation), uid: held} if reservation in self._held else {uid: held}

    def left(self, uid: str, reservation: str) -> dict[str, T]:
        """Record that a pod or Reservation left the node. `reservation`: uid of the Reservation that the holder used;
        its own uid if it is a Reservation; else "". Result: uid of the Reservation that the pod used -> what the
        Reservation counts as holding now; empty if there is none.
        """
        if not reservation or reservation == uid:
            self._held.pop(uid, None)
            return {}
        owners = self._owners.get(reservation)
        if owners is None or owners.pop(uid, None) is None:
            return {}
        if not owners:
            del self._owners[reservation]
        return {reservation: self._rest(reservation)} if reservation in self._held else {}

    def held(self, uid: str) -> T | None:
        """Return all that a Reservation holds, including the part that its owners hold. None if it is not on this
        node.
        """
        return self._held.get(uid)

    def _rest(self, uid: str) -> T:
        owners = self._owners.get(uid)
        return self._minus(self._held[uid], owners.values()) if owners else self._held[uid]
