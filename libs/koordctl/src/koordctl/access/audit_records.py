"""Audit records: of requests to services, of what `koord` itself computes from the log, and of the descheduler.

The records of the descheduler come from the projector, which finds them among millions of facts, else from the log.
"""

import os
import socket
import time
import uuid
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode

from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordcore.events.envelope import AggregateRef, Origin, StoredEvent, name_token
from koordcore.events.objects import PodSpecAdded
from koordcore.ports.eventlog import EventLog
from koordcore.protocol.recommendations import controls, workload_of
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.values import codec

from koordctl.access.clients import ask, find_service
from koordctl.access.folding import everything_kept
from koordctl.access.log import open_log

PATIENCE_SECONDS: Final = 2.0
"""Longest wait for a projector that is a little behind the log."""
_PAGE: Final = 1_000


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

    Raises:
        LogTrouble: The log cannot be reached.
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
        await log.bus.audit.publish(AggregateRef("request", "koord"), record, origin)


async def modifications(wanted: dict[str, str], since: int) -> list[Modification]:
    """Return the records of changes by the descheduler, oldest first.

    The projector answers, if it has all facts of the log. Otherwise, the whole log is read.

    Args:
        wanted: Parameter of `/api/audit` -> its value, by which the projector selects. Records from the log are
            selected by `workload` only.
        since: Only records after this position of the log.

    Raises:
        LogTrouble: The log cannot be reached.
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
    """Return whether there is a node with this name, or was one. True if the log has dropped its first facts."""
    async with open_log() as log:
        first = (await log.bus.events.head()).first_seq
        return first > 1 or bool(await log.bus.events.read_aggregate(AggregateRef("nodespec", name_token(name))))


def _projected(wanted: dict[str, str], since: int, head: int) -> list[Modification] | None:
    """Return the records that the projector has; None if it does not answer or is behind the log."""
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
    """Return the records in the log, oldest first.

    All facts of these kinds are read, because later facts of a story do not name its object.

    Args:
        log: The log.
        since: Only records after this position.
        head: Position up to which the log is read.
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
