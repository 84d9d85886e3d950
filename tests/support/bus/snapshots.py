"""The snapshots that services would have saved at a position of a recorded log."""

from collections.abc import Sequence

from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.replay.snapshot import Picture
from koord_scheduler.domain.replay.snapshot import schema_fingerprint as scheduler_fingerprint
from koordcore.events.envelope import StoredEvent
from koordcore.ports.snapshots import Snapshot, state_digest
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from koordctl.access.folding import CLUSTER_FOLD
from koordctl.replay.scheduler_rerun import FOLD, empty_state


def of_the_cluster(events: Sequence[StoredEvent], position: int) -> Snapshot:
    """What a manager saves."""
    state = ClusterState()
    for stored in events[:position]:
        state.apply(stored)
    return _snapshot(CLUSTER_FOLD, position, tuple(state.snapshot()), schema_fingerprint())


def of_a_scheduler(configuration: EffectiveConfiguration, events: Sequence[StoredEvent], position: int) -> Snapshot:
    """What a scheduler of this configuration saves."""
    state = empty_state(configuration)
    for stored in events[:position]:
        fold(state, stored)
    fingerprint = scheduler_fingerprint(state.cluster, state.frameworks.folding)
    return _snapshot(FOLD, position, tuple(Picture(state).pieces()), fingerprint)


def _snapshot(fold_name: str, position: int, pieces: tuple[bytes, ...], fingerprint: str) -> Snapshot:
    return Snapshot(
        fold=fold_name,
        seq=position,
        code_version="",
        schema_fingerprint=fingerprint,
        taken_at="",
        state=pieces,
        digest=state_digest(pieces),
    )
