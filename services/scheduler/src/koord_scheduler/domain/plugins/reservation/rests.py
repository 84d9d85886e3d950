"""CPUs or devices that a Reservation holds and no owner uses yet, for all Reservations of one node.

An owner of a Reservation may hold the same CPUs or devices as the Reservation. They count once: with the owner.

Source: scheduler-fine-grained spec, 3.9.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Rests(Generic[T]):
    """CPUs or devices of each Reservation of one node without those that its owners hold.

    Args:
        minus: Takes the CPUs or devices of a Reservation, and those of each owner. Returns the first without the
            second.
    """

    __slots__ = ("_held", "_minus", "_owners")

    def __init__(self, minus: Callable[[T, Iterable[T]], T]) -> None:
        self._minus = minus
        self._held: dict[str, T] = {}
        self._owners: dict[str, dict[str, T]] = {}

    def came(self, uid: str, reservation: str, held: T) -> dict[str, T]:
        """Record the CPUs or devices that a pod or a Reservation holds from now on.

        Args:
            reservation: Uid of the Reservation that it uses; its own uid if it is a Reservation; "" for none. The
                holder may be a pod with operating mode `Reservation`, which acts as one.
            held: CPUs or devices that the holder has.

        Returns:
            Uid -> what counts as held from now on, for the holder and for the Reservation that the holder uses.
        """
        if not reservation or reservation == uid:
            self._held[uid] = held
            return {uid: self._rest(uid)}
        self._owners.setdefault(reservation, {})[uid] = held
        return {reservation: self._rest(reservation), uid: held} if reservation in self._held else {uid: held}

    def left(self, uid: str, reservation: str) -> dict[str, T]:
        """Record that a pod or Reservation left the node.

        Args:
            reservation: Uid of the Reservation that the holder used; its own uid if it is a Reservation; else "".

        Returns:
            Uid of the Reservation that the pod used -> what the Reservation counts as holding now; empty if there is
            none.
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
        """Return all that a Reservation holds, including the part that its owners hold.

        None if it is not on this node.
        """
        return self._held.get(uid)

    def _rest(self, uid: str) -> T:
        owners = self._owners.get(uid)
        return self._minus(self._held[uid], owners.values()) if owners else self._held[uid]
