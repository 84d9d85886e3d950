"""What one round of the descheduler leaves to the next, whoever leads, and the configuration with which it leads.

The events are in `koordcore.events.descheduling`.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from koordcore.events.descheduling import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DeschedulerConfigured,
    DetectorGroup,
    DetectorState,
    DryRunAnswered,
    DryRunMovesChanged,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.fold import AggregateState, Evolve


class RoundsState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Memory of the descheduler's rounds."""

    started_at: str = ""  # RFC 3339 time of the last round that has a fact; "" if there was none
    moves: list[RoundMove] = []  # Pods that have to leave because of that round, until all its effects were asked for
    closed: list[str] = []  # Nodes that it closes for new pods, until then
    # Usage ("node" or "prod") -> name of a node -> state of its anomaly detector. Detectors that were reset are absent.
    detectors: dict[str, dict[str, DetectorState]] = {}
    # Deletion costs that have to be written to pods; None if there are none. Only the aggregate `descheduling.costs`
    # has them, and it has nothing else.
    costs: DeletionCostsDecided | None = None
    # Pods that would leave if nothing were in dry run, as `RoundMove.choice`. Only the aggregate `descheduling.dry-
    # runs` has them, and it has nothing else.
    tried: list[str] = []
    # Pod that is refused, as `RoundMove.choice` -> codes of the reasons, sorted. Only the aggregate
    # `descheduling.refusals` has them, and it has nothing else.
    refusals: dict[str, list[str]] = {}


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


class DeschedulerState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of the leading descheduler."""

    configuration_hash: str = ""  # Hash of the effective configuration; "" before the first one was recorded
    configuration: dict[str, Any] = {}
    configured_at: str = ""  # When it was first used, RFC 3339


def _configured(_: DeschedulerState | None, event: DeschedulerConfigured, at: StoredEvent) -> DeschedulerState:
    return DeschedulerState(
        seq=at.seq,
        configuration_hash=event.configuration_hash,
        configuration=event.configuration,
        configured_at=at.occurred_at,
    )


def _dry_run(state: DeschedulerState | None, _: DryRunAnswered, at: StoredEvent) -> DeschedulerState:
    return replace(state or DeschedulerState(seq=at.seq), seq=at.seq)


OF_THE_DESCHEDULER: Final[dict[type[Event], Evolve]] = {
    DeschedulerConfigured: _configured,
    DryRunAnswered: _dry_run,
}
