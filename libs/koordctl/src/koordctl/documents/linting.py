"""What applying files would do, without a cluster: the manager's own decisions on a cluster of nothing but these files.

    documents -> shape -> admission and apply (`koord_manager.domain`) -> fold into a view -> the next document

So a document may use what stands before it, and is judged exactly as `koord apply` would judge it.
"""

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recording.json_patch import json_patch
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.document_warnings import document_warnings
from koord_manager.domain.documents.applied import Applied
from koord_manager.domain.documents.apply import decide_apply
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin, StoredEvent
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.documents.priority_classes import priority_class_manifests

_NOW = "2026-01-01T00:00:00.000000Z"


class Finding(NamedTuple):
    """What would become of one document.

    steps       of admission that would change it
    patch       RFC 6902: how
    violations  why it would be refused; empty when it would be taken
    warnings    what is worth a look in it, taken or not
    """

    kind: str
    namespace: str
    name: str
    steps: tuple[str, ...]
    patch: tuple[dict[str, Any], ...]
    violations: tuple[InvalidInput, ...]
    warnings: tuple[str, ...] = ()


class Linter:
    """A cluster that consists of what was linted so far, and of the priority classes that are installed with it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._view = ManagerView()
        self._uids = (str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(1 << 62))
        for manifest in priority_class_manifests():
            self._applied(manifest)

    def judge(self, documents: Iterable[object]) -> list[Finding]:
        """Findings of the documents, in order."""
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
    """Kind, namespace and name, as far as they can be read."""
    try:
        fields = codec.convert(document, dict[str, Any])
        meta = codec.convert(fields.get("metadata") or {}, dict[str, Any])
    except codec.DecodeError:
        return "document", "", "?"
    return str(fields.get("kind") or "document"), str(meta.get("namespace") or ""), str(meta.get("name") or "?")
