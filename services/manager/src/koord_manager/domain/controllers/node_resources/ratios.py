"""Compute the two ratios of a node as annotations: cpu normalization and resource amplification.

Source:
    manager spec, 5.6, 5.7
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from koordcore.protocol.amplification import (
    AmplificationStrategy,
    CpuBasicInfo,
    NormalizationStrategy,
    amplification_ratios,
    cpu_normalization_ratio,
    format_normalization_ratio,
    format_ratios,
    parse_cpu_normalization_enabled,
)
from koordcore.protocol.config.strategy import Strategy
from koordcore.values.invalid import InvalidInput


class Ratio(NamedTuple):
    """The text of a ratio's annotation, or the reason why the ratio cannot be computed.

    Attributes:
        text: Text of the annotation. If None, a present normalization stays, and a present amplification is removed.
        fault: Reason why it cannot be computed, or empty.
    """

    text: str | None
    fault: str = ""


def normalization_text(strategy: Strategy | None, labels: Mapping[str, str], info: CpuBasicInfo | None) -> Ratio:
    """Return the cpu normalization annotation of a node: how much faster its processor is than the reference.

    Args:
        strategy: Strategy of cpu-normalization-config for the node, or None if no configuration was ever accepted.
        labels: Labels of the node.
        info: Model and properties of the processor, or None if the agent has not reported them.

    Source:
        manager spec, 5.6; vectors manager/cpu_normalization
    """
    if strategy is None:
        return Ratio(None)
    try:
        enabled = parse_cpu_normalization_enabled(labels)
        typed = msgspec.convert(strategy, NormalizationStrategy)
        return Ratio(format_normalization_ratio(cpu_normalization_ratio(info, typed, enabled)))
    except InvalidInput as error:
        return Ratio(None, error.sentence())


def amplification_text(strategy: Strategy | None, annotations: Mapping[str, str]) -> Ratio:
    """Return the resource amplification annotation of a node, computed from the normalization in its annotations.

    Args:
        strategy: Strategy of resource-amplification-config for the node, or None if no configuration was ever
            accepted.
        annotations: Annotations of the node.

    Source:
        manager spec, 5.7; vectors manager/amplification_ratio
    """
    if strategy is None:
        return Ratio(None)
    try:
        ratios = amplification_ratios(msgspec.convert(strategy, AmplificationStrategy), annotations)
    except InvalidInput as error:
        return Ratio(None, error.sentence())
    return Ratio(format_ratios(ratios) if ratios else None)
