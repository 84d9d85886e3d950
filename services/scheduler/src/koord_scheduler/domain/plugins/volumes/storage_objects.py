"""How storage objects, and the volumes that allocations give to claims of placed pods, change `VolumeBooks`."""

from collections.abc import Callable
from typing import Final

from koordcore.protocol.objects import object_from_json
from koordcore.protocol.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks

_PUT: Final[dict[str, Callable[[VolumeBooks, object], None]]] = {
    "persistentvolumeclaims": lambda books, found: books.put_claim(object_from_json(found, PersistentVolumeClaim)),
    "persistentvolumes": lambda books, found: books.put_volume(object_from_json(found, PersistentVolume)),
    "storageclasses": lambda books, found: books.put_class(object_from_json(found, StorageClass)),
    "csinodes": lambda books, found: books.put_limits(object_from_json(found, CsiNode)),
    "volumeattachments": lambda books, found: books.put_attachment(object_from_json(found, VolumeAttachment)),
    "csidrivers": lambda books, found: books.put_driver(object_from_json(found, CsiDriver)),
    "csistoragecapacities": lambda books, found: books.put_capacity(object_from_json(found, CsiStorageCapacity)),
}
STORAGE_PLURALS: Final = frozenset(_PUT)
"""Plural names of the kinds."""


def put_storage(books: VolumeBooks, plural: str, document: object) -> None:
    """Add or change a storage object.

    Args:
        books: The books to change.
        plural: Plural name of its kind, one of `STORAGE_PLURALS`.
        document: The object as decoded JSON.

    Raises:
        DecodeError: A field has a wrong type.
        InvalidInput: A quantity or selector is not valid.
    """
    _PUT[plural](books, document)


def drop_storage(books: VolumeBooks, plural: str, namespace: str, name: str) -> None:
    """Forget a deleted storage object of a kind in `STORAGE_PLURALS`. `namespace` is "" for cluster-wide kinds."""
    match plural:
        case "persistentvolumeclaims":
            books.drop_claim(namespace, name)
        case "persistentvolumes":
            books.drop_volume(name)
        case "storageclasses":
            books.drop_class(name)
        case "csinodes":
            books.drop_limits(name)
        case "volumeattachments":
            books.drop_attachment(name)
        case "csidrivers":
            books.drop_driver(name)
        case _:
            books.drop_capacity(namespace, name)


class TakenVolumes:
    """Records in `VolumeBooks` the volumes that placed pods take. `NodeAccounting` calls it for such pods."""

    def __init__(self, books: VolumeBooks) -> None:
        self._books = books

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return False, because evicting a pod does not unbind its volumes."""
        return False

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Mark the volumes that the pod's allocation gives to its claims as taken."""
        if pod_info.allocation.volume_claims:
            self._books.take(row, pod_info.uid, pod_info.allocation.volume_claims)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Mark the volumes of the pod's allocation as free again."""
        if pod_info.allocation.volume_claims:
            self._books.give(row, pod_info.uid, pod_info.allocation.volume_claims)
