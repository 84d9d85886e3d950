"""One Reservation as the scheduler knows it: its object, what it holds on its node, and which pods use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from koordcore.protocol.reservations import Reservation, phase_by_others
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.state.reserved_amounts import covered
from koordcore.values.allocation import ReservationUse

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import Demand, NodeColumns
from koord_scheduler.domain.plugins.reservation.fit import Held
from koord_scheduler.domain.plugins.reservation.life_cycle import Limits
from koord_scheduler.domain.plugins.reservation.matching import Terms
from koord_scheduler.domain.plugins.reservation.owners import Group

NOWHERE: Final = -1


class OwnerUse(NamedTuple):
    """Amounts that one pod, an owner, uses of a Reservation."""

    row: int  # Position of the pod's node in the node columns
    requests: Mapping[str, int]  # Resource -> amount that the pod requests
    amounts: Mapping[str, int]  # Resource -> the part of this amount that comes from the Reservation


def owner_use(row: int, pod_info: PodInfo, used: ReservationUse) -> OwnerUse:
    """Return the amounts that a pod uses of a Reservation. If another scheduler bound the pod, its annotations do not
    contain these amounts. Then they are all its requests, limited later to what the Reservation holds (see
    `Entry.changed`). A pod that was resized uses no more than it requests.
    """
    requests = pod_info.demand.requests
    return OwnerUse(row, requests, requests if pod_info.is_bound_by_others else used.within(requests).amounts)


class KnownReservation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of an `Entry` that follow neither from its object nor from the ledgers, for snapshots."""

    uid: str
    name: str
    phase: str = ""
    ended_at: float = 0.0
    is_consumed: bool = False
    node: str = ""
    said: str = ""
    is_pod: bool = False  # Whether it is a pod that acts as a Reservation
    is_collected: bool = False


@dataclass(slots=True, eq=False)
class Entry:
    """One Reservation: its object, its node, what it holds there, and the pods that use it (its owners)."""

    uid: str
    name: str
    document: Reservation | None = None  # The object; None if it is not known or was deleted
    terms: Terms | None = None  # Rules of the object about the use of the Reservation; None if `document` is None
    limits: Limits | None = None  # When the Reservation expires; None if `document` is None
    group: Group | None = None  # The Reservations that are for the same pods; None if the owner rules are invalid
    row: int = NOWHERE  # Position of the node on which the Reservation holds resources; NOWHERE if it has no node
    # Resource -> amount that the Reservation holds there.
    allocatable: Mapping[str, int] = field(default_factory=dict[str, int])
    # Uid -> use, for the pods that use the Reservation.
    owners: dict[str, OwnerUse] = field(default_factory=dict[str, OwnerUse])
    # Resource -> amount of the Reservation that its owners use; the node columns count it with the owners.
    covered: dict[str, int] = field(default_factory=dict[str, int])
    is_consumed: bool = False  # Whether the Reservation may be used only once and a pod in the log uses or used it
    phase: str = ""  # "Succeeded" or "Failed"; "" while it is neither
    ended_at: float = 0.0  # Unix seconds of its end; 0 while it has not ended
    is_collected: bool = False  # Whether the log contains the request to delete its object
    node: str = ""  # Name of the node on which the log placed it; "" for none
    placed_at: float = 0.0  # Unix seconds of its placement
    said: str = ""  # Reason why no node was found, as last published
    to_say: str = ""  # Reason why no node was found, still to be published; "" if there is nothing to publish
    _held: Held | None = None

    def is_available(self) -> bool:
        """Return whether further pods may use the Reservation now. It must hold resources on a node, must not have
        ended, and its owner rules must be valid. With `allocateOnce`, no pod may have used it yet.
        """
        terms = self.terms
        if self.row == NOWHERE or self.phase or terms is None or terms.owners is None:
            return False
        return not (terms.is_once and (self.owners or self.is_consumed))

    def phase_by_others(self) -> str:
        """Return the phase that another scheduler gave the Reservation: Available, Succeeded or Failed; "" for none.
        The log has neither placed nor ended it, but its object has a status.
        """
        return "" if self.node or self.phase or self.document is None else phase_by_others(self.document)

    def held(self) -> Held:
        """Return the resources of the Reservation and their use by its owners now. The object of the Reservation must
        be known.
        """
        assert self.terms is not None, f"Reservation {self.name} has no object"
        if self._held is None:
            held = Held(terms=self.terms, allocatable=self.allocatable)
            names = held.restricted_names() if self.terms.policy else frozenset(self.allocatable)
            allocated: dict[str, int] = {}
            for use in self.owners.values():
                for name, amount in use.requests.items():
                    if name in names:
                        allocated[name] = allocated.get(name, 0) + amount
            held.allocated, held.owners = allocated, len(self.owners)
            self._held = held
        return self._held

    def changed(self) -> dict[str, int]:
        """Discard derived values after a change of the Reservation or its owners. Result: resource -> amount of the
        Reservation that its owners use now.
        """
        self._held = None
        if self.row == NOWHERE:
            return {}
        return covered(self.allocatable, (use.amounts for use in self.owners.values() if use.row == self.row))

    def unused(self) -> Mapping[str, int]:
        """Return resource -> amount that the Reservation holds and no owner uses."""
        if not self.covered:
            return self.allocatable
        return {name: amount - self.covered.get(name, 0) for name, amount in self.allocatable.items()}


def change_of(nodes: NodeColumns, before: Mapping[str, int], after: Mapping[str, int]) -> Demand:
    """Return the change of a node's requested amounts if owners use `after` instead of `before` of a Reservation.
    `before`: resource -> amount of the Reservation that its owners used. `after`: resource -> amount of the Reservation
    that its owners use now.
    """
    changes = {
        name: before.get(name, 0) - after.get(name, 0)
        for name in {**before, **after}
        if before.get(name, 0) != after.get(name, 0)
    }
    return nodes.change(changes, (changes.get(CPU, 0), changes.get(MEMORY, 0)))
