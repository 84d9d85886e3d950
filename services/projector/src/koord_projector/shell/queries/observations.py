"""Archived usage reports of all nodes, in pages from old to new."""

import zlib
from typing import Final

import msgspec
from koordcore.stories.usage_archive import ArchivedReport, ReportsAnswer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

MAX_PAGE: Final = 1_000
_PAGE: Final = text(
    """
    SELECT token, reported_at, seq, body FROM observations
     WHERE (reported_at, token) > (:since, :after) ORDER BY reported_at, token LIMIT :limit
    """
)


async def page_reports(connection: AsyncConnection, *, since: str, after: str, limit: int) -> ReportsAnswer:
    """Return a page of archived reports, with their bodies as stored.

    Args:
        connection: Read transaction.
        since: Earliest time of a report, in the form of `rfc3339`; "": the time of the oldest report.
        after: Of the reports with exactly this time, only those of nodes after this one are returned.
        limit: Largest number of reports.
    """
    rows = await connection.execute(_PAGE, {"since": since, "after": after, "limit": limit})
    return ReportsAnswer(
        reports=[
            ArchivedReport(
                node=row.token,
                reported_at=row.reported_at,
                seq=row.seq,
                body=msgspec.Raw(zlib.decompress(row.body)),
            )
            for row in rows
        ]
    )
