"""Created and deleted objects that the audit of the descheduler shows: migration jobs, and the Reservations it makes.

Source:
    descheduler spec, 7.2, 7.5, 7.10, 12
"""

from typing import Any, Final, NamedTuple, TypeAlias, cast

from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved
from koordcore.protocol import keys

Json: TypeAlias = dict[str, Any]

_JOBS: Final = "podmigrationjobs"
_RESERVATIONS: Final = "reservations"
_CREATED_BY: Final = "app.kubernetes.io/created-by"


class ObjectAct(NamedTuple):
    """The creation or deletion of an object.

    Attributes:
        action: `job_create`, `reservation_create`, `reservation_delete` or `gc_delete`, as in the audit.
        fields: Further fields of the audit record.
    """

    action: str
    fields: Json


def object_act(plural: str, event: CustomObjectObserved | CustomObjectDeleted, before: Json | None) -> ObjectAct | None:
    """Return the creation or deletion that a fact of an object records; None if the audit does not show it.

    Args:
        plural: Plural of the object's kind.
        event: The fact.
        before: The object before the fact; None if it did not exist.
    """
    recorded = before if before is not None and _is_recorded(plural, before) else None
    if isinstance(event, CustomObjectDeleted):
        if recorded is None:
            return None
        fields: Json = {"plugin": "GC", "after": {"name": event.name}}
        if plural != _JOBS:
            return ObjectAct("reservation_delete", fields)
        return ObjectAct(
            "gc_delete", {**fields, "job": event.name, "job_uid": _text(_part(recorded, "metadata"), "uid")}
        )
    if recorded is not None or not _is_recorded(plural, event.object):
        return None
    meta = _part(event.object, "metadata")
    if plural == _RESERVATIONS:
        fields = {"plugin": "MigrationController", "after": {"name": _text(meta, "name")}}
        return ObjectAct("reservation_create", fields)
    annotations, pod = _part(meta, "annotations"), _part(_part(event.object, "spec"), "podRef")
    fields = {
        "plugin": _text(annotations, keys.EVICT_TRIGGER),
        "namespace": _text(pod, "namespace"),
        "pod": _text(pod, "name"),
        "uid": _text(pod, "uid"),
        "job": _text(meta, "name"),
        "job_uid": _text(meta, "uid"),
        "round": _text(annotations, keys.JOB_ROUND),
        "profile": _text(annotations, keys.JOB_PROFILE),
        "reasons": [text for text in (_text(annotations, keys.EVICT_REASON),) if text],
    }
    return ObjectAct("job_create", fields)


def _is_recorded(plural: str, document: Json) -> bool:
    """Return whether the creation of an object is a modification: each job, and Reservations of the descheduler."""
    labels = _part(_part(document, "metadata"), "labels")
    return plural == _JOBS or (plural == _RESERVATIONS and labels.get(_CREATED_BY) == "koord-descheduler")


def _part(document: Json, name: str) -> Json:
    """Return an object inside of a document of any shape; empty if there is none."""
    found = document.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _text(document: Json, name: str) -> str:
    """Return a text inside of a document of any shape; "" if there is none."""
    found = document.get(name)
    return found if isinstance(found, str) else ""
