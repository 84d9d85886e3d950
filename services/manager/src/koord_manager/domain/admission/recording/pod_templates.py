"""Reduce pod templates inside custom resources to the fields that the log keeps of pods.

The schema of such a template is open, so it may contain a secret. Writes to these objects change other fields, so the
object at an API server keeps its whole template.

Source:
    event-bus spec, 2.1 (cut down to the fields that are used); protocol spec, 9.6, 9.7
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from koordcore.protocol.manifests import shape_mismatch
from koordcore.protocol.objects import without_nulls
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.recording.recorded_object import recorded_reservation, recorded_template
from koord_manager.domain.admission.request import JsonObject

TEMPLATES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Any], JsonObject]]]] = {
    "reservations": (("spec", "template"), recorded_template),
    "podmigrationjobs": (("spec", "reservationOptions", "template"), recorded_reservation),
    "scheduleexplanations": (("spec", "questionObjectTemplate"), recorded_template),
}
"""Plural -> place of the template, and the function that reduces it."""


class RecordedDocument(NamedTuple):
    """A custom resource as the log records it.

    Attributes:
        document: The object with the reduced pod template.
        fault: Reason why the template is not valid and was recorded as empty, or None.
    """

    document: JsonObject
    fault: InvalidInput | None = None


def with_recorded_templates(plural: str, document: JsonObject) -> RecordedDocument:
    """Return a copy of a custom resource whose pod template is reduced to the fields that the log keeps of pods.

    A resource without a pod template is returned itself. The argument is never changed.

    Args:
        plural: Plural of its kind, such as `reservations`.
        document: The object.
    """
    if plural not in TEMPLATES:
        return RecordedDocument(document)
    path, keep = TEMPLATES[plural]
    holders = [document]
    for name in path[:-1]:
        below: Any = holders[-1].get(name)
        if not isinstance(below, dict):
            return RecordedDocument(document)
        holders.append(cast("JsonObject", below))
    given: Any = holders[-1].get(path[-1])
    if given is None:
        return RecordedDocument(document)
    fault = None
    try:
        recorded = keep(without_nulls(given))
    except (codec.DecodeError, RecursionError, OverflowError) as error:
        recorded, fault = keep({}), shape_mismatch(error, given).at(".".join(path))
    for holder, name in zip(reversed(holders), reversed(path), strict=True):
        recorded = {**holder, name: recorded}
    return RecordedDocument(recorded, fault)
