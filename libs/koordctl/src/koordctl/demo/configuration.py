"""The ConfigMap slo-controller-config of the demo, with intervals that fit the speed of the run.

It enables colocation and best-effort suppression. Intervals are times of the run: at speed 360, one report per
simulated hour is one report per ten real seconds. This module is pure.
"""

import json
import math
from typing import Any, Final

REPORT_REAL_SECONDS: Final = 10.0
DEGRADE_REPORTS: Final = 12
"""Batch resources are withdrawn after this number of missed reports; a busy machine may be late with some."""
CPU_RECLAIM_PERCENT: Final = 65
SUPPRESS_PERCENT: Final = 65


def report_interval_seconds(speed: float) -> int:
    """Return the simulated seconds between two usage reports of a node in the demo: 10 real seconds, at least 1.

    Args:
        speed: Simulated seconds per real second.
    """
    return max(1, round(REPORT_REAL_SECONDS * speed))


def slo_controller_config(speed: float, *, protect: bool = True) -> dict[str, Any]:
    """Return the ConfigMap slo-controller-config for a run of the demo.

    Args:
        speed: Simulated seconds per real second.
        protect: Whether best-effort pods are suppressed when latency-sensitive pods need their CPU.
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
