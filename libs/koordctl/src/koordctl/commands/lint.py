"""`koord lint`: check manifests and show what admission would change. No cluster is needed."""

import sys
from typing import Annotated

import typer
from koord_manager.domain.admission.options import GATE_DEFAULTS, Options
from koord_manager.domain.documents.admitting import WITHIN_RULE
from koordcore.protocol.manifests import read_documents
from koordcore.service.flags import Gate, Stage, parse_feature_gates
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.documents.linting import Finding, Linter
from koordctl.documents.manifest_files import UNREADABLE, manifest_texts
from koordctl.render.output import errors, fail

_SCHEDULER_CONFIGURATION = "KubeSchedulerConfiguration"
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
    """Return the documents of a text, or None if the text cannot be read.

    The function prints an error if the text cannot be read, and a note if it contains no objects.
    """
    try:
        documents = read_documents(text)
    except InvalidInput as error:
        errors.print(f"{label}: {error.sentence()}", highlight=False, markup=False)
        return None
    if not documents:
        errors.print(f"{label}: no objects in it", highlight=False, markup=False)
    return documents


def _report(label: str, finding: Finding, *, patch: bool) -> bool:
    where = f"{finding.kind.lower()}/{finding.name}" + (f" in {finding.namespace}" if finding.namespace else "")
    for warning in finding.warnings:
        errors.print(f"{label}: {where} warning: {warning}", highlight=False, markup=False)
    if finding.violations:
        errors.print(f"{label}: {where} would be refused", highlight=False, markup=False)
        for violation in finding.violations:
            rule = violation.rule.removeprefix(WITHIN_RULE)
            sentence = violation.sentence() if rule == violation.rule else f"{violation.value} ({rule})"
            errors.print(f"  {sentence}", highlight=False, markup=False)
        if finding.kind == _SCHEDULER_CONFIGURATION:
            hint = f"  this is not an API object: check it with `koord scheduler check-config {label}`"
            errors.print(hint, highlight=False, markup=False)
        return False
    changed = f", changed by {', '.join(finding.steps)}" if finding.steps else ""
    sys.stdout.write(f"{label}: {where} ok{changed}\n")
    if patch:
        for operation in finding.patch:
            sys.stdout.write(f"  {codec.encode(operation).decode()}\n")
    return True
