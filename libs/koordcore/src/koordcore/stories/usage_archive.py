"""Archived usage reports, as the projector answers them, and the time by which they are ordered."""

from datetime import datetime
from typing import Final

import msgspec

from koordcore.events.observation import NodeUsageReported
from koordcore.values.timestamps import rfc3339

LONGEST_TIME: Final = 64  # Characters of a time that are read; a valid time has fewer


def report_time(report: NodeUsageReported) -> str | None:
    """Return the time of a usage report, RFC 3339 with microseconds; None if the report has no valid time."""
    try:
        moment = datetime.fromisoformat(report.updated_at[:LONGEST_TIME])
        return rfc3339(moment) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


class ArchivedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A usage report in the archive."""

    node: str  # Subject token of the node
    reported_at: str  # Time of the report, see `report_time`. The archive has one report of a node for each time.
    seq: int  # Position of the report in the stream of observations
    body: msgspec.Raw  # The report as its agent encoded it


class ReportsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of archived usage reports of all nodes, in the order of their times."""

    reports: list[ArchivedReport]
