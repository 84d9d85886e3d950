"""HTTP pages of the scheduler about Reservations.

Source: scheduler-fine-grained spec, 3.13.
"""

from collections.abc import Mapping

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.config.args.fine_grained import ReservationSelectorIndex
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer
from koord_scheduler.domain.reservation.books import ReservationBooks
from koord_scheduler.domain.reservation.entry import Entry


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
