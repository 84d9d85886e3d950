"""The story of one migration of a pod: each fact of its PodMigrationJob as a sentence, and how long the pod was away.

Source: descheduler spec, 7.5, 12.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from koordcore.events import CATALOGUE
from koordcore.events.descheduling import Number
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed, PodEvictionWithdrawn
from koordcore.events.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
    RepackCommitted,
    RepackEnded,
    RepackMoved,
    RepackPlanned,
)
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from koordcore.values.timestamps import unix_seconds

_READY: Final = "BoundPodReady"
_UNDONE: Final[dict[type[Event], str]] = {
    PodEvictionDelayed: "eviction-delayed",
    PodEvictionFailed: "eviction-failed",
    PodEvictionWithdrawn: "eviction-withdrawn",
}
"""Event of an eviction that was not carried out -> its step."""


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a migration."""

    at: str  # RFC 3339 time
    position: int  # Position in the log
    actor: str  # Instance that wrote the event
    step: str  # Kind of the event in one word, for example "arbitrated"
    sentence: str = ""  # The event and its reason as a sentence; may be empty


class MigrationStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The life of one PodMigrationJob, as `koord explain migration` shows it."""

    job: str  # Name of the PodMigrationJob
    uid: str  # Uid of the PodMigrationJob
    state: MigrationState  # Progress of the migration, before the job was deleted if it was
    steps: list[MigrationStep] = []  # Events of the migration, oldest first
    seconds: float | None = None  # Time from arbitration to the end; None while it has not ended
    # Time from the request of the eviction until the new pod was ready; None if no eviction was requested, or if the
    # new pod is not ready.
    unavailable_seconds: float | None = None


def migration_story(job: str, uid: str, facts: Iterable[StoredEvent]) -> MigrationStory | None:
    """Return the story of a migration; None if `facts` contain no event of the PodMigrationJob. `facts`: events of
    `migration.<uid>`, of `eviction.<uid of the pod>`, and of `repack.<id>` if the job is part of a plan, in any order.
    """
    state, known, steps = ClusterState(), MigrationState(seq=0), list[MigrationStep]()
    is_begun = False
    for stored in sorted(facts, key=lambda stored: stored.seq):
        event = CATALOGUE.read(stored)
        if event is None:
            continue
        before = known
        state.apply(stored)
        known = state.of_kind(MigrationState).get(uid, known)
        is_begun = is_begun or stored.ref.kind in ("migration", "repack")
        for step, sentence in _told(event, before.progress) if is_begun else ():
            steps.append(
                MigrationStep(
                    at=stored.occurred_at, position=stored.seq, actor=stored.actor, step=step, sentence=sentence
                )
            )
    if not steps:
        return None
    return MigrationStory(
        job=job,
        uid=uid,
        state=known,
        steps=steps,
        seconds=_between(known.passed_at, known.ended_at),
        unavailable_seconds=_between(known.evicted_at, known.since.get(_READY, "") if _is_ready(known) else ""),
    )


def _told(event: Event, before: MigrationProgress) -> Iterator[tuple[str, str]]:
    match event:
        case MigrationHeld():
            yield "waits", f"for {', '.join(_with_numbers(code, event.inputs.get(code)) for code in event.limits)}"
        case MigrationArbitrated():
            where = f" to leave {event.node}" if event.node else ""
            asked = f"; {event.trigger or 'a user'} asked for it" + (f": {event.reason}" if event.reason else "")
            yield "arbitrated", f"{event.pod.namespace}/{event.pod.name} may begin{where}{asked}"
        case MigrationAdvanced():
            yield from _conditions(event.progress, before)
        case MigrationEnded():
            yield from _conditions(event.progress, before)
            done = event.progress
            rules = f" (rules: {', '.join(event.refusals)})" if event.refusals else ""
            yield (done.phase or "ended").lower(), ": ".join(filter(None, (done.reason, done.message))) + rules
        case MigrationForgotten():
            yield "deleted", "the PodMigrationJob"
        case RepackPlanned():
            moves = ", ".join(f"{each.pod.name} {each.source} -> {each.target or '?'}" for each in event.moves)
            yield "plan", f"{event.reason}; room on {', '.join(event.nodes)}; moves {moves}"
        case RepackCommitted():
            yield "plan-committed", f"the Reservations of all {len(event.reservations)} moves are available"
        case RepackMoved():
            yield "plan-moved", "all pods have moved; the GPUs are held for the gang"
        case RepackEnded():
            yield f"plan-{event.result.replace('_', '-')}", event.reason
        case PodEvicted():
            yield "evicted", ""
        case PodEvictionDelayed() | PodEvictionFailed() | PodEvictionWithdrawn():
            yield _UNDONE[type(event)], ": ".join(filter(None, (event.reason, event.message)))
        case _:
            pass


def _with_numbers(code: str, number: Number | None) -> str:
    return code if number is None or number.limit is None else f"{code} ({number.value:g} of {number.limit:g})"


def _conditions(after: MigrationProgress, before: MigrationProgress) -> Iterator[tuple[str, str]]:
    """Yield what a step changed: the phase, and each condition that is new or has changed."""
    if after.phase != before.phase and after.phase == "Running":
        yield "began", ""
    known = {each.type: each for each in before.conditions}
    for each in after.conditions:
        if known.get(each.type) == each:
            continue
        place = f"Reservation {after.reservation}" if each.type.startswith("Reservation") else ""
        place = f"{place} on {after.node}" if each.type == "ReservationScheduled" and after.node else place
        if each.type == "ReservationBound" and after.bound_pod is not None:
            place = f"{place} by {after.bound_pod.namespace}/{after.bound_pod.name}"
        sentence = each.message or ": ".join(filter(None, (each.reason, place)))
        yield each.type if each.is_true else f"{each.type}?", sentence


def _is_ready(state: MigrationState) -> bool:
    return any(each.type == _READY and each.is_true for each in state.progress.conditions)


def _between(begin: str, end: str) -> float | None:
    """Return the seconds between two RFC 3339 times; None if one of them is missing."""
    return max(0.0, unix_seconds(end) - unix_seconds(begin)) if begin and end else None
