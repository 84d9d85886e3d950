"""The kinds of storage objects that placement reads, and how each changes `VolumeBooks`."""

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

from koord_scheduler.domain.volumes.books import VolumeBooks

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
