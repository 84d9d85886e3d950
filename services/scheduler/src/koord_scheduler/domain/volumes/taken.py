"""Volumes and claims that placed pods take, from their allocations."""

from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.volumes.books import VolumeBooks


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
