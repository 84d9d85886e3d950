"""The outcome of applying a document, before anything is appended."""

from typing import Any, NamedTuple

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest


class Applied(NamedTuple):
    """What applying a document decided.

    action    "created", "configured", "unchanged" or "rejected" (configuration that is recorded as refused)
    uid       uid of the object, "" for kinds that are known by name
    drafts    facts to append together: all or none
    refusal   for "rejected": what is wrong
    steps     of admission that changed the object
    patch     RFC 6902: what they changed, against the document
    warnings  what is worth a look in it, taken or not
    """

    action: str
    uid: str
    drafts: list[Draft]
    refusal: InvalidManifest | None = None
    steps: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
