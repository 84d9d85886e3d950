"""Amounts that pods take from Reservations. On the node they count once: for the pod, and not for the Reservation.

    requested of a node = sum of the pods + sum of the unused rests of its Reservations
                        = sum of all entries of its ledger - `taken_from_reservations`

Source: scheduler-fine-grained spec, 3.5 (restoring), 3.6.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from koordcore.values.allocation import Allocation, is_reservation


class Entry(Protocol):
    """An entry in the ledger of a node: a pod or a Reservation."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Resource -> amount that the pod or Reservation holds: milli-cores for cpu, else whole units."""
        ...

    @property
    def allocation(self) -> Allocation:
        """What the pod or Reservation holds besides its requests. For a pod, this includes the amounts that it takes
        from a Reservation.
        """
        ...


def covered(held: Mapping[str, int], taken: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return resource -> amount of a Reservation that pods use: the sum of the taken amounts, at most what it holds.
    `held`: resource -> amount that the Reservation holds. `taken`: For each pod, resource -> amount that it takes from
    the Reservation.
    """
    total: dict[str, int] = {}
    for amounts in taken:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return {name: min(amount, held[name]) for name, amount in total.items() if min(amount, held.get(name, 0)) > 0}


def taken_from_reservations(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Return resource -> amount that pods take from Reservations on one node, summed over all these Reservations.
    Amounts from a Reservation that is not in the ledger do not count. `entries`: uid -> entry of the node's ledger.
    """
    taken: dict[str, list[Mapping[str, int]]] = {}
    for uid, entry in entries.items():
        used = entry.allocation.reservation
        if used is not None and used.uid in entries and not is_reservation(uid, entry.allocation):
            taken.setdefault(used.uid, []).append(used.amounts)
    total: dict[str, int] = {}
    for uid, amounts in taken.items():
        for name, amount in covered(entries[uid].requests, amounts).items():
            total[name] = total.get(name, 0) + amount
    return total
