"""Which verdicts on admission are a pod's own, and what they say. Pure.

Verdicts are kept by namespace and name (`why.admission.pods=<ns>=<name>`), so also those of earlier pods of that name;
an object that admission let in as it was has none.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import StoredEvent
from koordcore.events.mirror import PodSpecAdded, PodSpecDeleted

CREATE: Final = "CREATE"
_STORED_WITHIN: Final = timedelta(seconds=15)
"""An API server stores a pod so soon after it was let in, or asks again."""
_WHOLE_SECOND: Final = timedelta(seconds=1)
"""A creationTimestamp may lie so much before the verdict: its fraction is cut off."""


def verdicts_of_pod(
    facts: Iterable[StoredEvent], verdicts: Iterable[StoredEvent], *, is_last: bool = False
) -> list[StoredEvent]:
    """The verdicts that are this pod's, in their order: on its creation, and on what was asked of it later.

    facts      of `podspec.<uid>`, among others, in any order
    verdicts   of its namespace and name
    is_last    of that name: then what was refused after it was deleted belongs to its story, too
    """
    added, deleted = None, None
    for stored in sorted(facts, key=lambda event: event.seq):
        if stored.ref.kind == "podspec":
            event = CATALOGUE.read(stored)
            added = added or (stored if isinstance(event, PodSpecAdded) else None)
            deleted = stored if isinstance(event, PodSpecDeleted) and not is_last else deleted
    if added is None:
        return []
    return [stored for stored in verdicts if _is_of(stored, added, deleted)]


def _is_of(stored: StoredEvent, added: StoredEvent, deleted: StoredEvent | None) -> bool:
    event = CATALOGUE.read(stored)
    if not isinstance(event, AdmissionDecided):
        return False
    if event.allowed and event.operation == CREATE:
        return stored.causation_id == added.causation_id or (event.door == "webhook" and _led_to(stored, added))
    return added.seq <= stored.based_on and (deleted is None or stored.based_on < deleted.seq)


def _led_to(stored: StoredEvent, added: StoredEvent) -> bool:
    """Whether an API server may have stored the pod because of this verdict."""
    event = CATALOGUE.read(added)
    assert isinstance(event, PodSpecAdded), "the caller looked"
    created = event.object.metadata.creation_timestamp or added.occurred_at
    passed = datetime.fromisoformat(created) - datetime.fromisoformat(stored.occurred_at)
    return -_WHOLE_SECOND <= passed <= _STORED_WITHIN


def refusals(verdicts: Iterable[StoredEvent]) -> Sequence[StoredEvent]:
    """The verdicts that let no object in, the oldest first."""
    read = [(stored, CATALOGUE.read(stored)) for stored in verdicts]
    return [stored for stored, event in read if isinstance(event, AdmissionDecided) and not event.allowed]


def admission_sentence(event: AdmissionDecided) -> str:
    """What was asked, by whom, and what became of it: the message and the rules, or the steps that changed it."""
    by = f" by {event.user}" if event.user else ""
    asked = f"{event.operation.lower()}{by}"
    if event.allowed:
        return f"{asked}, changed by {', '.join(event.steps)}"
    rules = f" ({', '.join(dict.fromkeys(event.rules))})" if event.rules else ""
    return f"{asked}: {event.message}{rules}"
