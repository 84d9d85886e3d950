"""Vectors of the descheduler's configuration file (descheduler spec, 3)."""

from __future__ import annotations

from conformance.registry import Json, adapter, disputed
from koord_descheduler.domain.config.loading import ConfigurationRefused, load
from koord_descheduler.domain.plugins.registry import BUILT_IN

disputed(
    "descheduler.config_parse",
    "weights of thresholded resources default to one",
    "reality, 5.5: LowNodeLoad with a resource in only one of both thresholds, here foo.com/bar, is refused"
    " (test_a_resource_needs_both_thresholds)",
)


@adapter(
    "descheduler.config_parse",
    exact_text=("name", "stage"),
    sublists=("profiles", "pluginConfig", "enabled", "nodePools"),
    mentions=("mentions",),
)
def config_parse(given: dict[str, Json]) -> dict[str, Json]:
    """The effective configuration of a file, or the stage and the texts of its refusal."""
    try:
        configuration = load(given["yaml"].encode(), BUILT_IN)
    except ConfigurationRefused as refused:
        return {"ok": False, "stage": str(refused.stage), "mentions": refused.sentence()}
    return {"ok": True, "config": configuration.as_json()}
