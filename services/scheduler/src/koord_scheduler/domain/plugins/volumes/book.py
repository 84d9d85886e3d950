"""The book of the volume plugins: how storage objects, and the volumes that placed pods take, change `VolumeBooks`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from koordcore.protocol.objects import Pod, object_from_json
from koordcore.protocol.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    has_ephemeral_claims,
)
from koordcore.values.override import override

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
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
_DROP: Final[dict[str, Callable[[VolumeBooks, str, str], None]]] = {
    "persistentvolumeclaims": lambda books, namespace, name: books.drop_claim(namespace, name),
    "persistentvolumes": lambda books, _, name: books.drop_volume(name),
    "storageclasses": lambda books, _, name: books.drop_class(name),
    "csinodes": lambda books, _, name: books.drop_limits(name),
    "volumeattachments": lambda books, _, name: books.drop_attachment(name),
    "csidrivers": lambda books, _, name: books.drop_driver(name),
    "csistoragecapacities": lambda books, namespace, name: books.drop_capacity(namespace, name),
}


class VolumeBook(Book):
    """Passes facts to `VolumeBooks`. Everything in it follows from objects and allocations."""

    name = "VolumeBinding"
    plurals = frozenset(_PUT)

    def __init__(self, cluster: Cluster) -> None:
        self.books = VolumeBooks(cluster.nodes)
        self._cluster = cluster
        cluster.pod_classes.readers.append(self.books)
        cluster.named_by.append(_name_of_claims)
        cluster.accounting.followers.append(self.books)
        cluster.accounting.allocations.append(_TakenVolumes(self.books))

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        _PUT[plural](self.books, document)
        self._cluster.activated(self.books.waiting.take_woken())
        return ()

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        _DROP[plural](self.books, namespace, name)
        self._cluster.activated(self.books.waiting.take_woken())
        return ()

    @override
    def drop_pod(self, uid: str) -> None:
        self.books.waiting.wait_no_longer(uid)


def _name_of_claims(pod: Pod) -> tuple[Hashable, ...]:
    """The claims of ephemeral volumes have names that begin with that of the pod."""
    return (pod.metadata.name,) if has_ephemeral_claims(pod) else ()


class _TakenVolumes:
    """Records in `VolumeBooks` the volumes that placed pods take. `NodeAccounting` calls it for such pods."""

    def __init__(self, books: VolumeBooks) -> None:
        self._books = books

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return False, because evicting a pod does not unbind its volumes."""
        return False

    def took(self, row: int, pod_info: PodInfo) -> None:
        if pod_info.allocation.volume_claims:
            self._books.take(row, pod_info.uid, pod_info.allocation.volume_claims)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        if pod_info.allocation.volume_claims:
            self._books.give(row, pod_info.uid, pod_info.allocation.volume_claims)
