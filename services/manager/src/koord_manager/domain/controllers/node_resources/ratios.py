"""Compute the two ratios of a node as annotations: cpu normalization and resource amplification.

Source:
    manager spec, 5.6, 5.7
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from koordcore.events.nodepolicy import NodeRatiosComputed
from koordcore.protocol import keys
from koordcore.protocol.amplification import (
    REWRITE_ABOVE,
    AmplificationStrategy,
    CpuBasicInfo,
    NormalizationStrategy,
    amplification_ratios,
    cpu_normalization_ratio,
    format_normalization_ratio,
    format_ratios,
    parse_cpu_normalization_enabled,
    parse_normalization_text,
)
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.state.aggregates import NodePolicyState
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.controller_names import AMPLIFICATION, NORMALIZATION
from koord_manager.domain.controllers.configuration import NodeInputs


class Ratio(NamedTuple):
    """The text of a ratio's annotation, or the reason why the ratio cannot be computed."""

    # Text of the annotation. If None, a present normalization stays, and a present amplification is removed.
    text: str | None
    fault: str = ""  # Reason why it cannot be computed, or empty


def normalization_text(strategy: Strategy | None, labels: Mapping[str, str], info: CpuBasicInfo | None) -> Ratio:
    """Return the cpu normalization annotation of a node: how much faster its processor is than the reference.

    `strategy` is None if no configuration was ever accepted, `info` if the agent has not reported the processor.

    Source: manager spec, 5.6; vectors manager/cpu_normalization.
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

    `strategy` is None if no configuration was ever accepted.

    Source: manager spec, 5.7; vectors manager/amplification_ratio.
    """
    if strategy is None:
        return Ratio(None)
    try:
        ratios = amplification_ratios(msgspec.convert(strategy, AmplificationStrategy), annotations)
    except InvalidInput as error:
        return Ratio(None, error.sentence())
    return Ratio(format_ratios(ratios) if ratios else None)


def ratio_event(at: NodeInputs) -> NodeRatiosComputed | None:
    """Return the event with the normalization and amplification of a node, or None if it equals the published one.

    Amplification reads the published normalization, so a new one takes effect in the next cycle.

    Source: manager spec, 5.6, 5.7, 5.9.
    """
    labels, annotations = at.node.metadata.labels, at.node.metadata.annotations
    old = at.published or NodePolicyState(seq=0)
    topology = at.view.topology(at.token)
    info = topology.cpu_basic_info() if topology else None
    faults: dict[str, str] = {}
    new_text: str | None = None
    # left as it is while the node lends nothing
    if NORMALIZATION in at.policies.plugins and at.policies.colocation(at.token, at.node).enable:
        normalization = normalization_text(
            at.policies.config.strategy_for(SectionName.CPU_NORMALIZATION, labels, annotations), labels, info
        )
        new_text = normalization.text
        if normalization.fault:
            faults["normalization"] = normalization.fault
    in_force = at.normalization
    standing = {**annotations, keys.CPU_NORMALIZATION_RATIO: in_force} if in_force is not None else annotations
    had = old.amplification if old.ratios_computed else annotations.get(keys.RESOURCE_AMPLIFICATION_RATIO)
    amplification = (
        amplification_text(
            at.policies.config.strategy_for(SectionName.RESOURCE_AMPLIFICATION, labels, annotations), standing
        )
        if AMPLIFICATION in at.policies.plugins
        else Ratio(had)
    )
    if amplification.fault:
        faults["amplification"] = amplification.fault
    moved = new_text is not None and _ratio_moved(old.cpu_normalization, new_text)
    if not moved and amplification.text == had and faults == old.ratio_faults:
        return None
    return NodeRatiosComputed(
        cpu_normalization=new_text if moved else None,
        amplification=amplification.text,
        faults=faults,
        cpu_model=info.cpu_model if info else "",
        hyper_thread_enabled=info.hyper_thread_enabled if info else False,
        turbo_enabled=info.turbo_enabled if info else False,
        config_version=at.policies.version,
    )


def _ratio_moved(old: str | None, new: str) -> bool:
    """Return whether a ratio has to be published: the old one is absent, invalid, or differs by more than 0.01."""
    before, after = parse_normalization_text(old) if old else None, parse_normalization_text(new)
    return before is None or after is None or abs(after - before) > REWRITE_ABOVE
