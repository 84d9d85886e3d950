"""Pods that were rejected because of a claim. A change of the claim or of its class wakes them."""

from collections.abc import Collection

from koord_scheduler.domain.volumes.objects import ClaimKey


class PodsThatWait:
    """The pods that wait for changes of claims, and the pods that were woken by such a change."""

    def __init__(self) -> None:
        self._waiting: dict[ClaimKey, dict[str, None]] = {}
        self._waits_for: dict[str, set[ClaimKey]] = {}
        self._woken: dict[str, None] = {}

    @property
    def claims(self) -> Collection[ClaimKey]:
        """The claims that pods wait for."""
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
