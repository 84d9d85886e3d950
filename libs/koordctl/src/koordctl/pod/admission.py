"""The search for the decisions of admission that concern one pod.

The log keeps decisions by namespace and name (`explanations.admission.pods=<ns>=<name>`), so it also has those of
earlier pods with the same name. An object that was admitted unchanged has no decision.

If the API server made the name of a pod after its admission, the decision carries the id of the request. It is found by
the time at which the pod was stored. A denial carries the `generateName`. This module is pure.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.protocol.objects import Pod, base_of_names, generated_base

CREATE: Final = "CREATE"
_STORED_WITHIN: Final = timedelta(seconds=15)
"""An API server stores an admitted pod within this time, or asks again."""
_WHOLE_SECOND: Final = timedelta(seconds=1)
"""A creationTimestamp may lie this much before the decision, because its fraction is cut off."""


def decisions_about_pod(
    facts: Iterable[StoredEvent], decisions: Iterable[StoredEvent], *, is_last: bool = False
) -> list[StoredEvent]:
    """Return the admission decisions about one pod in their order: on its creation, and on later requests.

    Args:
        facts: Events of `podspec.<uid>`, among others, in any order.
        decisions: Decisions about the pod's namespace and name.
        is_last: Whether no later pod has this name. Then denials after its deletion belong to it as well.
    """
    added, deleted = None, None
    for stored in sorted(facts, key=lambda event: event.seq):
        if stored.ref.kind == "podspec":
            event = CATALOGUE.read(stored)
            added = added or (stored if isinstance(event, PodSpecAdded) else None)
            deleted = stored if isinstance(event, PodSpecDeleted) and not is_last else deleted
    if added is None:
        return []
    return [stored for stored in decisions if _is_of(stored, added, deleted)]


def is_admitted(decisions: Iterable[StoredEvent]) -> bool:
    read = map(CATALOGUE.read, decisions)
    return any(isinstance(event, AdmissionDecided) and event.allowed and event.operation == CREATE for event in read)


def _is_of(stored: StoredEvent, added: StoredEvent, deleted: StoredEvent | None) -> bool:
    event = CATALOGUE.read(stored)
    if not isinstance(event, AdmissionDecided):
        return False
    if event.allowed and event.operation == CREATE:
        return stored.causation_id == added.causation_id or (event.source == "webhook" and _led_to(stored, added))
    return added.seq <= stored.based_on and (deleted is None or stored.based_on < deleted.seq)


def _led_to(stored: StoredEvent, added: StoredEvent) -> bool:
    """Whether an API server may have stored the pod because of a decision."""
    passed = datetime.fromisoformat(_created(added)) - datetime.fromisoformat(stored.occurred_at)
    return -_WHOLE_SECOND <= passed <= _STORED_WITHIN


def _created(added: StoredEvent) -> str:
    return _pod(added).metadata.creation_timestamp or added.occurred_at


def _pod(added: StoredEvent) -> Pod:
    event = CATALOGUE.read(added)
    assert isinstance(event, PodSpecAdded), "the caller looked"
    return event.object


def stored_because(added: StoredEvent) -> tuple[datetime, datetime]:
    """Return begin and end of the time in which admission may have decided about a pod, from its first event.

    The API server asks for admission shortly before it stores the pod.
    """
    created = datetime.fromisoformat(_created(added))
    return created - _STORED_WITHIN, created + _WHOLE_SECOND


def decision_on_generated(added: StoredEvent, decisions: Iterable[StoredEvent]) -> StoredEvent | None:
    """Return the admission decision about a pod whose name the API server generated later, or None if none fits.

    The decision names `generateName` only. The last fitting one before the pod is returned. Pods of one workload are
    equal, so the choice hardly matters.

    Args:
        added: The first event of the pod.
        decisions: Decisions about any pods, in their order.
    """
    pod = _pod(added)
    base = generated_base(pod.metadata.name)
    for stored in sorted(decisions, key=lambda one: one.seq, reverse=True):
        event = CATALOGUE.read(stored)
        if (
            isinstance(event, AdmissionDecided)
            and (event.source, event.operation, event.allowed) == ("webhook", CREATE, True)
            and (event.resource, event.namespace) == ("pods", pod.metadata.namespace)
            and base_of_names(event.name) == base
            and stored.occurred_at <= added.occurred_at
            and _led_to(stored, added)
            and _shows(pod, event.patch)
        ):
            return stored
    return None


def _shows(pod: Pod, patch: Sequence[dict[str, Any]]) -> bool:
    """Whether a pod has the labels and annotations that a recorded patch sets."""
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


def denials(decisions: Iterable[StoredEvent]) -> Sequence[StoredEvent]:
    read = [(stored, CATALOGUE.read(stored)) for stored in decisions]
    return [stored for stored, event in read if isinstance(event, AdmissionDecided) and not event.allowed]
