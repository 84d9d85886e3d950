"""Vectors of the descheduler's configuration file (descheduler spec, 3)."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_descheduler.domain.config.loading import ConfigurationRefused, load
from koord_descheduler.domain.plugins.registry import BUILT_IN


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
