"""Pod templates inside of custom resources, as the log keeps them: by the rule that decisions keep them by.

    document --with_kept_templates--> document without environment, command, arguments, probes, options of volumes

A template is open in its schema, so whatever a user has is in it. What writes to these objects patches other fields of
them, so an API server's object keeps all it has.

source    event-bus spec, 2.1 (cut down to the fields that are used); protocol spec, 9.6, 9.7
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from koordcore.protocol.manifests import shape_mismatch
from koordcore.protocol.objects import without_nulls
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.recording.recorded_object import kept_reservation, kept_template
from koord_manager.domain.admission.request import JsonObject

TEMPLATES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Any], JsonObject]]]] = {
    "reservations": (("spec", "template"), kept_template),
    "podmigrationjobs": (("spec", "reservationOptions", "template"), kept_reservation),
    "scheduleexplanations": (("spec", "questionObjectTemplate"), kept_template),
}
"""Plural -> where its objects hold a template, and what is kept of it."""


class Kept(NamedTuple):
    """A custom resource as the log keeps it.

    fault    what is wrong with its template, which then is left empty; None: nothing is
    """

    document: JsonObject
    fault: InvalidInput | None = None


def with_kept_templates(plural: str, document: JsonObject) -> Kept:
    """The object with the kept part of its pod template, the same object when it has none; it is not changed."""
    if plural not in TEMPLATES:
        return Kept(document)
    path, keep = TEMPLATES[plural]
    holders = [document]
    for name in path[:-1]:
        below: Any = holders[-1].get(name)
        if not isinstance(below, dict):
            return Kept(document)
        holders.append(cast("JsonObject", below))
    given: Any = holders[-1].get(path[-1])
    if given is None:
        return Kept(document)
    fault = None
    try:
        kept = keep(without_nulls(given))
    except (codec.DecodeError, RecursionError, OverflowError) as error:
        kept, fault = keep({}), shape_mismatch(error, given).at(".".join(path))
    for holder, name in zip(reversed(holders), reversed(path), strict=True):
        kept = {**holder, name: kept}
    return Kept(kept, fault)
