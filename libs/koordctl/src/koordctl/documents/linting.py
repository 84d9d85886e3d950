"""The checks of `koord lint`: the effects of applying files, decided without a cluster.

A simulated cluster that holds only these files makes the decisions that the manager would make. Each document is
checked for its shape, goes through admission and apply (`koord_manager.domain`), and is added to the simulated cluster.

A document may therefore use objects of earlier documents.
"""

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from koord_manager.domain.admission.json_patch import json_patch
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import Applied
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.documents.warnings import document_warnings
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin, StoredEvent
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.documents.priority_classes import priority_class_manifests

_NOW = "2026-01-01T00:00:00.000000Z"


class Finding(NamedTuple):
    """The effect that applying one document would have.

    Attributes:
        kind: Kind of the object.
        namespace: Its namespace, or empty if it has none.
        name: Its name.
        steps: Steps of admission that would change the object.
        patch: The change as JSON patch (RFC 6902).
        violations: Reasons for a refusal, or empty if the document would be accepted.
        warnings: Values that are accepted and probably wrong.
    """

    kind: str
    namespace: str
    name: str
    steps: tuple[str, ...]
    patch: tuple[dict[str, Any], ...]
    violations: tuple[InvalidInput, ...]
    warnings: tuple[str, ...] = ()


class Linter:
    """Decides about documents as the manager would, with a simulated cluster that holds the documents checked so far.

    The simulated cluster starts with the priority classes that every installation has.
    """

    def __init__(self, options: Options) -> None:
        """Create a cluster that holds the installed priority classes.

        Args:
            options: Options of admission, such as feature gates.
        """
        self._options = options
        self._view = ManagerView()
        self._uids = (str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(1 << 62))
        for manifest in priority_class_manifests():
            self._applied(manifest)

    def judge(self, documents: Iterable[object]) -> list[Finding]:
        """Return the effect of applying each document, in order.

        Accepted documents become part of the simulated cluster.
        """
        return [self._judge(document) for document in documents]

    def _judge(self, document: object) -> Finding:
        kind, namespace, name = _named(document)
        unread = document_warnings(document)
        try:
            manifest = shape_manifest(document)
            meta = manifest.object.metadata
            kind, namespace, name = manifest.kind, meta.namespace, meta.name
            applied = self._applied(document)
        except InvalidManifest as refused:
            return Finding(kind, namespace, name, (), (), tuple(refused.violations), unread)
        violations = tuple(applied.refusal.violations) if applied.refusal else ()
        patch = () if applied.given is None or applied.made is None else tuple(json_patch(applied.given, applied.made))
        return Finding(kind, namespace, name, applied.steps, patch, violations, (*unread, *applied.warnings))

    def _applied(self, document: object) -> Applied:
        manifest = shape_manifest(document)
        applied = decide_apply(self._view, manifest, new_uid=next(self._uids), now=_NOW, options=self._options)
        for draft in applied.drafts:
            self._fold(draft)
        return applied

    def _fold(self, draft: Draft) -> None:
        seq = self._view.state.position + 1
        origin = Origin(causation_id=f"lint/{seq}", correlation_id="", actor="lint", occurred_at=_NOW)
        sealed = CATALOGUE.seal([draft], origin)[0]
        self._view.fold(StoredEvent(seq, sealed.ref, sealed.headers, sealed.body))


def _named(document: object) -> tuple[str, str, str]:
    """Return the kind, namespace and name of a document, as far as they can be read."""
    try:
        fields = codec.convert(document, dict[str, Any])
        meta = codec.convert(fields.get("metadata") or {}, dict[str, Any])
    except codec.DecodeError:
        return "document", "", "?"
    return str(fields.get("kind") or "document"), str(meta.get("namespace") or ""), str(meta.get("name") or "?")
