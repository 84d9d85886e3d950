"""Apply events of plans that make room for waiting gangs."""

from typing import Final

from msgspec.structs import replace

from koordcore.events.descheduling.repack import (
    RepackCommitted,
    RepackEnded,
    RepackForgotten,
    RepackMoved,
    RepackPlanned,
)
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.evolution.evolve import Evolve, dropped
from koordcore.state.repacks import RepackState


def _planned(_: RepackState | None, event: RepackPlanned, at: StoredEvent) -> RepackState:
    return RepackState(seq=at.seq, plan=event, planned_at=at.occurred_at)


def _committed(state: RepackState | None, _: RepackCommitted, at: StoredEvent) -> RepackState | None:
    return None if state is None else replace(state, seq=at.seq, committed_at=at.occurred_at)


def _moved(state: RepackState | None, _: RepackMoved, at: StoredEvent) -> RepackState | None:
    return None if state is None else replace(state, seq=at.seq, moved_at=at.occurred_at)


def _ended(state: RepackState | None, event: RepackEnded, at: StoredEvent) -> RepackState | None:
    if state is None:
        return None
    return replace(state, seq=at.seq, ended_at=at.occurred_at, result=event.result, reason=event.reason)


OF_REPACKS: Final[dict[type[Event], Evolve]] = {
    RepackPlanned: _planned,
    RepackCommitted: _committed,
    RepackMoved: _moved,
    RepackEnded: _ended,
    RepackForgotten: dropped,
}
