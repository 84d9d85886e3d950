"""Check the data of slo-controller-config before it comes into force.

`validate_config` is the webhook `/validate-configmap`. `cautions` finds values that are valid and probably wrong, such
as a threshold that lends more than a node has, or a field that is ignored.

Source:
    protocol spec, 6.2; manager spec, 12, 4.1 (reclaim thresholds may exceed 100), 18 (limits to state to users)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from koordcore.protocol.config.admission import NodeLabels, validate_config_map
from koordcore.protocol.config.config_map import SloControllerConfig, read_config_map
from koordcore.protocol.config.sections import SectionName
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.json_object import seen, text, texts
from koord_manager.domain.admission.request import JsonObject, Operation, Violation
from koord_manager.domain.admission.unread_fields import unread

SLO_CONFIG_NAMESPACE = "koordinator-system"
SLO_CONFIG_NAME = "slo-controller-config"


def check_slo_config(
    data: Mapping[str, str], old_data: Mapping[str, str], nodes: Sequence[NodeLabels]
) -> list[InvalidInput]:
    """Return the violations in the sections of slo-controller-config; their paths begin with the key of the section.

    If sections cannot be read, return one violation for each of them, otherwise the first broken rule only (protocol
    spec, 6.2, 6.11). Sections that are equal in `old_data` are not checked again. No two entries of a section may
    select the same of the `nodes`.
    """
    unreadable = [
        InvalidInput(
            rejection.rule,
            rejection.value,
            f"{rejection.section.key}.{rejection.field}" if rejection.field else rejection.section.key,
        )
        for rejection in read_config_map(None, data).rejections
    ]
    if unreadable:
        return unreadable
    result = validate_config_map(data, old_data, nodes, check_names=False)
    if result.allowed:
        return []
    return [InvalidInput(result.rule or result.message, result.value, result.field or str(result.reason))]


WHOLE = 100
RECLAIM_ABOVE_SUPPRESS = 5
"""Percent points by which the reclaim threshold may stand above the suppress threshold without a warning."""
_RECLAIM = ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")


def config_warnings(config: SloControllerConfig) -> dict[str, str]:
    """Return warnings about valid values that are probably wrong: field -> sentence.

    Only sections that are configured and enabled for the cluster are looked at. All node entries are checked, even if
    one selects no node.
    """
    return {**_lending(config), **dict(_crossed_bounds(config))}


def _lending(config: SloControllerConfig) -> dict[str, str]:
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


def _crossed_bounds(config: SloControllerConfig) -> Iterator[tuple[str, str]]:
    """Yield the bounds of node health that stand in the wrong order, so that a level or a signal has no effect."""
    section = config.section(SectionName.SLO_ADJUST)
    if section is None or not section.cluster["enable"]:
        return
    key, levels = SectionName.SLO_ADJUST.key, section.cluster
    signals = cast("Mapping[str, Mapping[str, object]]", levels["signals"])
    pairs = [
        (f"{key}.recoverLevel", levels["recoverLevel"], "warnLevel", levels["warnLevel"]),
        (f"{key}.warnLevel", levels["warnLevel"], "criticalLevel", levels["criticalLevel"]),
        *(
            (f"{key}.signals.{name}.warn", bounds["warn"], "critical", bounds["critical"])
            for name, bounds in signals.items()
        ),
    ]
    for field, lower, above, upper in pairs:
        if isinstance(lower, int | float) and isinstance(upper, int | float) and lower >= upper:
            yield field, f"{lower:g} is not below {above} ({upper:g}): what lies between them never happens"


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
    """Return warnings `field: sentence` about values that are valid and probably wrong, or ignored.

    A section that is not valid has no warnings. `data`: section key -> JSON text.
    """
    found = config_warnings(read_config_map(None, data).config)
    return (*unread(data), *(f"{field}: {sentence}" for field, sentence in found.items()))


def validate_config(
    operation: Operation,
    config: JsonObject,
    old: JsonObject | None,
    *,
    ours: tuple[str, str],
    namespace: str,
    nodes: Iterable[NodeLabels],
    check_names: bool,
) -> list[Violation]:
    """Return the first violation in a changed section of slo-controller-config, as a list of one or none.

    Other ConfigMaps and deletions are allowed.

    Args:
        ours: Namespace and name of slo-controller-config.
        namespace: Namespace of the request, for an object without one.
        check_names: Whether the names of node strategies must be set and unique (--node-strategy-name-need-check).

    Raises:
        InvalidInput: The ConfigMap has the wrong shape.

    Source: manager spec, 12; vectors manager/configmap_validate.
    """
    if operation is Operation.DELETE or not _is(config, ours, namespace):
        return []
    old_data = texts(old, "data") if old is not None else {}
    return check_data(texts(config, "data"), old_data, list(nodes), check_names=check_names)


def config_cautions(config: JsonObject, *, ours: tuple[str, str], namespace: str) -> tuple[str, ...]:
    """Return the warnings about slo-controller-config (`ours`: its namespace and name); none for other ConfigMaps.

    Raises:
        InvalidInput: The ConfigMap has the wrong shape.
    """
    return cautions(texts(config, "data")) if _is(config, ours, namespace) else ()


def _is(config: JsonObject, ours: tuple[str, str], namespace: str) -> bool:
    metadata = seen(config, "metadata")
    return (text(metadata, "namespace") or namespace, text(metadata, "name")) == ours


def check_data(
    data: Mapping[str, str], old_data: Mapping[str, str], nodes: Sequence[NodeLabels], *, check_names: bool
) -> list[Violation]:
    """Return the first violation of a section that differs between `old_data` and `data`, as a list of one or none."""
    result = validate_config_map(data, old_data, nodes, check_names=check_names, require_both_bounds=True)
    if result.allowed or result.reason is None:
        return []
    return [Violation(rule=str(result.reason), field=result.field, message=result.http_message())]
