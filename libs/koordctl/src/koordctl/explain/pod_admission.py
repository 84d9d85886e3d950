"""Which verdicts on admission are a pod's own, and what they say. Pure.

Verdicts are kept by namespace and name (`why.admission.pods=<ns>=<name>`), so also those of earlier pods of that name;
an object that admission let in as it was has none. A pod that was changed before the API server made its name is kept
by the request, and found by when it was stored; one that was refused by its `generateName`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.management.admission import AdmissionDecided
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecDeleted
from koordcore.protocol.generated_names import base_of_names, generated_base
from koordcore.protocol.objects import Pod

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


def is_let_in(verdicts: Iterable[StoredEvent]) -> bool:
    """Whether one of a pod's own verdicts let it in."""
    read = map(CATALOGUE.read, verdicts)
    return any(isinstance(event, AdmissionDecided) and event.allowed and event.operation == CREATE for event in read)


def _is_of(stored: StoredEvent, added: StoredEvent, deleted: StoredEvent | None) -> bool:
    event = CATALOGUE.read(stored)
    if not isinstance(event, AdmissionDecided):
        return False
    if event.allowed and event.operation == CREATE:
        return stored.causation_id == added.causation_id or (event.door == "webhook" and _led_to(stored, added))
    return added.seq <= stored.based_on and (deleted is None or stored.based_on < deleted.seq)


def _led_to(stored: StoredEvent, added: StoredEvent) -> bool:
    """Whether an API server may have stored the pod because of this verdict."""
    passed = datetime.fromisoformat(_created(added)) - datetime.fromisoformat(stored.occurred_at)
    return -_WHOLE_SECOND <= passed <= _STORED_WITHIN


def _created(added: StoredEvent) -> str:
    return _pod(added).metadata.creation_timestamp or added.occurred_at


def _pod(added: StoredEvent) -> Pod:
    event = CATALOGUE.read(added)
    assert isinstance(event, PodSpecAdded), "the caller looked"
    return event.object


def stored_because(added: StoredEvent) -> tuple[datetime, datetime]:
    """From when to when an API server may have asked about a pod that it stored then."""
    created = datetime.fromisoformat(_created(added))
    return created - _STORED_WITHIN, created + _WHOLE_SECOND


def verdict_on_generated(added: StoredEvent, verdicts: Iterable[StoredEvent]) -> StoredEvent | None:
    """The verdict that changed a pod whose name the API server had yet to make (`generateName`): the last before it
    that fits. Pods of one workload are alike, so that it hardly matters which of theirs it was.

    verdicts    on any pods, in their order
    """
    pod = _pod(added)
    base = generated_base(pod.metadata.name)
    for stored in sorted(verdicts, key=lambda one: one.seq, reverse=True):
        event = CATALOGUE.read(stored)
        if (
            isinstance(event, AdmissionDecided)
            and (event.door, event.operation, event.allowed) == ("webhook", CREATE, True)
            and (event.resource, event.namespace) == ("pods", pod.metadata.namespace)
            and base_of_names(event.name) == base
            and stored.occurred_at <= added.occurred_at
            and _led_to(stored, added)
            and _shows(pod, event.patch)
        ):
            return stored
    return None


def _shows(pod: Pod, patch: Sequence[dict[str, Any]]) -> bool:
    """Whether a pod has the labels and annotations that a patch gave it, as far as the patch tells them."""
    for operation in patch:
        _, *path = str(operation.get("path", "")).split("/")
        if path[:1] != ["metadata"] or len(path) not in (2, 3) or "value" not in operation:
            continue
        present = {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations}.get(path[1], {})
        given = operation["value"] if len(path) == 2 else {_unescaped(path[2]): operation["value"]}
        if isinstance(given, dict) and not given.items() <= present.items():
            return False
    return True


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


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
