"""The numbers about Reservations that the metrics page shows.

Source: scheduler-fine-grained spec, 3.13.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from koordcore.protocol.reservation_status import AVAILABLE, FAILED, PENDING, SUCCEEDED
from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.reservation.books import ReservationBooks
from koord_scheduler.domain.reservation.entry import Entry

PHASES: Final = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_GIBIBYTE: Final = 1 << 30


class ResourceGauge(NamedTuple):
    """One value of the metrics about a Reservation's resources.

    Attributes:
        type: "allocatable", "allocated" or "utilization".
        name: Name of the Reservation.
        resource: Name of the resource.
        unit: "core" for cpu, "Gi" for memory, "ratio" for a utilization, else "".
        value: The amount in this unit.
    """

    type: str
    name: str
    resource: str
    unit: str
    value: float


def phase_of(entry: Entry) -> str:
    """Return the phase of a Reservation by the facts of the log: Pending, Available, Succeeded or Failed."""
    return entry.phase or (AVAILABLE if entry.node else PENDING)


def known_reservations(books: ReservationBooks) -> Iterator[Entry]:
    """Yield the Reservations whose objects exist, by name."""
    yield from sorted((each for each in books.entries.values() if each.terms is not None), key=lambda each: each.name)


def resource_gauges(books: ReservationBooks) -> Iterator[ResourceGauge]:
    """Yield the gauges of each Reservation on a node: amounts that it holds, its owners' requests, and their ratio."""
    for entry in known_reservations(books):
        if entry.allocatable:
            yield from _of_entry(entry.name, entry.allocatable, entry.held().allocated)


def _of_entry(name: str, allocatable: Mapping[str, int], allocated: Mapping[str, int]) -> Iterator[ResourceGauge]:
    for resource, amount in sorted(allocatable.items()):
        used = allocated.get(resource, 0)
        unit, divisor = {CPU: ("core", 1000), MEMORY: ("Gi", _GIBIBYTE)}.get(resource, ("", 1))
        yield ResourceGauge("allocatable", name, resource, unit, amount / divisor)
        yield ResourceGauge("allocated", name, resource, unit, used / divisor)
        if amount > 0:
            yield ResourceGauge("utilization", name, resource, "ratio", used / amount)
