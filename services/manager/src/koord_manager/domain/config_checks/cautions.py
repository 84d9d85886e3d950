"""Find values of a valid configuration that are probably wrong.

For example, a threshold that lends more than a node has, or a field that is ignored.

Source:
    manager spec, 4.1 (reclaim thresholds may exceed 100), 18 (limits to state to users)
"""

from collections.abc import Iterator, Mapping

from koordcore.protocol.config.config_map import SloControllerConfig, read_config_map
from koordcore.protocol.config.sections import SectionName

from koord_manager.domain.config_checks.unread_fields import unread

WHOLE = 100
RECLAIM_ABOVE_SUPPRESS = 5
"""Percent points by which the reclaim threshold may stand above the suppress threshold without a warning."""
_RECLAIM = ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")


def config_warnings(config: SloControllerConfig) -> dict[str, str]:
    """Return warnings about valid values of the colocation strategies that are probably wrong: field -> sentence.

    The cluster strategy and the strategies of all node entries are checked, even if an entry selects no node. The
    result is empty if colocation is not configured, or disabled in the cluster strategy.
    """
    section = config.section(SectionName.COLOCATION)
    if section is None or not section.cluster["enable"]:
        return {}
    found = dict(_beyond_the_node(section.cluster, SectionName.COLOCATION.key))
    for number, entry in enumerate(section.entries):
        path = f"{SectionName.COLOCATION.key}.nodeConfigs[{number}]"
        found |= {
            field: sentence
            for field, sentence in _beyond_the_node(entry.strategy, path)
            if section.cluster[_last(field)] != entry.strategy[_last(field)]
        }
    reclaim = section.cluster["cpuReclaimThresholdPercent"]
    threshold = config.sections[SectionName.RESOURCE_THRESHOLD].cluster
    suppress = threshold["cpuSuppressThresholdPercent"]
    is_twice = isinstance(reclaim, int) and isinstance(suppress, int) and reclaim > suppress + RECLAIM_ABOVE_SUPPRESS
    if threshold["enable"] and is_twice:
        found[f"{SectionName.RESOURCE_THRESHOLD.key}.cpuSuppressThresholdPercent"] = (
            f"batch pods are lent cpu up to {reclaim} % of a node and held back from {suppress} % on:"
            " what lies between is lent and taken away at once"
        )
    return found


def _beyond_the_node(strategy: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    for field in _RECLAIM:
        percent = strategy[field]
        if isinstance(percent, int) and percent > WHOLE:
            what = "cpu" if field.startswith("cpu") else "memory"
            yield (
                f"{path}.{field}",
                f"{percent} % may lend more {what} than a node has: up to {percent - WHOLE} % of it do not exist",
            )


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def cautions(data: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings about values of slo-controller-config that are valid and probably wrong, or ignored.

    Each warning is a text `field: sentence`. A section that is not valid has no warnings.

    Args:
        data: Section key -> JSON text.
    """
    found = config_warnings(read_config_map(None, data).config)
    return (*unread(data), *(f"{field}: {sentence}" for field, sentence in found.items()))
