"""Vectors of the descheduler's upstream plugins (descheduler spec, 10)."""

from __future__ import annotations

from functools import partial

from conformance.adapters.descheduler.running import play
from conformance.registry import adapter

_PLUGINS = {
    "node_taints": "RemovePodsViolatingNodeTaints",
}

for _kind, _plugin in _PLUGINS.items():
    adapter(f"descheduler.{_kind}", exact_text=("evicted", "order"), whole=("evicted_per_node",))(
        partial(play, _plugin)
    )
