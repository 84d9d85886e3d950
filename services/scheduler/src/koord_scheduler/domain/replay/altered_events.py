"""Change recorded events for a re-run.

`without_node` removes the recorded decision from an object. `stored_as` makes an event of a decision of the re-run.
"""

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.gateway import PodBound
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded, PodSpecChanged, plural_of
from koordcore.protocol.reservations import PLURAL


def subject_of(stored: StoredEvent) -> str:
    """Return the uid of the pod or Reservation whose object the event contains; "" for all other events."""
    if stored.ref.kind == "podspec":
        return stored.ref.id
    if plural_of(stored.ref.id) != PLURAL:
        return ""
    event = CATALOGUE.read(stored)
    return str(event.object["metadata"].get("uid", "")) if isinstance(event, CustomObjectObserved) else ""


def without_node(stored: StoredEvent) -> StoredEvent:
    """Return a copy of an event in which a pod or Reservation has no node, so that a re-run decides the node itself.

    Args:
        stored: The event with the pod or the Reservation; other events are returned as they are.
    """
    event, changed = CATALOGUE.read(stored), None
    if isinstance(event, PodSpecAdded | PodSpecChanged) and event.object.spec.node_name:
        spec = msgspec.structs.replace(event.object.spec, node_name="")
        changed = msgspec.structs.replace(event, object=msgspec.structs.replace(event.object, spec=spec))
    elif isinstance(event, PodBound):
        changed = msgspec.structs.replace(event, bound_at="")
    elif isinstance(event, CustomObjectObserved) and "status" in event.object:
        document = {key: part for key, part in event.object.items() if key != "status"}
        changed = msgspec.structs.replace(event, object=document)
    if changed is None:
        return stored
    return msgspec.structs.replace(stored, body=stored_as(stored.seq, stored.ref, changed).body)


def stored_as(seq: int, ref: AggregateRef, event: Event) -> StoredEvent:
    """Convert an event that a re-run decided to the form in which the log would deliver it.

    Args:
        seq: The position that the event would have.
    """
    origin = Origin(causation_id=f"what-if-{seq}", correlation_id=ref.id, actor="what-if", occurred_at="")
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, ref, new.headers, new.body)
