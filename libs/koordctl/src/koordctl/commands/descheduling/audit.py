"""`koord audit`: what the descheduler changed, or refused to change, with its reasons; and who asked the services."""

from collections.abc import Sequence
from typing import Annotated

import typer
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.values import codec

from koordctl.access.audit_records import audited_requests
from koordctl.access.log import open_log, wait_for
from koordctl.render.output import Format, show_document, show_table
from koordctl.render.units import time_text

_SHOWN = 2
_OF_NODES = ("cordon", "uncordon", "taint", "untaint", "label")
_REQUEST_COLUMNS = ("AT", "SUBJECT", "ROLES", "REQUEST", "OBJECTS", "STATUS", "BY")
_COLUMNS = ("AT", "ACTION", "DECISION", "POD", "NODE", "BY", "CONFIGURATION", "REASONS")


def audit(
    pod: Annotated[str | None, typer.Option("--pod", help="Only this pod: its name, namespace/name, or uid.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node, and pods and drains of it.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only this PodMigrationJob.")] = None,
    plugin: Annotated[str | None, typer.Option("--plugin", help="Only this plugin or controller, or Drain.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this action, e.g. config_change, dry_run.")
    ] = None,
    since: Annotated[int, typer.Option("--since", help="Only records after this position of the log.")] = 0,
    requests: Annotated[
        bool, typer.Option("--requests", help="Show who asked the services for what, and the result.")
    ] = False,
    subject: Annotated[
        str | None, typer.Option("--subject", help="With --requests: only this subject, for example token:alice.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")] = Format.TABLE,
) -> None:
    """Show what the descheduler changed or refused to change, and who changed its configuration or tried another one.

    Nodes that were closed or opened are shown whoever did it. BY names the plugin or the drain, else it was a user.

    With --requests, show who asked the services for a change, a dry run or a what-if, and with which result. The log
    keeps these records for 90 days.

    Examples:

      koord audit --requests --subject token:alice

      koord audit --pod default/web-0

      koord audit --action config_change -o json

      koord audit --node node-1 --plugin LowNodeLoad -o json
    """
    if requests:
        _show_requests(subject, since, output)
        return

    def is_wanted(record: Modification) -> bool:
        return (
            record.position > since
            and pod in (None, record.pod, record.uid, f"{record.namespace}/{record.pod}")
            and node in (None, record.node)
            and job in (None, record.job)
            and plugin in (None, record.plugin)
            and action in (None, record.action)
        )

    records = [record for record in wait_for(_records()) if is_wanted(record)]
    if output in (Format.JSON, Format.YAML):
        show_document(codec.to_builtins(records), output)
        return
    rows = [
        (
            time_text(each.at),
            each.action,
            each.decision,
            _about(each),
            each.node or "-",
            each.asked_by or each.plugin or "a user",
            each.configuration[:8] or "-",
            "; ".join(each.reasons) or _changed(each),
        )
        for each in records
    ]
    show_table(_COLUMNS, rows, empty="the descheduler has changed nothing")


def _about(record: Modification) -> str:
    """Return the pod of a record; the object, drain or gang if it is about none."""
    if record.pod:
        return f"{record.namespace}/{record.pod}"
    return next((record.after[name] for name in ("name", "drain", "gang") if name in record.after), "-")


def _changed(record: Modification) -> str:
    """Return what a record without reasons changed: the status of a job, the event of a drain, or a field of a node."""
    if record.action in _OF_NODES:
        return "; ".join(f"{name}={value}" for name, value in record.after.items())
    return record.after.get("status", record.after.get("event", "-"))


async def _records() -> list[Modification]:
    """Return the records of all changes by the descheduler; all facts are read, because later ones name no object."""
    reader = AuditReader()
    async with open_log() as log:
        head = await log.bus.events.head()
        return [
            record
            async for batch in log.bus.events.history(max(head.first_seq - 1, 0), head.last_seq, kinds=KINDS)
            for stored in batch
            for record in reader.read(stored)
        ]


def _show_requests(subject: str | None, since: int, output: Format) -> None:
    """Print the audit records of requests, oldest first."""
    found = [
        (event, record) for event, record in wait_for(audited_requests(since)) if subject in (None, record.subject)
    ]
    if output in (Format.JSON, Format.YAML):
        records = [
            {"position": event.seq, "at": event.occurred_at, "by": event.actor, **codec.to_builtins(record)}
            for event, record in found
        ]
        show_document(records, output)
        return
    rows = [
        (
            time_text(event.occurred_at),
            record.subject,
            ",".join(record.roles) or "-",
            f"{record.method} {record.route}" + (" (dry run)" if record.dry_run else ""),
            _shortened(record.objects),
            record.status,
            event.actor,
        )
        for event, record in found
    ]
    show_table(_REQUEST_COLUMNS, rows, empty="nobody has asked for anything yet")


def _shortened(objects: Sequence[str]) -> str:
    """Return the first objects of a record; `-o json` shows all."""
    more = len(objects) - _SHOWN
    return ", ".join(objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "-"
