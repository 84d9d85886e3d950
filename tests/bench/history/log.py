"""Write a generated history into a real stream of facts: as fast as the server stores it, in the order of the log.

Only the last message of a batch asks for an answer. The server stores messages of one connection in their order, so
its answer has the position of the whole batch.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.client.wire import hpub
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import api
from koordcore.bus.setup.streams import StreamSpec
from support.projector.busy_month import Written

_PATIENCE_SECONDS: Final = 120.0


class NotStored(Exception):
    """The server did not store each fact at the position that follows the one before."""


class _Answer(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


async def write_facts(
    connection: BusConnection,
    names: BusNames,
    spec: StreamSpec,
    batches: Iterable[list[Written]],
    progress: Callable[[int], None],
) -> int:
    """Append facts to the empty stream of facts and return the position of the last one.

    Args:
        connection: Connection of a user that may publish facts and change the stream.
        names: Names of the cluster.
        spec: Configuration of the stream of facts.
        batches: The facts; a batch must be smaller than what the server queues (10,000 messages).
        progress: Called with the position after each batch.

    Raises:
        NotStored: A fact was not stored, or the stream was not empty.
    """
    # The server remembers ids for the whole window: for ten million facts that would be a gigabyte of its memory.
    await _configure(connection, spec, duplicate_window_seconds=1)
    prefix, position = names.prefix("ev"), 0
    for batch in batches:
        if not batch:
            continue
        *some, last = batch
        connection.write(b"".join([hpub(prefix + each.subject, "", each.header, each.body) for each in some]))
        reply = await connection.request(
            prefix + last.subject, last.body, header=last.header, timeout=_PATIENCE_SECONDS
        )
        answer = msgspec.json.decode(reply.data, type=_Answer)
        position += len(batch)
        if answer.seq != position:
            raise NotStored(f"the last fact of a batch must be at {position}, got {reply.data!r}")
        progress(position)
    await _configure(connection, spec, duplicate_window_seconds=spec.duplicate_window_seconds)
    return position


async def _configure(connection: BusConnection, spec: StreamSpec, *, duplicate_window_seconds: float) -> None:
    config = {**spec.config(), "duplicate_window": int(duplicate_window_seconds * 1_000_000_000)}
    await api(connection, f"$JS.API.STREAM.UPDATE.{spec.name}", msgspec.json.encode(config))
