"""Collect the uids of changed pods and workloads for one reader, which looks at them now and then."""

from collections.abc import Iterable
from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.nodestate import PodsStarted, PodsStopped

MOST: Final = 50_000
"""Most uids that are collected. An instance that does not lead has no reader."""
_KINDS: Final = frozenset({"podspec", "pod", "workloadspec"})


class ChangedUids:
    """The uids that changed since the reader last took them.

    Nothing is collected before the first `take`, and after too many uids until the next one.
    """

    def __init__(self) -> None:
        self._uids: set[str] | None = None

    def fold(self, ref: AggregateRef, event: Event | None) -> None:
        """Add the pods whose object, node or processes a fact changes, or the workload that it changes."""
        if ref.kind in _KINDS:
            self.add((ref.id,))
        elif isinstance(event, PodsStarted | PodsStopped):
            self.add(event.pods)

    def add(self, uids: Iterable[str]) -> None:
        if self._uids is not None:
            self._uids.update(uids)
            if len(self._uids) > MOST:
                self._uids = None

    def take(self) -> set[str] | None:
        """Return and forget the collected uids, and begin to collect. None if any object may have changed."""
        uids, self._uids = self._uids, set()
        return uids

    def stop(self) -> None:
        """Forget the collected uids, and collect nothing until the next `take`, which returns None."""
        self._uids = None
