"""Totals of the cluster: now, at a moment, and over time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from koordcore.values.invalid import InvalidInput
from sqlalchemy import Row, text

from koord_projector.fold.archives import EXPIRED_AFTER_INTERVALS
from koord_projector.read.endpoint import At, Query, Reading, Second, about
from koord_projector.read.moments import Moment
from koord_projector.read.nodes import NodeItem, list_nodes
from koord_projector.read.pods import PHASES, pod_counts

SERIES_COLUMNS = (
    "cpu_milli", "cpu_requested", "memory_bytes", "memory_requested", "batch_cpu", "batch_cpu_requested",
    "batch_memory", "batch_memory_requested", "pods_pending", "pods_placed", "pods_running",
)  # fmt: skip
_RANGE = text("SELECT min(second) AS first, max(second) AS last FROM cluster_series")
_TOTALS = text(
    f"""
    SELECT DISTINCT ON (second / :bucket) second, seq, {", ".join(SERIES_COLUMNS)} FROM cluster_series
     WHERE second BETWEEN :since AND :until ORDER BY second / :bucket, second DESC
    """  # noqa: S608  constants
)
_NEWEST_REPORT = text("SELECT reported_at, interval_seconds FROM observations ORDER BY stored_at_ns DESC LIMIT 1")
_USED = text(
    """
    WITH per_node AS (
         SELECT token, floor(extract(epoch FROM reported_at::timestamptz) / :bucket)::bigint AS bucket,
                avg(cpu_used)::bigint AS cpu, avg(memory_used)::bigint AS memory, avg(be_cpu_used)::bigint AS be_cpu,
                max(interval_seconds) AS interval
           FROM observations
          WHERE reported_at >= to_char(to_timestamp(:since) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
            AND reported_at < to_char(to_timestamp(:until) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
          GROUP BY 1, 2
    ), held AS (
         SELECT bucket AS begin, cpu, memory, be_cpu,
                LEAST(lead(bucket) OVER (PARTITION BY token ORDER BY bucket),
                      bucket + 1 + ceil(interval * :intervals / CAST(:bucket AS numeric))::bigint) AS stop
           FROM per_node
    ), changes AS (
         SELECT begin AS bucket, cpu, memory, be_cpu, 1 AS nodes, 1 AS reported FROM held
          UNION ALL
         SELECT stop, -cpu, -memory, -be_cpu, -1, 0 FROM held
    )
    SELECT bucket, sum(reported) AS reported, (sum(sum(nodes)) OVER w)::bigint AS nodes,
           (sum(sum(cpu)) OVER w)::bigint AS cpu,
           (sum(sum(memory)) OVER w)::bigint AS memory, (sum(sum(be_cpu)) OVER w)::bigint AS be_cpu
      FROM changes GROUP BY bucket WINDOW w AS (ORDER BY bucket) ORDER BY bucket
    """
)
USED_COLUMNS = ("cpu", "memory", "be_cpu")


class ClusterQuery(Query, frozen=True, kw_only=True):
    at: At = ""


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the cluster at one moment, in milli-cores and bytes: sums over the nodes that exist.

    Attributes:
        cpu_milli: Sum of allocatable cpu. Memory, `gpus` and the other sums are those of the fields of `NodeItem`.
        nodes_reporting: Number of nodes whose newest usage report has not expired; of `nodes_silent`, it has.
        reservations: Number of Reservations that hold a node.
        cpu_unused_reserved: CPU that they hold and no pod uses; contained in `cpu_requested`. The other `..._reserved`
            fields likewise.
        pods: Phase -> number of pods.
    """

    moment: Moment
    nodes: int
    nodes_reporting: int
    nodes_silent: int
    cpu_milli: int
    memory_bytes: int
    gpus: int
    cpu_requested: int
    memory_requested: int
    gpus_requested: int
    cpu_used: int
    memory_used: int
    be_cpu_used: int
    batch_cpu: int
    batch_memory: int
    batch_cpu_requested: int
    batch_memory_requested: int
    reservations: int
    cpu_unused_reserved: int
    memory_unused_reserved: int
    gpus_unused_reserved: int
    pods: dict[str, int]


_SUMMED = tuple(
    name for name in ClusterAnswer.__struct_fields__ if name in NodeItem.__struct_fields__ and name != "pods"
)
_USED_AMOUNTS = ("cpu_used", "memory_used", "be_cpu_used")


async def read_cluster(reading: Reading, _query: ClusterQuery) -> ClusterAnswer:
    """Usage is summed only over nodes whose newest usage report has not expired, as in the series."""
    nodes = await list_nodes(reading.connection, reading.moment, reading.now, reading.clock)
    pods = await pod_counts(reading.connection, reading.moment)
    reporting = [node for node in nodes if node.reported_at is not None and node.silent_seconds is None]
    return ClusterAnswer(
        moment=reading.moment,
        nodes=len(nodes),
        nodes_reporting=len(reporting),
        nodes_silent=sum(node.silent_seconds is not None for node in nodes),
        pods={phase: pods.get(phase, 0) for phase in PHASES},
        **{name: sum(getattr(node, name) or 0 for node in nodes) for name in _SUMMED if name not in _USED_AMOUNTS},
        **{name: sum(getattr(node, name) or 0 for node in reporting) for name in _USED_AMOUNTS},
    )


class SeriesQuery(Query, frozen=True, kw_only=True):
    since: Annotated[Second, about("First second since 1970.")] | None = None
    until: Annotated[Second, about("Last second since 1970.")] | None = None
    points: Annotated[int, msgspec.Meta(ge=10, le=2000), about("About so many points.")] = 300


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the cluster over time, as columns on two time axes. CPU in milli-cores, memory in bytes.

    Attributes:
        time: Unix seconds of each row of `columns`, ascending; not evenly spaced.
        positions: Position of the newest fact at each `time`.
        columns: Name (`cpu_milli`, `cpu_requested`, `batch_cpu`, `pods_pending`, ...) -> values, aligned with `time`.
        usage_time: Unix seconds at which each usage interval ends, evenly spaced.
        usage: `cpu`, `memory`, `be_cpu` (best-effort pods) -> values, aligned with `usage_time`; null: no report.
    """

    time: list[int]
    positions: list[int]
    columns: dict[str, list[int]]
    usage_time: list[int]
    usage: dict[str, list[int | None]]


async def read_series(reading: Reading, query: SeriesQuery) -> SeriesAnswer:
    """Totals of the cluster between two times, reduced to about `points` rows.

    Each interval has its newest totals. Usage is the sum over nodes of the mean of a node's reports in the interval.
    A node without a report in the interval counts with its last report until that expires. Usage is null if no node
    has a valid report, and from the point where reports only expire. Usage intervals are at least as long as the
    report interval and have ended; their time is their end.

    Without `since` it begins with the oldest fact, without `until` it ends with the newest fact or report.
    """
    connection, since, until = reading.connection, query.since, query.until
    if since is not None and until is not None and since > until:
        raise InvalidInput("not before `since`", until, "until")
    known = (await connection.execute(_RANGE)).one()
    if known.first is None:
        return SeriesAnswer(
            time=[], positions=[], columns={name: [] for name in SERIES_COLUMNS}, usage_time=[], usage=_usage([], 0, 0)
        )
    newest = (await connection.execute(_NEWEST_REPORT)).first()
    last = max(known.last, int(datetime.fromisoformat(newest.reported_at).timestamp())) if newest else known.last
    start, end = since if since is not None else known.first, until if until is not None else last
    bucket = max(1, -(-(end - start + 1) // query.points))
    rows = (await connection.execute(_TOTALS, {"bucket": bucket, "since": start, "until": end})).all()
    interval = (newest.interval_seconds if newest else 0) or 60
    wide = max(bucket, interval)
    first, stop = start // wide, (end + 1) // wide
    asked = {
        "bucket": wide,
        "since": first * wide - interval * EXPIRED_AFTER_INTERVALS,
        "until": stop * wide,
        "intervals": EXPIRED_AFTER_INTERVALS,
    }
    changes = (await connection.execute(_USED, asked)).all()
    return SeriesAnswer(
        time=[row.second for row in rows],
        positions=[row.seq for row in rows],
        columns={name: [getattr(row, name) for row in rows] for name in SERIES_COLUMNS},
        usage_time=[(bucket + 1) * wide for bucket in range(first, stop)],
        usage=_usage(changes, first, stop),
    )


def _usage(changes: Sequence[Row[Any]], first: int, stop: int) -> dict[str, list[int | None]]:
    """Column of usage -> sum over the nodes in each bucket from `first` to before `stop`; None: no report.

    `changes` has the sums at the times where they change, in order.
    """
    usage: dict[str, list[int | None]] = {name: [] for name in USED_COLUMNS}
    ahead = iter(changes)
    coming, holds, heard = next(ahead, None), None, 0
    for bucket in range(first, stop):
        while coming is not None and coming.bucket <= bucket:
            coming, holds = next(ahead, None), coming
            heard = holds.nodes if holds.reported else heard
        counts = holds is not None and 0 < holds.nodes >= heard
        for name, column in usage.items():
            column.append(getattr(holds, name) if counts else None)
    return usage
