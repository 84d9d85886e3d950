"""How far the projector is: the position of the fold, the hash of its state, and a request to fold again."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.work.endpoints import EndpointServer, Refusal
from koordcore.requests.catalogue import PROJECTOR_COMPARE, PROJECTOR_STATE_HASH, StateHash, StateHashRequest
from koordcore.requests.comparing import CompareRequest, Comparison
from koordcore.requests.endpoint import ErrorCode
from koordcore.state.cluster import combine_digests
from koordcore.values.timestamps import rfc3339
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.context import Progress
from koord_projector.read.endpoint import Query, Reading
from koord_projector.read.moments import resolve
from koord_projector.store.database import READ_ERRORS, Database, first_line

_OLDEST: Final = text("SELECT occurred_at FROM events ORDER BY seq LIMIT 1")
_POSITION: Final = text("SELECT position FROM projection WHERE stream = 'ev'")
_ROWS_AT_ONCE: Final = 2_000

Compare = Callable[[CompareRequest], Awaitable[Comparison]]  # Compares the tables with the log


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `/api/status`: the position up to which the projector has folded the log, and its lag.

    Attributes:
        position: Position of the newest committed fact.
        head: Position of the newest fact in the log.
        lag_events: Number of facts that are not committed yet.
        lag_seconds: Age of the newest committed fact if there are newer ones; else 0.
        trouble: Reason why the fold has stopped; "" while it runs.
        observations: Position up to which observations are archived.
        explanations: Position up to which explanations are archived.
        first_at: RFC 3339 time of the oldest fact; `last_at`: of the newest one. Both are "" without facts.
        now: RFC 3339 time of the answer, on the clock of the run.
    """

    cluster: str
    position: int
    head: int
    lag_events: int
    lag_seconds: float
    trouble: str
    observations: int
    explanations: int
    first_at: str
    last_at: str
    now: str


class RebuildRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request to delete the tables and fold the log again."""

    discard: bool = False  # Whether facts may be deleted that the log does not have


class RebuildAnswer(msgspec.Struct, frozen=True):
    """Answer to a request to delete the tables and fold the log again."""

    accepted: bool


async def read_status(reading: Reading, _query: Query) -> StatusAnswer:
    progress, now = reading.progress, reading.now
    newest = await resolve(reading.connection, None)
    oldest = (await reading.connection.execute(_OLDEST)).scalar()
    return StatusAnswer(
        cluster=reading.cluster,
        position=newest.position,
        head=max(progress.head, newest.position),
        lag_events=max(0, progress.head - newest.position),
        lag_seconds=progress.lag_seconds(now),
        trouble=progress.trouble,
        observations=progress.observations,
        explanations=progress.explanations,
        first_at=oldest or "",
        last_at=newest.occurred_at,
        now=rfc3339(now),
    )


async def read_hash(reading: Reading, _query: Query) -> StateHash:
    return await aggregates_hash(reading.connection)


async def aggregates_hash(connection: AsyncConnection) -> StateHash:
    """It equals `ClusterState.hash()` at that position, because the rows contain the canonical JSON of the states."""
    position = (await connection.execute(_POSITION)).scalar() or 0
    total = 0
    result = await connection.stream(text("SELECT kind, id, state FROM aggregates"))
    async for partition in result.partitions(_ROWS_AT_ONCE):
        total += sum(_digest(row.kind, row.id, row.state) for row in partition)
    return StateHash(position, combine_digests([total]))


def _digest(kind: str, id_: str, state: str) -> int:
    """`koordcore.state.cluster.aggregate_digest` of a state in canonical JSON."""
    return int.from_bytes(hashlib.blake2b(f"{kind}.{id_}\n{state}".encode(), digest_size=16).digest(), "big")


def request_server(
    connection: BusConnection, names: BusNames, database: Database, progress: Progress, compare: Compare
) -> EndpointServer:
    """Answers requests on the bus (`koordcore.requests.catalogue`) from the rows in Postgres."""

    async def state_hash(_request: StateHashRequest) -> StateHash:
        try:
            async with database.reading() as reading:
                found = await aggregates_hash(reading)
            return StateHash(found.position, found.hash, progress.trouble)
        except READ_ERRORS as error:
            raise Refusal(ErrorCode.UNAVAILABLE, f"Postgres is away: {first_line(error)}") from error

    server = EndpointServer(connection, names, workers=1)
    server.serve(PROJECTOR_STATE_HASH, state_hash)
    server.serve(PROJECTOR_COMPARE, compare)
    return server
