"""The book of Reservation: facts about Reservations besides their pods, which the loop folds as pods."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from koordcore.events.envelope import AggregateRef
from koordcore.protocol.objects import Node
from koordcore.protocol.reservations import PLURAL, changes_without_effect, reservation_from_json
from koordcore.values import codec
from koordcore.values.codec import array_pieces
from koordcore.values.override import override

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks
from koord_scheduler.domain.plugins.reservation.entry import NOWHERE, KnownReservation
from koord_scheduler.domain.plugins.reservation.owners import Group


class ReservationBook(Book):
    """Passes facts to `ReservationBooks`."""

    name = "Reservation"
    plurals = frozenset({PLURAL})
    kinds = frozenset({"reservation"})
    facts_type = list[KnownReservation]

    def __init__(self, cluster: Cluster) -> None:
        self.books = ReservationBooks(
            cluster.nodes,
            cluster.population,
            omits_node_labels=cluster.gates.omit_node_labels_for_reservation,
            skips_node=cluster.gates.skip_reservation_fits_node,
        )
        # Groups of Reservations with new owner rules. The fold reads pods again for them and empties it.
        self.fresh_owners: list[Group] = []
        cluster.named_by.append(self.books.owners.named)
        cluster.accounting.allocations.append(self.books)
        cluster.accounting.operating = self.books.operating

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        reservation = reservation_from_json(document)
        meta = reservation.metadata
        known = self.books.entries.get(meta.uid)
        before = None if known is None or not known.node else known.document
        warnings = () if before is None else changes_without_effect(before, reservation)
        fresh = self.books.put(reservation)
        if fresh is not None:
            self.fresh_owners.append(fresh)
        return tuple(f"Reservation {meta.name}: {warning}" for warning in warnings)

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        self.books.drop(name)
        return ()

    @override
    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        self.books.node_changed(row)

    @override
    def drop_node(self, row: int, name: str) -> None:
        self.books.node_gone(name)

    @override
    def drop_pod(self, uid: str) -> None:
        self.books.retire(uid)

    @override
    def exists(self, ref: AggregateRef) -> bool:
        return ref.id in self.books.entries

    @override
    def facts(self, under_way: Container[AggregateRef]) -> Iterator[bytes]:
        return array_pieces(
            [
                KnownReservation(
                    each.uid,
                    each.name,
                    each.phase,
                    each.ended_at,
                    each.is_consumed,
                    each.node,
                    each.said,
                    each.uid in self.books.operating,
                    each.is_collected,
                )
                for each in self.books.entries.values()
            ]
        )

    @override
    def hashed(self) -> Iterator[tuple[str, object]]:
        for uid, each in self.books.entries.items():
            yield uid, (each.name, each.phase, each.ended_at, each.is_consumed, each.node, each.is_collected)

    @override
    def restore(self, facts: bytes) -> None:
        for known in codec.decode(facts, list[KnownReservation]):
            self.books.restore(known)
        self.fresh_owners.clear()

    @override
    def restored(self, holders: Callable[[str], Mapping[str, PodInfo]]) -> None:
        # What Reservations held on deleted nodes: the event that says that they failed names it.
        for uid, entry in self.books.entries.items():
            lost = holders(entry.node).get(uid) if entry.node and entry.row == NOWHERE else None
            if lost is not None:
                entry.allocatable = lost.demand.requests
