"""What the Reservations of one node hold of CPUs or devices besides what their owners hold.

An owner of a Reservation may hold the same CPUs or devices as the Reservation. They count once: with the owner.

Source: scheduler-fine-grained spec, 3.9.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Rests(Generic[T]):
    """For each Reservation of one node: what it holds (CPUs or devices) without what its owners hold of it.

    Args:
        minus: Takes what a Reservation holds, and what each owner holds. Returns the first without the second.
    """

    __slots__ = ("_held", "_minus", "_owners")

    def __init__(self, minus: Callable[[T, Iterable[T]], T]) -> None:
        self._minus = minus
        self._held: dict[str, T] = {}
        self._owners: dict[str, dict[str, T]] = {}

    def came(self, uid: str, reservation: str, held: T) -> dict[str, T]:
        """Record what a pod or Reservation holds.

        Args:
            uid: Uid of the holder.
            reservation: Uid of the Reservation that it uses; its own uid if it is a Reservation; empty for none. Others
                may use a pod without a Reservation, if it has the operating mode Reservation.
            held: What it holds.

        Returns:
            Uid -> what counts as held from now on, for the holder and for the Reservation that it uses.
        """
        if not reservation or reservation == uid:
            self._held[uid] = held
            return {uid: self._rest(uid)}
        self._owners.setdefault(reservation, {})[uid] = held
        return {reservation: self._rest(reservation), uid: held} if reservation in self._held else {uid: held}

    def left(self, uid: str, reservation: str) -> dict[str, T]:
        """Record that a pod or Reservation left the node.

        Args:
            uid: Uid of the holder.
            reservation: As for `came`.

        Returns:
            Uid of the Reservation that it used -> what counts as held from now on; empty if it used none.
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
        """Return what a Reservation holds, with what its owners hold of it; None if it holds nothing on the node."""
        return self._held.get(uid)

    def _rest(self, uid: str) -> T:
        owners = self._owners.get(uid)
        return self._minus(self._held[uid], owners.values()) if owners else self._held[uid]
