"""Values of usage reports that lists and charts need."""

from datetime import datetime

from koordcore.events.agents.observation import NodeUsageReported, Usage
from koordcore.values.timestamps import rfc3339

EXPIRED_AFTER_INTERVALS = 5
"""Number of report intervals after which a report without successor is too old to be used."""
LONGEST_TIME = 64
LONGEST_TOKEN = 512


def best_effort_usage(report: NodeUsageReported) -> Usage:
    """Return the summed usage of the pods with QoS class BE in a usage report."""
    cpu_milli = memory_bytes = 0
    for pod in report.pods:
        if pod.qos == "BE":
            cpu_milli += pod.usage.cpu_milli
            memory_bytes += pod.usage.memory_bytes
    return Usage(cpu_milli, memory_bytes)


def report_time(report: NodeUsageReported) -> str | None:
    """Return the time of a usage report, RFC 3339 with microseconds; None if the report has no valid time."""
    try:
        moment = datetime.fromisoformat(report.updated_at[:LONGEST_TIME])
        return rfc3339(moment) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
