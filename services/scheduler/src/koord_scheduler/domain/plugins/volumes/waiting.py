"""Pods that were rejected because of a claim, and changes of claims and volumes that may help them (queueing hints).

Source: Kubernetes 1.35, `EventsToRegister` of VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits
"""

from collections.abc import Collection, Iterable
from typing import Final

from koord_scheduler.domain.plugins.volumes.objects import ClaimKey


class PodsThatWait:
    """The pods that wait for changes of claims, and the pods that were woken by such a change."""

    def __init__(self) -> None:
        self._waiting: dict[ClaimKey, dict[str, None]] = {}
        self._waits_for: dict[str, set[ClaimKey]] = {}
        self._woken: dict[str, None] = {}

    @property
    def claims(self) -> Collection[ClaimKey]:
        return self._waiting.keys()

    def wait(self, key: ClaimKey, uid: str) -> None:
        """Register the pod with this uid, so that a change of the claim or its storage class wakes it."""
        self._waiting.setdefault(key, {})[uid] = None
        self._waits_for.setdefault(uid, set()).add(key)

    def claim_changed(self, key: ClaimKey) -> None:
        """Wake the pods that wait for a claim: the next `take_woken` returns them, and they wait for it no longer."""
        self._woken.update(self._waiting.pop(key, {}))

    def wait_no_longer(self, uid: str) -> None:
        """Remove a deleted pod from the pods that wait. No-op if it did not wait."""
        for key in self._waits_for.pop(uid, ()):
            waiting = self._waiting.get(key, {})
            waiting.pop(uid, None)
            if not waiting:
                self._waiting.pop(key, None)

    def take_woken(self) -> list[str]:
        """Return the uids of the pods whose claims have changed since the last call, and forget them."""
        woken = list(self._woken)
        self._woken.clear()
        return woken


_MOST_KEPT: Final = 1024


class HelpedStorage:
    """The changes that may help, by what a claim must have in common with them. Where this instance does not lead,
    nobody takes the changes. So if there are more than 1024, they are forgotten, and every claim counts as helped.
    """

    def __init__(self) -> None:
        self._claims: set[ClaimKey] = set()
        self._classes: set[str] = set()
        self._drivers: set[str] = set()
        self._helps_all = False

    def __bool__(self) -> bool:
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
        """Return whether a change may help a pod. `claims`: key, storage class and CSI driver of each claim of the pod;
        "" for none.
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
