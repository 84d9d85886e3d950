"""The load thresholds of a node. Each part of its annotation replaces that part of the arguments.

Source:
    scheduler-core spec, 7.4 (2), (3)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from koordcore.protocol import lenient_json
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.assigned import Vector, vector_of


class Limits(NamedTuple):
    """The usage thresholds of a node for koord-prod pods, or for other pods.

    Attributes:
        percent: Threshold per considered resource in percent of the node's size; 0 means no limit.
        by_prod: Whether only the usage of koord-prod pods is compared.
        aggregation: (type, period in seconds) of the percentile that is compared; None for the average usage.
    """

    percent: Vector
    by_prod: bool = False
    aggregation: tuple[str, float] | None = None

    @property
    def is_set(self) -> bool:
        """Return whether any resource has a threshold."""
        return any(percent > 0 for percent in self.percent)


class NodeThresholds(NamedTuple):
    """The usage thresholds of a node: `prod` for koord-prod pods, `other` for all other pods."""

    prod: Limits
    other: Limits


class _Aggregated(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class _Custom(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    aggregated_usage: _Aggregated | None = None


def node_thresholds(text: str, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> NodeThresholds:
    """Return the usage thresholds of a node.

    A malformed annotation, and resources that are not considered, are ignored.

    Args:
        text: Text of the node's annotation with thresholds, "" if there is none. Each part replaces that of `args`.
        args: Arguments of the plugin.
        resources: The considered resources.
    """
    usage, prod, aggregated = args.usage_thresholds, args.prod_usage_thresholds, _of_args(args)
    custom = _custom(text)
    if custom is not None:
        own, own_aggregated = custom
        usage = own.usage_thresholds or usage
        prod = own.prod_usage_thresholds or prod
        aggregated = own_aggregated or aggregated
    if aggregated is not None:
        percent, kind, seconds = aggregated
        other = Limits(vector_of(percent, resources), aggregation=(kind, seconds))
    else:
        other = Limits(vector_of(usage, resources))
    prod_percent = vector_of(prod, resources)
    return NodeThresholds(Limits(prod_percent, by_prod=True) if any(prod_percent) else other, other)


_AggregatedPart = tuple[Mapping[str, int], str, float]
"""Thresholds, type, period in seconds."""


def _of_args(args: LoadAwareSchedulingArgs) -> _AggregatedPart | None:
    part = args.aggregated
    if part is None or not part.usage_thresholds or not part.usage_aggregation_type:
        return None
    return part.usage_thresholds, part.usage_aggregation_type, part.usage_aggregated_duration


def _custom(text: str) -> tuple[_Custom, _AggregatedPart | None] | None:
    if not text:
        return None
    try:
        custom = lenient_json.decode(text, _Custom)
        part = custom.aggregated_usage
        seconds = parse_seconds(part.usage_aggregated_duration) if part and part.usage_aggregated_duration else 0.0
    except InvalidInput:
        return None
    if part is None or not part.usage_thresholds or not part.usage_aggregation_type:
        return custom, None
    return custom, (part.usage_thresholds, part.usage_aggregation_type, seconds)
