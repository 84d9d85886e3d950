"""The cluster in numbers: now, at a moment, and over time."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.shell.answers import NodeItem, SeriesAnswer

SUMMED = (
    "cpu_milli", "memory_bytes", "gpus", "cpu_requested", "memory_requested", "gpus_requested", "batch_cpu",
    "batch_memory", "batch_cpu_requested", "batch_memory_requested",
)  # fmt: skip
SERIES_COLUMNS = (
    "cpu_milli", "cpu_requested", "memory_bytes", "memory_requested", "batch_cpu", "batch_cpu_requested",
    "batch_memory", "batch_memory_requested", "pods_pending", "pods_placed", "pods_running",
)  # fmt: skip
_RANGE = text("SELECT min(second) AS first, max(second) AS last FROM cluster_series")
_TOTALS = text(
    f"""
    SELECT DISTINCT ON (second / :bucket) second, {", ".join(SERIES_COLUMNS)} FROM cluster_series
     WHERE second BETWEEN :since AND :until ORDER BY second / :bucket, second DESC
    """  # noqa: S608  constants
)
_INTERVAL = text("SELECT interval_seconds FROM observations ORDER BY reported_at DESC LIMIT 1")
_USED = text(
    """
    SELECT bucket, sum(cpu)::bigint AS cpu, sum(memory)::bigint AS memory, sum(be_cpu)::bigint AS be_cpu
      FROM (SELECT token, floor(extract(epoch FROM reported_at::timestamptz) / :bucket)::bigint AS bucket,
                   avg(cpu_used) AS cpu, avg(memory_used) AS memory, avg(be_cpu_used) AS be_cpu
              FROM observations
             WHERE reported_at >= to_char(to_timestamp(:since) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
               AND reported_at < to_char(to_timestamp(:until) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
             GROUP BY 1, 2) AS per_node
     GROUP BY bucket ORDER BY bucket
    """
)


def sum_nodes(nodes: list[NodeItem]) -> dict[str, int]:
    """Sums over nodes of what the summary shows; usage over those that have reported."""
    sums = {name: sum(getattr(node, name) for node in nodes) for name in SUMMED}
    for name in ("cpu_used", "memory_used", "be_cpu_used"):
        sums[name] = sum(getattr(node, name) or 0 for node in nodes)
    return sums


async def series(connection: AsyncConnection, *, since: int | None, until: int | None, points: int) -> SeriesAnswer:
    """Totals between two seconds (None: from the first, to the last), thinned to about `points`.

    Of each bucket the newest totals; usage is the mean of each node's reports in the bucket, summed over nodes, in
    buckets that are at least as long as the report interval and over already.
    """
    known = (await connection.execute(_RANGE)).one()
    if known.first is None:
        return SeriesAnswer(time=[], columns={name: [] for name in SERIES_COLUMNS}, usage_time=[], usage=_usage([]))
    start, end = since if since is not None else known.first, until if until is not None else known.last
    bucket = max(1, -(-(end - start + 1) // points))
    rows = (await connection.execute(_TOTALS, {"bucket": bucket, "since": start, "until": end})).all()
    interval = (await connection.execute(_INTERVAL)).scalar() or 60
    wide = max(bucket, interval)
    asked = {"bucket": wide, "since": start // wide * wide, "until": (end + 1) // wide * wide}
    used = (await connection.execute(_USED, asked)).all()
    return SeriesAnswer(
        time=[row.second for row in rows],
        columns={name: [getattr(row, name) for row in rows] for name in SERIES_COLUMNS},
        usage_time=[(row.bucket + 1) * wide for row in used],
        usage=_usage(used),
    )


def _usage(rows: Sequence[Row[Any]]) -> dict[str, list[int]]:
    return {name: [getattr(row, name) for row in rows] for name in ("cpu", "memory", "be_cpu")}
