"""Differences between fold and API server, and when one has lasted long enough to be healed.

A watch is always a little behind, so one difference proves nothing. It is recorded, and if three sweeps in a row find
it, the object is observed anew.

Source:
    event-bus spec, 9.3
"""

import hashlib
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import DriftHealed, DriftObserved
from koordcore.state.aggregates import DriftState
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.mirror import Seen, next_draft

HEAL_AT: Final = 3


class Drift(NamedTuple):
    """One difference, with the object of the API server; `gone` if it does not exist there."""

    seen: Seen
    difference: str
    fingerprint: str


def find_drift(view: ManagerView, seen: Seen) -> Drift | None:
    """Return the difference between the fold and an observed object, or None if they agree."""
    draft = next_draft(view, seen)
    if draft is None:
        return None
    if seen.gone:
        difference = "missing-in-api"
    else:
        difference = "differs" if view.state.get(seen.ref) is not None else "missing-in-log"
    found = codec.encode_canonical(seen.object) + codec.encode_canonical(view.state.get(seen.ref))
    return Drift(seen, difference, hashlib.blake2b(found, digest_size=16).hexdigest())


def drift_ref(ref: AggregateRef) -> AggregateRef:
    """Return the aggregate that counts the drifts of another one."""
    return AggregateRef("drift", f"{ref.kind}={ref.id}")


def drift_draft(view: ManagerView, drift: Drift) -> Draft:
    """Return the fact that a drift was found."""
    ref = drift_ref(drift.seen.ref)
    event = DriftObserved(aggregate=str(drift.seen.ref), difference=drift.difference, fingerprint=drift.fingerprint)
    return Draft(ref, event, view.state.last_seq(ref))


def is_due(view: ManagerView, drift: Drift) -> bool:
    """Return whether this drift was found often enough to be healed."""
    state = view.state.of_kind(DriftState).get(drift_ref(drift.seen.ref).id)
    return state is not None and state.fingerprint == drift.fingerprint and state.times >= HEAL_AT


def healed_draft(view: ManagerView, ref: AggregateRef, how: str) -> Draft | None:
    """Return the fact that a drift is over, or None if none was open."""
    where = drift_ref(ref)
    state = view.state.of_kind(DriftState).get(where.id)
    if state is None or not state.times:
        return None
    return Draft(where, DriftHealed(aggregate=str(ref), how=how), state.seq)


def open_drifts(view: ManagerView) -> list[AggregateRef]:
    """Return the aggregates whose drift is not over."""
    return [AggregateRef(*id_.split("=", 1)) for id_, state in view.state.of_kind(DriftState).items() if state.times]
