"""`koord lint`: check manifests and show what admission would change. No cluster is needed.

A simulated cluster that holds only these files makes the decisions that the manager would make. Each document is
checked for its shape, goes through admission and apply (`koord_manager.domain`), and is added to the simulated cluster.
A document may therefore use objects of earlier documents.
"""

import uuid
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer
from koord_manager.domain.admission.json_patch import json_patch
from koord_manager.domain.admission.options import GATE_DEFAULTS, Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import WITHIN_RULE, Applied
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.documents.warnings import document_warnings
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin, StoredEvent
from koordcore.protocol.manifests import InvalidManifest, read_documents, shape_manifest
from koordcore.service.flags import Gate, Stage, parse_feature_gates
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.files import UNREADABLE, manifest_texts
from koordctl.objects.priority_classes import priority_class_manifests
from koordctl.render.output import errors, fail, write_line

_NOW = "2026-01-01T00:00:00.000000Z"
_SCHEDULER_CONFIGURATION = "KubeSchedulerConfiguration"


class Finding(NamedTuple):
    kind: str
    namespace: str  # Its namespace, or empty if it has none
    name: str
    steps: tuple[str, ...]  # Steps of admission that would change the object
    patch: tuple[dict[str, Any], ...]  # The change as JSON patch (RFC 6902)
    violations: tuple[InvalidInput, ...]  # Reasons for a refusal, or empty if the document would be accepted
    warnings: tuple[str, ...] = ()  # Values that are accepted and probably wrong


class Linter:
    """Decides about documents as the manager would, with a simulated cluster that holds the documents checked so far.

    The simulated cluster starts with the priority classes that every installation has.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._view = ManagerView()
        self._uids = (str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(1 << 62))
        for manifest in priority_class_manifests():
            self._applied(manifest)

    def judge(self, documents: Iterable[object]) -> list[Finding]:
        """The effect of applying each document, in order. Accepted documents become part of the simulated cluster."""
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
    """Kind, namespace and name of a document, as far as they can be read."""
    try:
        fields = codec.convert(document, dict[str, Any])
        meta = codec.convert(fields.get("metadata") or {}, dict[str, Any])
    except codec.DecodeError:
        return "document", "", "?"
    return str(fields.get("kind") or "document"), str(meta.get("namespace") or ""), str(meta.get("name") or "?")


_GATES = [Gate(name, default, Stage.BETA if default else Stage.ALPHA) for name, default in GATE_DEFAULTS.items()]


def lint(
    files: Annotated[
        list[str],
        typer.Argument(help="Files, folders (their `.yaml`, `.yml` and `.json` files), or - for standard input."),
    ],
    context: Annotated[
        list[str] | None,
        typer.Option("--context", "-c", help="Files with objects that the cluster already has; not reported."),
    ] = None,
    feature_gates: Annotated[
        list[str] | None, typer.Option("--feature-gates", help="The manager's feature gates, as `A=true,B=false`.")
    ] = None,
    patch: Annotated[bool, typer.Option("--patch", help="Show what admission would change, as JSON patch.")] = False,
) -> None:
    """Check manifests as `koord apply` and the webhooks would, without a cluster.

    Documents are admitted in order; each one sees the documents before it. Colocation profiles are applied, quotas
    are checked against their tree, configuration against its ranges. Objects that exist only in the cluster are
    unknown: name files with them by --context. An unknown QoS class, or a misspelt field or key, gives a warning.
    Exit status 1: a document would be refused. Exit status 2: a file is not valid YAML or JSON, or no file contains
    objects.

    Examples:

      koord lint examples/

      koord lint examples/pod.yaml --context examples/colocation.yaml --patch
    """
    try:
        gates = parse_feature_gates(feature_gates or [], _GATES)
    except InvalidInput as error:
        fail(f"--feature-gates: {error}", status=2)
    linter = Linter(Options(gates=dict(gates.values)))
    for name in context or ():
        for label, text in manifest_texts(name):
            documents = _documents(label, text)
            if documents is None:
                raise typer.Exit(UNREADABLE)
            linter.judge(documents)
    good, readable, found = True, True, 0
    for name in files:
        for label, text in manifest_texts(name):
            documents = _documents(label, text)
            readable = readable and documents is not None
            found += len(documents or ())
            for finding in linter.judge(documents or ()):
                good = _report(label, finding, patch=patch) and good
    if not readable or not found:
        raise typer.Exit(UNREADABLE)
    if not good:
        raise typer.Exit(1)


def _documents(label: str, text: bytes) -> list[object] | None:
    """Print a note if a text contains no objects. If it cannot be read, print an error and return None."""
    try:
        documents = read_documents(text)
    except InvalidInput as error:
        errors.print(f"{label}: {error.sentence()}")
        return None
    if not documents:
        errors.print(f"{label}: no objects in it")
    return documents


def _report(label: str, finding: Finding, *, patch: bool) -> bool:
    where = f"{finding.kind.lower()}/{finding.name}" + (f" in {finding.namespace}" if finding.namespace else "")
    for warning in finding.warnings:
        errors.print(f"{label}: {where} warning: {warning}")
    if finding.violations:
        errors.print(f"{label}: {where} would be refused")
        for violation in finding.violations:
            rule = violation.rule.removeprefix(WITHIN_RULE)
            sentence = violation.sentence() if rule == violation.rule else f"{violation.value} ({rule})"
            errors.print(f"  {sentence}")
        if finding.kind == _SCHEDULER_CONFIGURATION:
            hint = f"  this is not an API object: check it with `koord scheduler check-config {label}`"
            errors.print(hint)
        return False
    changed = f", changed by {', '.join(finding.steps)}" if finding.steps else ""
    write_line(f"{label}: {where} ok{changed}")
    if patch:
        for operation in finding.patch:
            write_line(f"  {codec.encode(operation).decode()}")
    return True
