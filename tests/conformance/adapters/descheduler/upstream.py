"""Vectors of the descheduler's upstream plugins (descheduler spec, 10)."""

from __future__ import annotations

from functools import partial

from conformance.adapters.descheduler.running import play
from conformance.registry import adapter

_PLUGINS = {
    "failed_pods": "RemoveFailedPods",
    "high_node_utilization": "HighNodeUtilization",
    "interpod_antiaffinity": "RemovePodsViolatingInterPodAntiAffinity",
    "low_node_utilization": "LowNodeUtilization",
    "node_affinity": "RemovePodsViolatingNodeAffinity",
    "node_taints": "RemovePodsViolatingNodeTaints",
    "pod_lifetime": "PodLifeTime",
    "remove_duplicates": "RemoveDuplicates",
    "too_many_restarts": "RemovePodsHavingTooManyRestarts",
    "topology_spread_balance": "RemovePodsViolatingTopologySpreadConstraint",
}

for _kind, _plugin in _PLUGINS.items():
    adapter(f"descheduler.{_kind}", exact_text=("evicted", "order"), whole=("evicted_per_node",))(
        partial(play, _plugin)
    )
