"""The two ratios that stand on a node as annotations: cpu normalization and resource amplification.

source    manager spec, 5.6, 5.7
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
)
from koordcore.protocol.annotations.normalization import parse_cpu_normalization_enabled
from koordcore.protocol.config.strategy import Strategy
from koordcore.values.invalid import InvalidInput


class Ratio(NamedTuple):
    """The text of an annotation and what went wrong; text None: left as it is (normalization), removed
    (amplification).
    """

    text: str | None
    fault: str = ""


def normalization_text(strategy: Strategy | None, labels: Mapping[str, str], info: CpuBasicInfo | None) -> Ratio:
    """The cpu normalization annotation of a node; a fault leaves the one that is there.

    strategy    the node's part of cpu-normalization-config; None: never accepted, nothing is computed
    info        None: the agent has not reported its processor

    source    manager spec, 5.6; vectors manager/cpu_normalization
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
    """The amplification annotation of a node, from the normalization that stands on it; a fault removes it.

    source    manager spec, 5.7; vectors manager/amplification_ratio
    """
    if strategy is None:
        return Ratio(None)
    try:
        ratios = amplification_ratios(msgspec.convert(strategy, AmplificationStrategy), annotations)
    except InvalidInput as error:
        return Ratio(None, error.sentence())
    return Ratio(format_ratios(ratios) if ratios else None)
