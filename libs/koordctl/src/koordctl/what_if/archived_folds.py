"""The folds whose snapshots the archive keeps: the cluster's state, which the manager folds, and the scheduler's."""

from collections.abc import Iterator, Mapping

from koord_scheduler.domain.loop.folding.log import fold, skip
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.comparing import facts_digest
from koord_scheduler.domain.replay.snapshot import Picture, schema_fingerprint
from koordcore.bus.folds.foldable import Foldable, FoldSource
from koordcore.events.envelope import StoredEvent
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint as cluster_fingerprint

from koordctl.access.folding import CLUSTER_FOLD
from koordctl.documents.scheduler_config import scheduler_configuration
from koordctl.what_if.scheduler import FOLD, empty_state, state_of


class SchedulerFold:
    """The state of a scheduler as a fold of the log.

    Args:
        state: The state, empty or of a snapshot.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def apply(self, stored: StoredEvent) -> None:
        """Apply one event of the log.

        Raises:
            UnreadableEvent: The event cannot be decoded. The state is unchanged.
        """
        fold(self._state, stored)

    def skip(self, seq: int) -> None:
        """Set the position to `seq` without applying the event."""
        skip(self._state, seq)

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as bytes in pieces. Apply no event before all of them are consumed."""
        return Picture(self._state).pieces()

    def digest(self) -> str:
        """Return a digest of what the state has of the log, see `facts_digest`."""
        return facts_digest(self._state)


def archived_folds() -> Mapping[str, FoldSource[Foldable]]:
    """Return name -> fold. The names are those under which manager and scheduler save their snapshots."""
    scheduler = scheduler_source()
    return {
        CLUSTER_FOLD: FoldSource(ClusterState, ClusterState.restore, cluster_fingerprint()),
        FOLD: FoldSource(scheduler.fresh, scheduler.restore, scheduler.fingerprint),
    }


def scheduler_source() -> FoldSource[SchedulerFold]:
    """Return the fold of a scheduler with the default configuration, in which every built-in plugin with a state runs.

    Its snapshots have the name `koordctl.what_if.scheduler.FOLD`.
    """
    configuration = scheduler_configuration(None)

    def restored(data: bytes) -> SchedulerFold:
        return SchedulerFold(state_of(configuration, data))

    return FoldSource(
        lambda: SchedulerFold(empty_state(configuration)),
        restored,
        schema_fingerprint(empty_state(configuration).frameworks.folding),
    )
