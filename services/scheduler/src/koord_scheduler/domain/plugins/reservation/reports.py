"""HTTP pages and metrics about Reservations.

Source: scheduler-fine-grained spec, 3.13
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from koordcore.protocol.reservation_status import AVAILABLE, FAILED, PENDING, SUCCEEDED
from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.config.koordinator_args import ReservationSelectorIndex
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks
from koord_scheduler.domain.plugins.reservation.entry import Entry


def reservation_pages(
    nodes: NodeColumns, books: ReservationBooks, index: ReservationSelectorIndex
) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about Reservations: path below `/apis/v1/plugins/Reservation/` -> function that answers."""

    def of_node(asked: Mapping[str, str]) -> object:
        row = nodes.row(asked["node"])
        if row is None:
            return None
        return {"items": [_described(entry) for entry in books.on_row(row).values()]}

    def selector_index(_: Mapping[str, str]) -> object:
        found: dict[str, set[str]] = {}
        for row, there in books.rows_in_use().items() if index.enabled else ():
            for entry in there.values():
                for key in entry.terms.labels if entry.terms is not None else ():
                    if index.has(key):
                        found.setdefault(key, set()).add(nodes.names[row])
        return {key: sorted(names) for key, names in sorted(found.items())}

    return {"nodeReservations/{node}": of_node, "reservationSelectorIndex": selector_index}


def _described(entry: Entry) -> object:
    return {
        "name": entry.name,
        "uid": entry.uid,
        "available": entry.is_available(),
        "allocatable": dict(entry.allocatable),
        "allocated": dict(entry.held().allocated) if entry.terms is not None else {},
        "unused": entry.unused(),
        "owners": {uid: dict(use.amounts) for uid, use in sorted(entry.owners.items())},
    }


PHASES: Final = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_GIBIBYTE: Final = 1 << 30


class ResourceGauge(NamedTuple):
    type: str  # "allocatable", "allocated" or "utilization"
    name: str
    resource: str
    unit: str  # "core" for cpu, "Gi" for memory, "ratio" for a utilization, else ""
    value: float  # The amount in this unit


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
