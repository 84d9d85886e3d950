"""Values of usage reports that lists and charts need."""

from koordcore.events.observation import NodeUsageReported, Usage

EXPIRED_AFTER_INTERVALS = 5
"""Number of report intervals after which a report without successor is too old to be used."""
LONGEST_TOKEN = 512


def best_effort_usage(report: NodeUsageReported) -> Usage:
    """Return the summed usage of the pods with QoS class BE in a usage report."""
    cpu_milli = memory_bytes = 0
    for pod in report.pods:
        if pod.qos == "BE":
            cpu_milli += pod.usage.cpu_milli
            memory_bytes += pod.usage.memory_bytes
    return Usage(cpu_milli, memory_bytes)
