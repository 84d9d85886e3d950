"""Changes of claims and volumes that may help waiting pods: the queueing hints of the volume plugins.

Source:
    Kubernetes 1.35, `EventsToRegister` of VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits
"""

from collections.abc import Iterable
from typing import Final

from koord_scheduler.domain.volumes.objects import ClaimKey

_MOST_KEPT: Final = 1024


class HelpedStorage:
    """The changes that may help, by what a claim must have in common with them.

    Where this instance does not lead, nobody takes the changes. So if there are more than 1024, they are forgotten, and
    every claim counts as helped.
    """

    def __init__(self) -> None:
        self._claims: set[ClaimKey] = set()
        self._classes: set[str] = set()
        self._drivers: set[str] = set()
        self._helps_all = False

    def __bool__(self) -> bool:
        """Return whether anything has changed."""
        return bool(self._helps_all or self._claims or self._classes or self._drivers)

    def claim(self, key: ClaimKey) -> None:
        """Record that a claim appeared, changed, or lost a pod that had fixed its volume or node."""
        if not self._helps_all:
            self._claims.add(key)
            self._limit()

    def storage_class(self, name: str) -> None:
        """Record that a storage class appeared or changed, or got a volume or free storage."""
        if not self._helps_all:
            self._classes.add(name)
            self._limit()

    def drivers(self, names: Iterable[str]) -> None:
        """Record that limits on a node, attached volumes or properties of some CSI drivers changed."""
        if not self._helps_all:
            self._drivers.update(names)
            self._limit()

    def may_help(self, claims: Iterable[tuple[ClaimKey, str, str]]) -> bool:
        """Return whether a change may help a pod.

        Args:
            claims: Key, storage class and CSI driver of each claim of the pod; "" for none.
        """
        return self._helps_all or any(
            key in self._claims or storage_class in self._classes or driver in self._drivers
            for key, storage_class, driver in claims
        )

    def _limit(self) -> None:
        if len(self._claims) + len(self._classes) + len(self._drivers) > _MOST_KEPT:
            self._helps_all = True
            for kept in (self._claims, self._classes, self._drivers):
                kept.clear()
