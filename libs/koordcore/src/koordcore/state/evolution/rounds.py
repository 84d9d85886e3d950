"""Apply events of the descheduler's rounds: what they decided, and what one round leaves to the next."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from koordcore.events.descheduling.decisions import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DetectorGroup,
    DetectorState,
    DryRunMovesChanged,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMovesAdded,
)
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.evolution.evolve import Evolve
from koordcore.state.rounds import RoundsState


def _decided(state: RoundsState | None, event: RoundDecided, at: StoredEvent) -> RoundsState:
    known = state.detectors if state is not None else {}
    return RoundsState(
        seq=at.seq,
        started_at=event.started_at,
        moves=event.moves,
        closed=event.closed,
        detectors=_changed(known, event.detectors) if event.detectors else known,
    )


def _changed(
    known: dict[str, dict[str, DetectorState]], groups: Iterable[DetectorGroup]
) -> dict[str, dict[str, DetectorState]]:
    found = {usage: dict(of_nodes) for usage, of_nodes in known.items()}
    for group in groups:
        of_nodes = found.setdefault(group.usage, {})
        for node in group.nodes:
            if group.state is None:
                of_nodes.pop(node, None)
            else:
                of_nodes[node] = group.state
    return {usage: of_nodes for usage, of_nodes in found.items() if of_nodes}


def _moves_added(state: RoundsState | None, event: RoundMovesAdded, at: StoredEvent) -> RoundsState:
    before = state or RoundsState(seq=at.seq)
    return replace(before, seq=at.seq, moves=[*before.moves, *event.moves])


def _carried_out(state: RoundsState | None, _: RoundCarriedOut, at: StoredEvent) -> RoundsState:
    return replace(state or RoundsState(seq=at.seq), seq=at.seq, moves=[], closed=[])


def _costs_decided(_: RoundsState | None, event: DeletionCostsDecided, at: StoredEvent) -> RoundsState:
    return RoundsState(seq=at.seq, costs=event)


def _costs_carried_out(_: RoundsState | None, event: DeletionCostsCarriedOut, at: StoredEvent) -> RoundsState:
    return RoundsState(seq=at.seq)


def _dry_run_changed(state: RoundsState | None, event: DryRunMovesChanged, at: StoredEvent) -> RoundsState:
    dropped, known = frozenset(event.dropped), [] if state is None else state.tried
    kept = [each for each in known if each not in dropped]
    return RoundsState(seq=at.seq, tried=[*kept, *(move.choice for move in event.chosen)])


def _refusals_changed(state: RoundsState | None, event: RefusalsChanged, at: StoredEvent) -> RoundsState:
    refusals = {} if state is None else dict(state.refusals)
    for choice in event.ended:
        refusals.pop(choice, None)
    refusals.update((each.move.choice, each.codes) for each in event.refused)
    return RoundsState(seq=at.seq, refusals=refusals)


OF_ROUNDS: Final[dict[type[Event], Evolve]] = {
    RoundDecided: _decided,
    RoundMovesAdded: _moves_added,
    RoundCarriedOut: _carried_out,
    DeletionCostsDecided: _costs_decided,
    DeletionCostsCarriedOut: _costs_carried_out,
    DryRunMovesChanged: _dry_run_changed,
    RefusalsChanged: _refusals_changed,
}
