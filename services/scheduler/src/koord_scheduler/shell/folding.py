"""The scheduler's state as the fold runner of `koordcore.bus.folds.runner` wants it.

The state object stays the same for the life of the process: decider and publisher hold it. If the log has forgotten
what a running fold needs, the process ends and the next one begins at a snapshot.
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.envelope import StoredEvent
from koordcore.events.objects.custom import plural_of
from koordcore.service.clock import SystemClock

from koord_scheduler.domain.folding.log import fold, skip
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.shell.observing import SchedulerMetrics

_HOST: Final = SystemClock()


class StateFold:
    """One state, driven by a runner. metrics: told what quotas cost."""

    def __init__(self, state: SchedulerState, metrics: SchedulerMetrics) -> None:
        self._state = state
        self._pictures: list[Picture] = []
        self._updated = metrics.quota_seconds.labels("UpdateQuota")
        self._deleted = metrics.quota_seconds.labels("DeleteQuota")

    def apply(self, stored: StoredEvent) -> None:
        """Fold one event; raises UnreadableEvent with the state unchanged."""
        for picture in self._pictures:
            picture.keep(stored.ref)
        if stored.ref.kind != "customspec" or plural_of(stored.ref.id) != "elasticquotas":
            fold(self._state, stored)
            return
        began = _HOST.monotonic()
        fold(self._state, stored)
        is_gone = stored.ref.id not in self._state.mirror.objects
        (self._deleted if is_gone else self._updated).observe(_HOST.monotonic() - began)

    def skip(self, seq: int) -> None:
        """Pass over one event."""
        skip(self._state, seq)

    def snapshot(self) -> Iterator[bytes]:
        """Return the facts in the state as it is now, as bytes in pieces."""
        picture = Picture(self._state)
        self._pictures.append(picture)
        return self._taken(picture)

    def _taken(self, picture: Picture) -> Iterator[bytes]:
        try:
            yield from picture.pieces()
        finally:
            self._pictures.remove(picture)

    def fresh(self) -> "StateFold":
        """Return the same fold; its state has to be empty."""
        assert self._state.log.position == 0, "a running fold cannot begin again"
        return self

    def restore(self, data: bytes) -> "StateFold":
        """Return the same fold over a snapshot's facts; its state has to be empty."""
        load_state(self._state, data)
        return self
