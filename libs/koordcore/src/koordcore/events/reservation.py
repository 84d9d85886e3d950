"""The end of a Reservation (resources of a node for certain pods only): it fails or succeeds. Writer: schedulers.

Aggregate: `reservation.<uid>`.

    customspec.reservations=<name>   the object (`CustomObjectObserved`)
    pod.<uid of the Reservation>     `PodPlaced`: it has a node and is Available; `PodReleased`: it holds no more
    node.<name>                      `NodeResourcesTaken`: its amounts, in an entry with the uid of the Reservation
    reservation.<uid>                how it failed or ended; the events of this module

A Reservation is placed like a pod, and the placement makes it Available. So there is no event for that. Its entry in
the ledger, and its placement, have an allocation whose reservation is the Reservation itself
(`Allocation.is_reservation`). A pod that takes from it has the amounts in `Allocation.reservation`.
`koordcore.state.reservations` computes phase, conditions, owners and allocated amounts from these aggregates.

Source: scheduler-fine-grained spec, 3.2, 3.3.
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="reservation")
class ReservationUnschedulable(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler found no node for a Reservation, and will try again.

    The event repeats only if the message changes.
    """

    name: str  # Name of the Reservation
    message: str  # Why no node was found, one sentence for people


@CATALOGUE.register(kind="reservation")
class ReservationSucceeded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Reservation with `allocateOnce` got its one owner, so it ends in phase Succeeded.

    Its remaining resources are released afterwards.
    """

    name: str  # Name of the Reservation
    node: str  # Node of the Reservation
    owner: str  # Uid of the pod that uses the Reservation
    available_since: str = ""  # RFC 3339 time at which the Reservation got its node; empty if it never had one
    # Resource -> amount that the Reservation held: milli-cores for cpu, whole units for everything else.
    allocatable: dict[str, int] = {}


@CATALOGUE.register(kind="reservation")
class ReservationFailed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Reservation expired, or its node was deleted, so it ends in phase Failed.

    Its resources are released afterwards. Pods that took resources from it keep them; from then on these amounts count
    on the node.
    """

    name: str  # Name of the Reservation
    node: str = ""  # Node of the Reservation; empty if it never had one
    reason: str = "Expired"  # "Expired"
    message: str = ""  # Why it failed, one sentence for people
    available_since: str = ""  # RFC 3339 time at which the Reservation got its node; empty if it never had one
    # Resource -> amount that the Reservation held: milli-cores for cpu, whole units for everything else.
    allocatable: dict[str, int] = {}


@CATALOGUE.register(kind="reservation")
class ReservationCollected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Reservation ended long ago.

    With this event, the scheduler requests the deletion of the object from the manager.
    """

    name: str


@CATALOGUE.register(kind="reservation")
class ReservationDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object of a Reservation was deleted, so folds drop the state of the Reservation."""

    name: str
