"""CPU normalization and resource amplification: their ratios, and their effect on allocatable and requests.

The manager writes the two annotations, admission scales allocatable (truncating), the scheduler scales requests
(rounding up). Source: protocol spec, 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.normalization import parse_cpu_normalization_ratio
from koordcore.protocol.objects import Quantities
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, of_milli
from koordcore.values.resources import ResourceList, amount_of, format_resources, parse_resources, quantity_of

NO_RATIO: Final = -1.0
"""Ratio of a resource that is not amplified."""
LOWEST_NORMALIZATION: Final = 1.0
HIGHEST_NORMALIZATION: Final = 5.0
REWRITE_ABOVE: Final = 0.01
_AMPLIFIED_BY_ADMISSION: Final = (CPU, MEMORY)


def amplify(origin: int, ratio: float) -> int:
    """Return `origin` times `ratio`, rounded up; `origin` itself if the ratio is at most 1.

    The product is computed with 64-bit floats, so 100 times 1.1 gives 111.

    Source:
        protocol spec, 8 (4)
    """
    return origin if ratio <= 1 else math.ceil(float(origin) * ratio)


def amplify_resources(
    requests: Mapping[str, Quantity], ratios: Mapping[str, float], names: Iterable[str] | None = None
) -> ResourceList:
    """Return the resource list with each resource multiplied by its ratio, cpu in milli-cores.

    Args:
        names: Resources to amplify; None for all.

    Source:
        protocol spec, 8 (4), (5)
    """
    chosen = requests.keys() if names is None else set(names)
    amplified = dict(requests)
    for name, quantity in requests.items():
        ratio = ratios.get(name, NO_RATIO)
        if name in chosen and ratio > 1:
            amplified[name] = quantity_of(name, amplify(amount_of(name, quantity), ratio))
    return amplified


def format_ratios(ratios: Mapping[str, float]) -> str:
    """Format ratios for the annotation: names sorted, two decimals, ties rounded half to even.

    Source:
        protocol spec, 8 (2)
    """
    entries = (f"{codec.encode(name).decode()}:{ratios[name]:.2f}" for name in sorted(ratios))
    return "{" + ",".join(entries) + "}"


def parse_ratios(annotations: Mapping[str, str]) -> dict[str, float]:
    """Return the amplification ratios of a node by resource; empty if the annotation is absent or empty.

    Raises:
        InvalidInput: The annotation is not valid JSON, or a ratio is not a number.

    Source:
        protocol spec, 4.4, 8 (3)
    """
    text = annotations.get(keys.RESOURCE_AMPLIFICATION_RATIO)
    if not text:
        return {}
    try:
        decoded = lenient_json.parse_json(text)
        entries = lenient_json.convert({} if decoded is None else decoded, dict[str, float | None])
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{keys.RESOURCE_AMPLIFICATION_RATIO}]") from error
    return {name: ratio for name, ratio in entries.items() if ratio is not None}


def parse_raw_allocatable(annotations: Mapping[str, str]) -> ResourceList | None:
    """Return the allocatable as the kubelet wrote it, before amplification; None if not recorded.

    Raises:
        InvalidInput: The annotation is not valid JSON, or a quantity is invalid.

    Source:
        protocol spec, 4.4
    """
    text = annotations.get(keys.RAW_ALLOCATABLE)
    if text is None:
        return None
    try:
        return parse_resources(lenient_json.parse_json(text))
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{keys.RAW_ALLOCATABLE}]") from error


class NodeUpdate(NamedTuple):
    """Result of the admission of a node status update.

    Attributes:
        allocatable: Allocatable to store.
        raw_allocatable: Text of the annotation to store; None removes the annotation.
    """

    allocatable: ResourceList
    raw_allocatable: str | None


def amplify_node_update(
    annotations: Mapping[str, str], allocatable: Quantities, old_allocatable: Quantities
) -> NodeUpdate:
    """Return what the node status webhook stores for an update.

    Only the kubelet changes native allocatable. If cpu or memory differ between old and new, the new values become the
    raw ones. Otherwise the recorded raw values stay. allocatable = trunc(milli(raw) * ratio) milli for cpu and memory
    with ratio > 1.

    Raises:
        InvalidInput: A ratio, a quantity, or the raw allocatable that is needed is invalid.

    Source:
        protocol spec, 8 (3); vectors protocol/amplification (op node_update)
    """
    new = parse_resources(allocatable)
    if not annotations.get(keys.RESOURCE_AMPLIFICATION_RATIO):
        return NodeUpdate(new, None)
    ratios = parse_ratios(annotations)
    old = parse_resources(old_allocatable)
    kept_text = annotations.get(keys.RAW_ALLOCATABLE)
    if kept_text is None or any(new.get(name, ZERO) != old.get(name, ZERO) for name in _AMPLIFIED_BY_ADMISSION):
        base = {name: new[name] for name in _AMPLIFIED_BY_ADMISSION if name in new}
        kept_text = codec.encode(format_resources(base)).decode()
    else:
        base = parse_raw_allocatable(annotations) or {}
    amplified = dict(new)
    for name in _AMPLIFIED_BY_ADMISSION:
        ratio = ratios.get(name, NO_RATIO)
        if ratio > 1 and name in base:
            try:
                scaled = math.trunc(float(base[name].milli()) * ratio)
            except OverflowError as error:
                raise InvalidInput("an amount and a ratio within double precision", str(base[name]), name) from error
            amplified[name] = of_milli(scaled, base[name].notation)
    return NodeUpdate(amplified, kept_text)


class CpuBasicInfo(msgspec.Struct, rename={"vendor_id": "vendorID"}, omit_defaults=True, frozen=True):
    """Processor model and settings: the annotation `cpu-basic-info` of the topology object."""

    cpu_model: str = msgspec.field(default="", name="cpuModel")
    hyper_thread_enabled: bool = msgspec.field(default=False, name="hyperThreadEnabled")
    turbo_enabled: bool = msgspec.field(default=False, name="turboEnabled")
    cat_l3_cbm_mask: str = msgspec.field(default="", name="catL3CbmMask")
    vendor_id: str = ""


class ModelRatios(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Normalization ratios of one CPU model, by its settings. None: not configured."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class NormalizationStrategy(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Effective strategy of the section cpu-normalization-config for one node."""

    enable: bool = False
    default_ratio: float | None = None
    ratio_model: dict[str, ModelRatios] = {}


class AmplificationStrategy(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Effective strategy of the section resource-amplification-config for one node."""

    enable: bool = False
    resource_amplification_ratio: dict[str, float] = {}


def cpu_normalization_ratio(
    info: CpuBasicInfo | None, strategy: NormalizationStrategy, enabled: bool | None = None
) -> float:
    """Return the CPU normalization ratio to write on a node.

    Args:
        info: Processor of the node; None if the agent has not reported it yet.
        enabled: Value of the node's label; None without the label. It takes precedence over the strategy.

    Returns:
        1.0 if normalization is not enabled. Otherwise the model's ratio for its hyper-threading and turbo settings, or
        the default ratio.

    Raises:
        InvalidInput: No ratio is configured, or it is outside 1.0..5.0. The caller leaves the annotation unchanged.

    Source:
        protocol spec, 8 (1)
    """
    if not (strategy.enable if enabled is None else enabled):
        return 1.0
    if info is None:
        raise InvalidInput("reported by the agent before normalization", None, keys.CPU_BASIC_INFO)
    model = strategy.ratio_model.get(info.cpu_model, ModelRatios())
    match info.hyper_thread_enabled, info.turbo_enabled:
        case True, True:
            ratio = model.hyper_thread_turbo_enabled_ratio
        case True, False:
            ratio = model.hyper_thread_enabled_ratio
        case False, True:
            ratio = model.turbo_enabled_ratio
        case _:
            ratio = model.base_ratio
    if ratio is None:
        ratio = strategy.default_ratio
    if ratio is None:
        raise InvalidInput("a CPU model with a configured ratio", info.cpu_model, "ratioModel")
    if not LOWEST_NORMALIZATION <= ratio <= HIGHEST_NORMALIZATION:
        raise InvalidInput("a ratio within 1.0..5.0", ratio, f"ratioModel[{info.cpu_model}]")
    return ratio


def format_normalization_ratio(ratio: float) -> str:
    """Format the ratio with two decimals for the annotation."""
    return f"{ratio:.2f}"


def amplification_ratios(strategy: AmplificationStrategy, annotations: Mapping[str, str]) -> dict[str, float]:
    """Return the amplification ratios to write on a node; empty if the annotation has to be removed.

        cpu = (configured cpu if > 0 else 1) * (normalization ratio if present) when that exceeds 1

    Raises:
        InvalidInput: The normalization ratio is invalid, or a ratio is below 1. The caller leaves the annotation
            unchanged.

    Source:
        protocol spec, 8 (2); vectors protocol/amplification (op controller)
    """
    ratios = dict(strategy.resource_amplification_ratio) if strategy.enable else {}
    configured = ratios.get(CPU, 0.0)
    factor = (configured if configured > 0 else 1.0) * (parse_cpu_normalization_ratio(annotations) or 1.0)
    if factor > 1:
        ratios[CPU] = factor
    for name in sorted(ratios):
        if ratios[name] < 1:
            raise InvalidInput("at least 1", ratios[name], f"resourceAmplificationRatio[{name}]")
    return ratios
