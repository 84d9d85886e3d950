"""The outcome of applying a document, before anything is appended."""

from typing import NamedTuple

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest

from koord_manager.domain.admission.request import JsonObject


class Applied(NamedTuple):
    """What applying a document decided.

    action    "created", "configured", "unchanged" or "rejected" (configuration that is recorded as refused)
    uid       uid of the object, "" for kinds that are known by name
    drafts    facts to append together: all or none
    refusal   for "rejected": what is wrong
    steps     of admission that changed the object
    given     the object that they were given, None when no step changed one
    made      what they made of it
    warnings  what is worth a look in it, taken or not
    """

    action: str
    uid: str
    drafts: list[Draft]
    refusal: InvalidManifest | None = None
    steps: tuple[str, ...] = ()
    given: JsonObject | None = None
    made: JsonObject | None = None
    warnings: tuple[str, ...] = ()
