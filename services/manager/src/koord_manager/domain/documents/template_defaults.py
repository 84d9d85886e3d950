"""Set the defaults of pods in the templates of custom resources, and take them out before a manifest is merged.

A Reservation stands for a pod that will come: it has to ask for what the API server will let that pod ask for.

Source:
    reality spec, 1
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from koordcore.protocol.pod_defaults import with_pod_defaults

from koord_manager.domain.admission.request import JsonObject

_POD_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "reservations": ("spec", "template"),
    "podmigrationjobs": ("spec", "reservationOptions", "template", "spec", "template"),
    "scheduleexplanations": ("spec", "questionObjectTemplate"),
}
"""Plural -> place of the pod template."""


def with_template_defaults(plural: str, document: JsonObject, stored: JsonObject | None = None) -> JsonObject:
    """Return a custom resource with the defaults in its pod template; itself if it has none or lacks none.

    Earlier versions stored templates without defaults. Such a template stays as it is until it changes.

    Args:
        plural: Plural of its kind, such as `reservations`.
        stored: The stored custom resource that `document` changes. None: it is new.
    """
    path = _POD_TEMPLATES.get(plural)
    if path is None:
        return document
    before = None if stored is None else _at(stored, path)
    return _changed(document, path, lambda template: template if template == before else with_pod_defaults(template))


def without_template_defaults(plural: str, stored: JsonObject, last: Mapping[str, Any]) -> JsonObject:
    """Return a stored custom resource with the pod template of its last manifest, if only defaults were added to it.

    So a changed limit of the next manifest also changes the request that follows from it.

    Args:
        last: The manifest that was applied last; empty if there is none.
    """
    path = _POD_TEMPLATES.get(plural, ())
    written = _at(last, path)
    if written is None or not path:
        return stored
    completed = with_pod_defaults(written)
    return _changed(stored, path, lambda template: written if template == completed else template)


def _at(document: Mapping[str, Any], path: tuple[str, ...]) -> JsonObject | None:
    found: Any = document
    for name in path:
        found = cast("JsonObject", found).get(name) if isinstance(found, dict) else None
    return cast("JsonObject", found) if isinstance(found, dict) else None


def _changed(holder: JsonObject, path: tuple[str, ...], change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    if not path:
        return change(holder)
    below: Any = holder.get(path[0])
    if not isinstance(below, dict):
        return holder
    before = cast("JsonObject", below)
    after = _changed(before, path[1:], change)
    return holder if after is before else {**holder, path[0]: after}
