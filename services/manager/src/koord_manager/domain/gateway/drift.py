"""Find differences between the fold and the API server, and correct those that last.

A watch is always a little late, so a single difference proves no error. Each difference is recorded. If three sweeps in
a row find the same difference, the object is mirrored again.

Source:
    event-bus spec, 9.3
"""

import hashlib
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import DriftHealed, DriftObserved
from koordcore.state.aggregates import DriftState
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.mirror import Seen, next_draft

HEAL_AT: Final = 3


class Drift(NamedTuple):
    seen: Seen  # The object as the API server has it
    difference: str  # "missing-in-api", "missing-in-log" or "differs"
    fingerprint: str  # Digest of both versions. If the next sweep finds the same digest, it is the same difference.


def find_drift(view: ManagerView, seen: Seen) -> Drift | None:
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
    return AggregateRef("drift", f"{ref.kind}={ref.id}")


def drift_draft(view: ManagerView, drift: Drift) -> Draft:
    ref = drift_ref(drift.seen.ref)
    event = DriftObserved(aggregate=str(drift.seen.ref), difference=drift.difference, fingerprint=drift.fingerprint)
    return Draft(ref, event, view.state.last_seq(ref))


def is_due(view: ManagerView, drift: Drift) -> bool:
    """Return whether three sweeps in a row found this drift, so that the object has to be mirrored again."""
    state = view.state.of_kind(DriftState).get(drift_ref(drift.seen.ref).id)
    return state is not None and state.fingerprint == drift.fingerprint and state.times >= HEAL_AT


def healed_draft(view: ManagerView, ref: AggregateRef, how: str) -> Draft | None:
    """Return the fact that the drift of an aggregate is over, or None if no open drift is recorded."""
    where = drift_ref(ref)
    state = view.state.of_kind(DriftState).get(where.id)
    if state is None or not is_open(view, ref):
        return None
    return Draft(where, DriftHealed(aggregate=str(ref), how=how), state.seq)


def is_open(view: ManagerView, ref: AggregateRef) -> bool:
    state = view.state.of_kind(DriftState).get(drift_ref(ref).id)
    return state is not None and state.times > 0


def open_drifts(view: ManagerView) -> list[AggregateRef]:
    return [AggregateRef(*id_.split("=", 1)) for id_, state in view.state.of_kind(DriftState).items() if state.times]
