"""`koord audit`: what the descheduler changed, or refused to change, with its reasons; and who asked the services.

The records of the descheduler come from the projector, which finds them among millions of facts, else from the log.
"""

import os
import socket
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer
from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordcore.events.envelope import AggregateRef, Origin, StoredEvent, name_token
from koordcore.events.objects import PodSpecAdded
from koordcore.ports.eventlog import EventLog
from koordcore.protocol.recommendations import controls, workload_of
from koordcore.service.access.records import fitting
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import ask, find_service, uid_of_pod
from koordctl.access.clock import parse_moment
from koordctl.access.folding import everything_kept
from koordctl.access.log import open_log, wait_for
from koordctl.render.output import Format, Output, fail, show_document, show_table
from koordctl.render.units import time_text

PATIENCE_SECONDS: Final = 2.0
"""Longest wait for a projector that is a little behind the log."""
_PAGE: Final = 1_000
_SHOWN = 2
_OF_NODES = ("cordon", "uncordon", "taint", "untaint", "label")
_REQUEST_COLUMNS = ("AT", "SUBJECT", "ROLES", "REQUEST", "OBJECTS", "STATUS", "BY")
_COLUMNS = ("AT", "ACTION", "DECISION", "POD", "NODE", "BY", "CONFIGURATION", "REASONS")


async def audited_requests(since: int) -> list[tuple[StoredEvent, RequestAudited]]:
    """Return the audit records after a position of their stream, oldest first.

    Raises:
        LogTrouble: The log cannot be reached, or this user may not read them.
    """
    async with open_log() as log:
        kept = await everything_kept(log.bus.audit)
    read = ((stored, CATALOGUE.read(stored)) for stored in kept if stored.seq > since)
    return [(stored, event) for stored, event in read if isinstance(event, RequestAudited)]


async def record_run(route: str, objects: tuple[str, ...]) -> None:
    """Leave an audit record of a what-if that this command has computed.

    Only the command itself writes this record. A user with the key of the log could compute without a record.

    Args:
        route: What is computed, for example "replay --rerun-scheduler".
        objects: Files and bounds that were given.
    """
    record = RequestAudited(
        subject="bus:operator", method="run", route=route, dry_run=True, objects=objects, status=200
    )
    origin = Origin(
        causation_id=str(uuid.uuid4()),
        correlation_id=route,
        actor=f"koord/{socket.gethostname()}/{os.getuid()}",
        occurred_at=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    )
    async with open_log() as log:
        await log.bus.audit.publish(AggregateRef("request", "koord"), fitting(record), origin)


async def modifications(wanted: dict[str, str], since: int) -> list[Modification]:
    """Return the records of changes by the descheduler, oldest first.

    The projector answers, if it has all facts of the log. Otherwise, the whole log is read.

    Args:
        wanted: Parameter of `/api/audit` -> its value, by which the projector selects. Records from the log are
            selected by `workload` only.
        since: Only records after this position of the log.
    """
    async with open_log() as log:
        head = (await log.bus.events.head()).last_seq
        found = _projected(wanted, since, head)
        return (
            await logged_modifications(log.bus.events, since, head, wanted.get("workload", ""))
            if found is None
            else found
        )


async def was_node(name: str) -> bool:
    """Whether there is or was a node with this name. True if the log has dropped its first facts."""
    async with open_log() as log:
        first = (await log.bus.events.head()).first_seq
        return first > 1 or bool(await log.bus.events.read_aggregate(AggregateRef("nodespec", name_token(name))))


def _projected(wanted: dict[str, str], since: int, head: int) -> list[Modification] | None:
    """None if the projector does not answer or is behind the log."""
    base = find_service("projector")
    end = time.monotonic() + PATIENCE_SECONDS
    found: list[Modification] = []
    before: int | None = None
    while base is not None:
        page = _page(base, {**wanted, "after": since, "limit": _PAGE, **({} if before is None else {"before": before})})
        if page is None or not page["complete"]:
            return None
        if page["position"] < head:
            if time.monotonic() > end:
                return None
            time.sleep(0.05)
            continue
        found += codec.convert(page["modifications"], list[Modification])
        before = page["before"]
        if before is None:
            return found[::-1]
    return None


def _page(base: str, params: dict[str, Any]) -> dict[str, Any] | None:
    try:
        reply = ask(f"{base}/api/audit?{urlencode(params)}", timeout=10)
        return reply.json() if reply.is_success else None
    except (OSError, HTTPException, ValueError):
        return None


async def logged_modifications(log: EventLog, since: int, head: int, workload: str = "") -> list[Modification]:
    """Return the records in the log after `since` up to `head`, oldest first.

    All facts of these kinds are read, because later facts of a story do not name its object.

    Args:
        workload: Only records about the pods of this workload, as KIND/NAMESPACE/NAME; "": all records.

    Raises:
        InvalidInput: The workload does not have these three parts.
        LogTrouble: The log cannot be reached.
    """
    reader, first = AuditReader(), (await log.head()).first_seq
    target, uids = workload_of(workload, "--workload") if workload else None, set[str]()
    found: list[Modification] = []
    kinds = KINDS if target is None else (*KINDS, "podspec")
    async for batch in log.history(max(first - 1, 0), head, kinds=kinds):
        for stored in batch:
            if stored.ref.kind != "podspec":
                found.extend(record for record in reader.read(stored) if record.position > since)
            elif target is not None:
                event = CATALOGUE.read(stored)
                if isinstance(event, PodSpecAdded) and controls(target, event.object):
                    uids.add(stored.ref.id)
    return found if target is None else [record for record in found if record.uid in uids]


def audit(
    pod: Annotated[str | None, typer.Option("--pod", help="Only this pod: its name, namespace/name, or uid.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node, and pods and drains of it.")] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", help="Only pods of this workload: KIND/NAMESPACE/NAME.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only this PodMigrationJob.")] = None,
    plugin: Annotated[str | None, typer.Option("--plugin", help="Only this plugin or controller, or Drain.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this action, e.g. config_change, dry_run.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only with this text in the reasons.")] = None,
    since: Annotated[
        str, typer.Option("--since", help="Only records after this position of the log, or from this RFC 3339 time on.")
    ] = "0",
    until: Annotated[str | None, typer.Option("--until", help="Only records up to this RFC 3339 time.")] = None,
    requests: Annotated[
        bool, typer.Option("--requests", help="Show who asked the services for what, and the result.")
    ] = False,
    subject: Annotated[
        str | None, typer.Option("--subject", help="With --requests: only this subject, for example token:alice.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what the descheduler changed or refused to change, and who changed its configuration or tried another one.

    Nodes that were closed or opened are shown whoever did it. BY names the plugin, the drain, or the user of
    `koord cordon`.

    With --requests, show who asked the services for a change, a dry run or a what-if, and with which result. The log
    keeps these records for 90 days.

    Examples:

      koord audit --requests --subject token:alice

      koord audit --pod default/web-0

      koord audit --workload Deployment/web/shop

      koord audit --action config_change -o json

      koord audit --node node-1 --plugin LowNodeLoad -o json

      koord audit --reason overutilized --since 2026-11-26T08:00:00Z
    """
    is_position = since.isascii() and since.isdigit()
    if requests:
        if not is_position:
            fail(f"--since must be a position with --requests, got {since!r}", status=2)
        _show_requests(subject, int(since), output)
        return
    if workload is not None:
        _check_workload(workload)
    begin, end = "" if is_position else _time("--since", since), "" if until is None else _time("--until", until)

    def is_wanted(record: Modification) -> bool:
        return (
            begin <= record.at
            and (not end or record.at <= end)
            and (reason or "").lower() in "; ".join(record.reasons).lower()
            and pod in (None, record.pod, record.uid, f"{record.namespace}/{record.pod}")
            and node in (None, record.node)
            and job in (None, record.job)
            and plugin in (None, record.plugin)
            and action in (None, record.action)
        )

    asked = {
        "pod": pod,
        "node": node,
        "workload": workload,
        "job": job,
        "plugin": plugin,
        "action": action,
        "reason": reason,
    }
    wanted = {name: value for name, value in {**asked, "since": begin, "until": end}.items() if value}
    found = wait_for(modifications(wanted, int(since) if is_position else 0))
    records = [record for record in found if is_wanted(record)]
    if output in (Format.JSON, Format.YAML):
        show_document(codec.to_builtins(records), output)
        return
    if node is not None and not records and not wait_for(was_node(node)):
        fail(f"there is no node {node} and there never was one")
    if pod is not None and "/" in pod and not records and uid_of_pod(*pod.split("/", 1)) is None:
        fail(f"there is no pod {pod} and there never was one")
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
    show_table(
        _COLUMNS,
        rows,
        empty="no change by the descheduler matches" if wanted else "the descheduler has changed nothing",
    )


def _about(record: Modification) -> str:
    """The pod of a record; the object, drain, group of drains or gang if it is about none."""
    if record.pod:
        return f"{record.namespace}/{record.pod}"
    return next((record.after[name] for name in ("name", "drain", "group", "gang") if name in record.after), "-")


def _changed(record: Modification) -> str:
    """What a record without reasons changed: an annotation, a node, a job, or the event of a drain."""
    if record.before:
        return "; ".join(f"{name}: {record.before[name] or '-'} -> {value}" for name, value in record.after.items())
    if record.action in _OF_NODES:
        return "; ".join(f"{name}={value}" for name, value in record.after.items())
    return record.after.get("status", record.after.get("event", "-"))


def _time(option: str, text: str) -> str:
    """The time in the form of the events. End the command if it is not a time."""
    try:
        return rfc3339(parse_moment(text))
    except ValueError:
        fail(f"{option} must be an RFC 3339 time, got {text!r}", status=2)


def _check_workload(text: str) -> None:
    """End the command if a text does not name a workload."""
    try:
        workload_of(text, "--workload")
    except InvalidInput as error:
        fail(error.sentence(), status=2)


def _show_requests(subject: str | None, since: int, output: Format) -> None:
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
    """The first objects; `-o json` shows all."""
    more = len(objects) - _SHOWN
    return ", ".join(objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "") or "-"
