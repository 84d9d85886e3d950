"""The result of applying one document, before its facts are appended."""

from typing import NamedTuple

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest

from koord_manager.domain.admission.request import JsonObject


class Applied(NamedTuple):
    """The result of applying one document, before its facts are appended.

    Attributes:
        action: "created", "configured", "unchanged", "deleted" or "not-found"; "rejected" for a configuration that is
            recorded as rejected.
        uid: Uid of the object, or empty for kinds that are identified by name.
        drafts: Facts to append together; empty if nothing changes.
        refusal: Violations of a rejected configuration, or None.
        steps: Names of the steps of admission that changed the object.
        given: The object before the steps, or None if no step changed it.
        made: The object after the steps, or None if no step changed it.
        warnings: Warnings about the object, whether it is accepted or rejected.
    """

    action: str
    uid: str
    drafts: list[Draft]
    refusal: InvalidManifest | None = None
    steps: tuple[str, ...] = ()
    given: JsonObject | None = None
    made: JsonObject | None = None
    warnings: tuple[str, ...] = ()
