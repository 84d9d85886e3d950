"""Audit records of requests: read them, and leave one for what `koord` itself computes from the log."""

import os
import socket
import uuid
from datetime import UTC, datetime

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Origin, StoredEvent
from koordcore.events.management.access import RequestAudited

from koordctl.access.folding import everything_kept
from koordctl.access.log import open_log


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

    The record is the command's own word: whoever has the key of the log can compute without it.

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
