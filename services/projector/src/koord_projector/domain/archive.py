"""What is kept of the agents' reports beside their bytes: the figures that lists and charts need."""

from koordcore.events.observation import NodeUsageReported, Usage

LONGEST_TIME = 64
"""A report whose `updated_at` is longer is not archived: it is no time, and an index could not hold it."""


def best_effort_usage(report: NodeUsageReported) -> Usage:
    """What pods of QoS class BE used on the node."""
    cpu_milli = memory_bytes = 0
    for pod in report.pods:
        if pod.qos == "BE":
            cpu_milli += pod.usage.cpu_milli
            memory_bytes += pod.usage.memory_bytes
    return Usage(cpu_milli, memory_bytes)


def is_archivable(token: str, report: NodeUsageReported) -> bool:
    """Whether the report can stand in the archive under its node and time."""
    return len(token) <= 512 and 0 < len(report.updated_at) <= LONGEST_TIME
