"""Repeats a recorded decision from the log alone.

The decision was based on the facts and reports up to `based_on`, on own appends of its scheduler that had an answer,
and on decisions with smaller ordinals that were still in flight. All of these are in the log, unless a decision was
never stored and had not been forgotten yet; then the result is `NotRecomputable`.

Source: scheduler-core spec, 1.2; event-bus spec, 4.2
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_ACTOR, HEADER_EPOCH, StoredEvent
from koordcore.events.pod import (
    DecisionBasis,
    PlacementExplanation,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReleased,
)
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.loop.cycle.attempt import Attempt, Found, WholeJob
from koord_scheduler.domain.loop.folding.log import fold, fold_ahead, fold_report, skip
from koord_scheduler.domain.loop.state.node_refusals import PLUGIN as NODE_REFUSALS
from koord_scheduler.domain.loop.state.state import SchedulerState

_DECIDED: Final = frozenset(
    {"PodPlaced", "PodReallocated", "PodReleased", "NodeResourcesTaken", "NodeResourcesReturned"}
)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A recorded placement, and the result of deciding it again from the log."""

    placed: PodPlaced  # The recorded placement
    node: str  # Name of the node that is found now; "" if none is
    explanation: PlacementExplanation  # The explanation of the repetition
    allocation: Allocation = NOTHING  # The allocation of the pod on that node in the repetition

    @property
    def agrees(self) -> bool:
        """Return whether node, explanation and allocation of the repetition equal the recorded ones."""
        now, then = (self.node, self.allocation), (self.placed.node, self.placed.allocation)
        return now == then and self.explanation == self.placed.explanation


@dataclass(frozen=True, slots=True)
class NotRecomputable:
    """The result that a placement cannot be decided again, because the log does not contain everything it was based on.
    `reason` names the missing part in one sentence.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class _Own:
    """A placement by the same scheduler in the same term."""

    stored: StoredEvent
    event: PodPlaced

    @property
    def ordinal(self) -> int:
        return 0 if self.event.basis is None else self.event.basis.ordinal


def recompute(
    state: SchedulerState, events: Sequence[StoredEvent], reports: Sequence[StoredEvent], seq: int
) -> Recomputed | NotRecomputable:
    """Decide the placement at position `seq` again, and compare the result. `state`: empty, with the configuration of
    that time; the facts are folded into it. `events`: the log from its beginning to beyond `seq`. Raises KeyError:
    there is no placement at `seq`; UnreadableEvent: this version cannot decode a stored event.
    """
    own = _own_placements(events, seq)
    placed = own[seq].event
    basis = placed.basis
    if basis is None:
        return NotRecomputable("it was recorded without its basis")
    # Plugins that restrict the pod together are named together, see `Attempt`.
    if any(NODE_REFUSALS in exclusion.plugin.split(", ") for exclusion in placed.explanation.exclusions):
        return NotRecomputable("nodes had refused the pod at Reserve, and refusals are not in the log")
    ev, obs = basis.based_on.ev, basis.based_on.obs
    doubt = _doubt(events, own, seq, basis)
    if doubt:
        return NotRecomputable(doubt)
    # 1. what the log said, without own appends that were not answered yet
    for stored in events:
        if stored.seq > ev:
            break
        if stored.seq > basis.acknowledged and stored.type in _DECIDED and _is_by(stored, own[seq].stored):
            skip(state, stored.seq)
        else:
            fold(state, stored)
    for report in reports:
        if report.seq <= obs:
            fold_report(state, report)
    # 2. what the scheduler knew beyond it: its own appends, acknowledged and on their way
    known = basis.acknowledged
    for stored in events:
        if ev < stored.seq <= known and stored.type in _DECIDED and _is_by(stored, own[seq].stored):
            fold_ahead(state, stored)
    earlier = [each for each in own.values() if each.ordinal < basis.ordinal and each.stored.seq > known]
    for each in sorted(earlier, key=lambda each: each.ordinal):
        if not _assume(state, each):
            return NotRecomputable(f"pod {each.stored.ref.id} was assumed, and is not known at {ev}")
    # 3. the attempt
    state.frameworks.advance(basis.decided_at)
    pod = state.pods.get(own[seq].stored.ref.id)
    if pod is None or pod.subject is None:
        return NotRecomputable(f"the pod is not known at {ev}")
    if state.engine_of(pod).policy_version != placed.explanation.policy_version:
        return NotRecomputable(f"it was taken under another configuration, {placed.explanation.policy_version}")
    found = Attempt(state, pod, pod.subject, basis.decided_at).run(placed.explanation.based_on)
    if isinstance(found, Found):
        given = state.frameworks.framework_of(pod).reserve(pod, found.placed.node)
        if isinstance(given, Rejection):
            return Recomputed(placed, "", found.placed.explanation)
        return Recomputed(placed, found.placed.node, found.placed.explanation, given)
    if isinstance(found, WholeJob) or (found.rejection is not None and not found.rejection.is_replayable):
        return NotRecomputable("how far the pod's gang had come is not in the log")
    return Recomputed(placed, "", found.explanation)


def _own_placements(events: Sequence[StoredEvent], seq: int) -> dict[int, _Own]:
    one = next((stored for stored in events if stored.seq == seq), None)
    found: dict[int, _Own] = {}
    for stored in events:
        if one is not None and stored.type == PodPlaced.__name__ and _is_by(stored, one):
            event = CATALOGUE.read(stored)
            if isinstance(event, PodPlaced):
                found[stored.seq] = _Own(stored, event)
    return found


def _doubt(events: Sequence[StoredEvent], own: dict[int, _Own], seq: int, basis: DecisionBasis) -> str:
    """Return what the log does not tell about the basis of the decision; "" if it tells everything."""
    ev = basis.based_on.ev
    if basis.read_ahead > ev:
        return f"facts up to {basis.read_ahead} had been read ahead after a conflict"
    stored_before = sum(each.ordinal < basis.ordinal for each in own.values())
    if basis.ordinal - 1 - stored_before != basis.forgotten:
        return "a decision that never came into the log was still counted in"
    for stored in events:
        if ev < stored.seq < seq and stored.type in (PodNominated.__name__, PodNominationCleared.__name__):
            return "a nomination was on its way to the log"
    known = max(ev, basis.acknowledged)
    of_pods: dict[str, list[StoredEvent]] = {each.stored.ref.id: [] for each in own.values()}
    for stored in events:
        if stored.seq <= known and stored.ref.kind in ("pod", "podspec") and stored.ref.id in of_pods:
            of_pods[stored.ref.id].append(stored)
    if any(each.stored.seq <= known and _was_other(of_pods[each.stored.ref.id], each) for each in own.values()):
        return "a pod had changed while its placement was on its way"
    return ""


def _was_other(of_pod: Sequence[StoredEvent], own: _Own) -> bool:
    """Return whether the spec of a pod changed or was deleted between its decision and the storage of its placement."""
    begin, end = own.event.explanation.based_on.ev, own.stored.seq
    changed = any(stored.ref.kind == "podspec" and begin < stored.seq < end for stored in of_pod)
    return changed and not any(stored.type == PodReleased.__name__ and stored.seq > end for stored in of_pod)


def _is_by(stored: StoredEvent, other: StoredEvent) -> bool:
    return all(stored.headers.get(name) == other.headers.get(name) for name in (HEADER_ACTOR, HEADER_EPOCH))


def _assume(state: SchedulerState, own: _Own) -> bool:
    """Count a pod on its node as its decision did. Return False if the pod is unknown."""
    pod = state.pods.get(own.stored.ref.id)
    if pod is None or pod.subject is None or own.event.basis is None:
        return False
    state.queue.remove(pod.uid)
    state.frameworks.framework_of(pod).reserve(pod, own.event.node)  # so that plugins count it; the result is recorded
    state.assumed.assume(pod, own.event.node, own.event.requests, own.event.allocation, own.event.basis.decided_at)
    return True
