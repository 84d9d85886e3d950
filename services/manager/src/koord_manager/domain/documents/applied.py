"""The outcome of applying a document, before anything is appended."""

from typing import NamedTuple

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest

from koord_manager.domain.admission.request import JsonObject


class Applied(NamedTuple):
    """The result of applying a document.

    Attributes:
        action: "created", "configured", "unchanged" or "rejected" (a configuration that is recorded as refused).
        uid: Uid of the object, or empty for kinds that are identified by name.
        drafts: Facts to append together.
        refusal: The faults, for "rejected".
        steps: Steps of admission that changed the object.
        given: The object before the steps, or None if no step changed it.
        made: The object after the steps.
        warnings: Warnings about the object, accepted or not.
    """

    action: str
    uid: str
    drafts: list[Draft]
    refusal: InvalidManifest | None = None
    steps: tuple[str, ...] = ()
    given: JsonObject | None = None
    made: JsonObject | None = None
    warnings: tuple[str, ...] = ()
