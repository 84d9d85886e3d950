"""The books of the built-in features. With `registry`, the only modules that name all of them. The loop reads the books
of features that the cycle itself knows: gangs, quotas, Reservations, volumes, hardware.
"""

from typing import TypeVar

from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs, ElasticQuotaArgs
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.device.book import DeviceBook
from koord_scheduler.domain.plugins.gang.book import GangBook
from koord_scheduler.domain.plugins.numa.book import NumaBook
from koord_scheduler.domain.plugins.quota.book import QuotaBook
from koord_scheduler.domain.plugins.reservation.book import ReservationBook
from koord_scheduler.domain.plugins.volumes.book import VolumeBook

_Book = TypeVar("_Book", bound=Book)


class Books:
    """The books of one cluster by feature, and what is asked of them most."""

    def __init__(
        self,
        device: DeviceBook,
        numa: NumaBook,
        reservation: ReservationBook,
        volume: VolumeBook,
        gang: GangBook,
        quota: QuotaBook,
    ) -> None:
        self.gang = gang
        self.quota = quota
        self.reservation = reservation
        self.devices = device.inventories
        self.numa = numa.books
        self.reservations = reservation.books
        self.volumes = volume.books
        self.gangs = gang.cache
        self.quotas = quota.quotas


def make_books(cluster: Cluster, quota: ElasticQuotaArgs | None = None, gang: CoschedulingArgs | None = None) -> Books:
    """Make the book of each feature for a new cluster. In this order they learn of nodes and pods."""
    for book in (
        DeviceBook(cluster),
        NumaBook(cluster),
        ReservationBook(cluster),
        VolumeBook(cluster),
        GangBook(cluster, gang),
        QuotaBook(cluster, quota),
    ):
        cluster.add(book)
    return books_of(cluster)


def books_of(cluster: Cluster) -> Books:
    """Return the books that `make_books` has made."""
    return Books(
        _book(cluster, DeviceBook),
        _book(cluster, NumaBook),
        _book(cluster, ReservationBook),
        _book(cluster, VolumeBook),
        _book(cluster, GangBook),
        _book(cluster, QuotaBook),
    )


def _book(cluster: Cluster, kind: type[_Book]) -> _Book:
    book = cluster.books[kind.name]
    assert isinstance(book, kind)
    return book
