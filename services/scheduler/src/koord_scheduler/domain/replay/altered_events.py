"""Recorded events without the recorded decision, and events that a re-run writes itself."""

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecChanged


def without_node(stored: StoredEvent) -> StoredEvent:
    """Return a copy of a pod's event in which the pod has no node, so that a re-run decides the node itself."""
    event = CATALOGUE.read(stored)
    if not isinstance(event, PodSpecAdded | PodSpecChanged) or not event.object.spec.node_name:
        return stored
    spec = msgspec.structs.replace(event.object.spec, node_name="")
    changed = msgspec.structs.replace(event, object=msgspec.structs.replace(event.object, spec=spec))
    return msgspec.structs.replace(stored, body=stored_as(stored.seq, stored.ref, changed).body)


def stored_as(seq: int, ref: AggregateRef, event: Event) -> StoredEvent:
    """Return an event that a re-run decides in the form in which the log would deliver it.

    Args:
        seq: The position that it would have.
        ref: Its aggregate.
        event: The event.
    """
    origin = Origin(causation_id=f"what-if-{seq}", correlation_id=ref.id, actor="what-if", occurred_at="")
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, ref, new.headers, new.body)
