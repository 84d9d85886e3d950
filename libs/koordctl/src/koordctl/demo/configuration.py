"""The slo-controller-config of the demo: colocation and best-effort suppression, at intervals that fit the run's speed.

Pure. Windows are lengths of the run's time: at speed 360 a report every simulated hour is one every ten real seconds.
"""

import json
import math
from typing import Any, Final

REPORT_REAL_SECONDS: Final = 10.0
DEGRADE_REPORTS: Final = 12
"""Batch resources are withdrawn after so many missed reports; a busy machine may be late with some."""
CPU_RECLAIM_PERCENT: Final = 65
SUPPRESS_PERCENT: Final = 65


def report_interval_seconds(speed: float) -> int:
    """Seconds of the run's time between two reports of a node."""
    return max(1, round(REPORT_REAL_SECONDS * speed))


def slo_controller_config(speed: float, *, protect: bool = True) -> dict[str, Any]:
    """The ConfigMap.

    protect    whether best effort is held back when latency-sensitive pods need their CPU
    """
    interval = report_interval_seconds(speed)
    colocation = {
        "enable": True,
        "metricReportIntervalSeconds": interval,
        "metricAggregateDurationSeconds": interval,
        "cpuReclaimThresholdPercent": CPU_RECLAIM_PERCENT,
        "memoryReclaimThresholdPercent": CPU_RECLAIM_PERCENT,
        "degradeTimeMinutes": max(1, math.ceil(interval * DEGRADE_REPORTS / 60)),
        "updateTimeThresholdSeconds": interval * 3,
        "resourceDiffThreshold": 0.1,
    }
    thresholds = {
        "clusterStrategy": {
            "enable": protect,
            "cpuSuppressThresholdPercent": SUPPRESS_PERCENT,
            "cpuSuppressPolicy": "cfsQuota",
        }
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {
            "colocation-config": json.dumps(colocation, indent=2),
            "resource-threshold-config": json.dumps(thresholds, indent=2),
        },
    }
