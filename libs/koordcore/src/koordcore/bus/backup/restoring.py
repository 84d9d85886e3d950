"""Restore a backup on an empty server: everything, or the log as it was at an earlier position or time.

    1. the streams, as they were copied          3. later facts, explanations and snapshots are deleted
    2. the position of the wanted moment         4. `LogRestored` tells readers which facts are missing

The desired states of nodes are left out of an earlier moment. The next leader of the managers writes them again.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from koordcore.bus.adapters.event_log import JetStreamEventLog
from koordcore.bus.adapters.snapshots import JetStreamSnapshotStore
from koordcore.bus.backup.copying import Progress, require_absent, restore_stream
from koordcore.bus.backup.files import Backup
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, StreamReader, api
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin
from koordcore.events.log import LOG, LogRestored
from koordcore.place import Place
from koordcore.ports.eventlog import Appended
from koordcore.values.timestamps import rfc3339

HEADER_BATCH: Final = "Nats-Batch-Id"
_DELETES_AT_ONCE: Final = 200
_DELETE_SECONDS: Final = 60.0
_NO_MESSAGE: Final = (10043, 10057)
"""Error codes of the server when it deletes a position without a message."""


class NotInBackup(Exception):
    """The backup does not contain the wanted position."""


async def restore_backup(
    connection: BusConnection,
    backup: Backup,
    place: Place,
    progress: Progress,
    *,
    replicas: int | None = None,
    upto: int | datetime | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Create the streams of a backup on a server that has none of them, and return the position of their last fact.

    With `upto`, later facts, explanations, dead letters and snapshots are deleted, and the desired states of nodes are
    not restored. If facts were left out, the fact `LogRestored` is appended; the returned position does not count it.

    Args:
        connection: Connection of the user `bootstrap`.
        backup: The manifest, as `read_backup` has checked it.
        place: Place of the backup.
        progress: Called after each chunk, and after each deleted message with 0 bytes.
        replicas: Number of servers that store each stream; None: as many as when the backup was taken.
        upto: Position of the last wanted fact, or the time after which facts are left out (the newest fact with
            `occurred_at <= upto` is the last one). Facts that were appended together are kept or left out together.
            None: everything.
        metadata: Names and values that every stream carries on the server, besides its own.

    Raises:
        NotInBackup: The backup does not contain the position, so nothing was changed; or it has no fact up to the time.
        StreamExists: The server has one of the streams. Nothing was changed.
        ApiError: The server refused a stream.
        NoAnswer: The server stopped answering.
        PlaceTrouble: A file cannot be read.
    """
    names = BusNames(backup.cluster)
    facts = backup.streams[-1]
    if isinstance(upto, int) and not facts.first <= upto <= facts.last:
        raise NotInBackup(f"position {upto}: the backup has the facts {facts.first} to {facts.last}")
    await require_absent(connection, [copy.stream for copy in backup.streams])
    for copy in backup.streams:
        if upto is not None and copy.stream == names.desired:
            continue
        config = {**copy.config, "metadata": {**copy.config.get("metadata", {}), **metadata}}
        if replicas is not None:
            config["num_replicas"] = replicas
        # A stream that once denied to delete messages always does.
        loose = {**config, "deny_delete": False} if upto is not None and copy is facts else config
        await restore_stream(connection, copy, place, progress, loose)
        if copy is facts and upto is not None:
            last = await _cut(connection, names, upto, progress)
            await api(connection, f"$JS.API.STREAM.UPDATE.{copy.stream}", json.dumps(config).encode())
            if last < facts.last:
                await _record(connection, names, backup, last, upto)
            return last
    return facts.last


async def _cut(connection: BusConnection, names: BusNames, upto: int | datetime, progress: Progress) -> int:
    """Delete everything that is later than the wanted moment. Return the position of the last fact that stays."""
    reader = StreamReader(connection, names.ev, names.prefix("ev"))
    head = await reader.head()
    last = upto if isinstance(upto, int) else await _position_at(reader, head.first_seq, head.last_seq, upto)
    last = await _whole_append(reader, last, head.first_seq)
    if last < head.first_seq:
        raise NotInBackup(f"{upto}: the backup has no complete append up to it; its first fact is {head.first_seq}")
    if last >= head.last_seq:
        return last
    first_left_out = await reader.at(last + 1)
    await _delete(connection, names.ev, range(head.last_seq, last, -1), progress)
    if first_left_out is not None:
        moment = datetime.fromtimestamp(first_left_out.stored_at_ns / 1e9, UTC)
        for stream in (names.explanations, names.dlq):
            await _delete_since(connection, stream, moment, progress)
    await JetStreamSnapshotStore(connection, names).delete_after(last)
    return last


async def _position_at(reader: StreamReader, first: int, last: int, moment: datetime) -> int:
    """Return the position of the newest fact that occurred at or before a moment, found by binary search.

    Facts of several writers may be out of order by the duration of an append. The result may be off by so many.
    """
    wanted = rfc3339(moment)
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        stored = await reader.next_of(">", middle)
        if stored is None or stored.occurred_at > wanted:
            high = middle
        else:
            low = max(middle, stored.seq) + 1
    return low - 1


async def _whole_append(reader: StreamReader, position: int, first: int) -> int:
    """Return the last position at or below `position` that does not separate facts of one append."""
    following = await reader.at(position + 1)
    batch = following.headers.get(HEADER_BATCH) if following is not None else None
    if not batch:
        return position
    while position >= first:
        stored = await reader.at(position)
        if stored is None or stored.headers.get(HEADER_BATCH) != batch:
            break
        position -= 1
    return position


async def _delete_since(connection: BusConnection, stream: str, moment: datetime, progress: Progress) -> None:
    reader = StreamReader(connection, stream, "")
    head = await reader.head()
    first = await reader.since(">", moment)
    if first is not None:
        await _delete(connection, stream, range(head.last_seq, first.seq - 1, -1), progress)


async def _delete(connection: BusConnection, stream: str, positions: Iterable[int], progress: Progress) -> None:
    """Delete messages, the newest first. Positions without a message are passed over."""
    reader = StreamReader(connection, stream, "")
    waiting = iter(positions)

    async def delete_next() -> None:
        for position in waiting:
            asked = json.dumps({"seq": position, "no_erase": True}).encode()
            try:
                await api(connection, f"$JS.API.STREAM.MSG.DELETE.{stream}", asked, timeout=_DELETE_SECONDS)
            except ApiError as error:
                if error.err_code not in _NO_MESSAGE or await reader.at(position) is not None:
                    raise
            progress(stream, 0)

    async with asyncio.TaskGroup() as group:
        for _ in range(_DELETES_AT_ONCE):
            group.create_task(delete_next())


async def _record(connection: BusConnection, names: BusNames, backup: Backup, last: int, upto: int | datetime) -> None:
    """Append the fact that tells readers which facts are missing, and why. Services then fold up to it."""
    log = JetStreamEventLog(connection, names)
    head, before = await log.head(), await log.last_of(LOG)
    event = LogRestored(
        position=last,
        left_out_to=head.last_seq,
        asked=str(upto) if isinstance(upto, int) else rfc3339(upto),
        backup_taken_at=backup.taken_at,
    )
    origin = Origin(
        causation_id=f"restore/{backup.taken_at}/{last}",
        correlation_id=str(LOG),
        actor="koord/restore",
        occurred_at=rfc3339(datetime.now(UTC)),
    )
    outcome = await log.append(CATALOGUE.seal([Draft(LOG, event, before.seq if before is not None else 0)], origin))
    if not isinstance(outcome, Appended):
        raise ApiError(503, 0, f"the log refused the fact LogRestored: {outcome}")
