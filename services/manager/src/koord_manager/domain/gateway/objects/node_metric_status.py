"""Decide the writes of our agents' usage reports to the status of NodeMetric objects.

People look there (`kubectl get nodemetrics`), and so do programs that were written for Koordinator. Our services read
the reports themselves. The status is applied on the server's side, so only our fields are replaced.

A report that differs from the written one in its time only is written when the written time is old, because readers
take a NodeMetric for expired by its time: the shortest limit, that of Koordinator's LoadAwareScheduling, is 180 s.

Source:
    protocol spec, 9.1; agent spec, 7; decision 0055
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from koordcore.events.observation import GpuUsage, NodeUsageReported, Usage
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values import codec
from koordcore.values.duration import format_duration

from koord_manager.domain.gateway.objects.node_objects import NODE_METRIC, SLO_GROUP, Known
from koord_manager.domain.gateway.requests import APPLY_PARAMETERS, APPLY_PATCH, Json, Request

REFRESH_SECONDS: Final = 120.0
"""Age of the written time from which an equal status is written again."""


class Written(NamedTuple):
    uid: str  # Uid of the object
    updated_at: str  # Time of the written report, RFC 3339
    digest: bytes  # Digest of the written status without its time
    seen: str  # Time of the last report that was compared


def pending_node_metric_status(
    name: str, report: NodeUsageReported, known: Known, written: Written | None
) -> tuple[Request | None, Written]:
    """Return the request that writes a report, or None if nothing has to be written, and what is written after it.

    Args:
        name: Name of the node.
        known: The NodeMetric object at the API server.
        written: What this manager has written to it, or None before the first write.
    """
    if written is not None and written.uid != known.uid:
        written = None
    if written is not None and written.seen == report.updated_at:
        return None, written
    status = status_of(report)
    digest = hashlib.blake2b(codec.encode({**status, "updateTime": ""}), digest_size=16).digest()
    if written is not None and written.digest == digest and _age(written, report) < REFRESH_SECONDS:
        return None, written._replace(seen=report.updated_at)
    body: Json = {
        "apiVersion": SLO_GROUP,
        "kind": "NodeMetric",
        "metadata": {"name": name, "uid": known.uid},
        "status": status,
    }
    path = f"{NODE_METRIC}/{name}/status"
    request = Request("nodemetric-status", "PATCH", path, body, APPLY_PATCH, APPLY_PARAMETERS)
    return request, Written(known.uid, report.updated_at, digest, report.updated_at)


def _age(written: Written, report: NodeUsageReported) -> float:
    """Return the seconds between two reports; the clock of a node may go back."""
    later, earlier = (datetime.fromisoformat(text) for text in (report.updated_at, written.updated_at))
    return abs((later - earlier).total_seconds())


def status_of(report: NodeUsageReported) -> Json:
    """Return the status of a NodeMetric as Koordinator's node agent writes it."""
    status: Json = {
        "updateTime": report.updated_at,
        "podsMetric": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "podUsage": _used(pod.usage, pod.gpus),
                "priority": pod.priority_class,
                "qos": pod.qos,
                **({"extensions": pod.extensions} if pod.extensions else {}),
            }
            for pod in report.pods
        ],
        "hostApplicationMetric": [
            {
                "name": application.name,
                "usage": {"resources": _amounts(application.usage)},
                "priority": application.priority_class,
                "qos": application.qos,
            }
            for application in report.host_applications
        ],
    }
    node: Json = {}
    if report.numa:
        node["numaUsages"] = [
            {
                "numaNodeID": numa.numa_node,
                "nodeUsage": {"resources": _amounts(numa.node_usage)},
                **({"systemUsage": {"resources": _amounts(numa.system_usage)}} if numa.system_usage else {}),
            }
            for numa in report.numa
        ]
    if report.node_usage is not None:
        node["nodeUsage"] = _used(report.node_usage, report.gpus)
    if report.system_usage is not None:
        node["systemUsage"] = {"resources": _amounts(report.system_usage)}
    windows = {
        "aggregatedNodeUsages": report.aggregated_node_usages,
        "aggregatedSystemUsages": report.aggregated_system_usages,
    }
    for field, found in windows.items():
        if found:
            node[field] = [
                {
                    "usage": {kind: {"resources": _amounts(usage)} for kind, usage in item.usage.items()},
                    "duration": format_duration(item.duration_seconds * 1_000_000_000),
                }
                for item in found
            ]
    if node:
        status["nodeMetric"] = node
    # Koordinator's agent writes an empty amount if it has no prediction, and no peak.
    status["prodReclaimableMetric"] = {"resource": _resources(report.prod_reclaimable)}
    if report.prod_peak is not None:
        status["prodPeakMetric"] = {"resource": _resources(report.prod_peak)}
    return status


def _used(usage: Usage, gpus: Sequence[GpuUsage]) -> Json:
    """Return a usage and the GPUs in use as JSON, in the form of a NodeMetric (agent spec, 7)."""
    devices = [
        {
            "id": gpu.uuid,
            "minor": gpu.minor,
            "type": "gpu",
            "resources": {
                GPU_CORE: str(gpu.core_percent),
                GPU_MEMORY: str(gpu.memory_bytes),
                GPU_MEMORY_RATIO: str(gpu.memory_percent),
            },
        }
        for gpu in gpus
    ]
    return {"resources": _amounts(usage), **({"devices": devices} if devices else {})}


def _resources(usage: Usage | None) -> Json:
    return {"resources": _amounts(usage)} if usage is not None else {}


def _amounts(usage: Usage) -> Json:
    return {"cpu": f"{usage.cpu_milli}m", "memory": str(usage.memory_bytes)}
