"""CPU normalization and resource amplification: their ratios, and their effect on allocatable and requests.

The manager writes the two annotations, admission scales allocatable (truncating), the scheduler scales requests
(rounding up). Users switch normalization by a label of the node. Source: protocol spec, 8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.objects import Quantities
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, of_milli
from koordcore.values.resources import ResourceList, format_resources, parse_resources

_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def parse_cpu_normalization_ratio(annotations: Mapping[str, str]) -> float | None:
    """Return the ratio in a node's annotation `cpu-normalization-ratio`; None without the annotation.

    Raises:
        InvalidInput: The text is not a positive, finite number.

    Source: protocol spec, 4.4.
    """
    return parse_present(annotations, keys.CPU_NORMALIZATION_RATIO, _parse_ratio)


def _parse_ratio(text: str) -> float:
    ratio = float(text) if _FLOAT.fullmatch(text) else 0.0
    if not 0 < ratio < float("inf"):
        raise InvalidInput("a number above 0", text)
    return ratio


def parse_normalization_text(text: str) -> float | None:
    """Convert the text of a CPU normalization ratio to a number; None if it is not a positive, finite number.

    Source: manager spec, 5.5 (2).
    """
    try:
        return _parse_ratio(text)
    except InvalidInput:
        return None


def parse_cpu_normalization_enabled(labels: Mapping[str, str]) -> bool | None:
    """Return whether a node's label `cpu-normalization-enabled` enables CPU normalization; None without the label.
    True: `1 t T TRUE true True`. False: `0 f F FALSE false False`.

    Raises:
        InvalidInput: Any other text.

    Source: protocol spec, 1.4, 4.3.
    """
    return parse_present(labels, keys.CPU_NORMALIZATION_ENABLED, _parse_bool)


def _parse_bool(text: str) -> bool:
    if text not in _BOOLEANS:
        raise InvalidInput("a boolean (1 t T TRUE true True 0 f F FALSE false False)", text)
    return _BOOLEANS[text]


NO_RATIO: Final = -1.0  # Ratio of a resource that is not amplified
LOWEST_NORMALIZATION: Final = 1.0
HIGHEST_NORMALIZATION: Final = 5.0
REWRITE_ABOVE: Final = 0.01
_AMPLIFIED_BY_ADMISSION: Final = (CPU, MEMORY)


def amplify(origin: int, ratio: float) -> int:
    """Return `origin` times `ratio`, rounded up; `origin` itself if the ratio is at most 1. The product is computed
    with 64-bit floats, so 100 times 1.1 gives 111.

    Source: protocol spec, 8 (4).
    """
    return origin if ratio <= 1 else math.ceil(float(origin) * ratio)


def format_ratios(ratios: Mapping[str, float]) -> str:
    """Return the text of the node annotation `node.koordinator.sh/resource-amplification-ratio`. It is a JSON object
    with sorted names and ratios of two decimals, rounded half to even.

    Source: protocol spec, 8 (2).
    """
    entries = (f"{codec.encode(name).decode()}:{ratios[name]:.2f}" for name in sorted(ratios))
    return "{" + ",".join(entries) + "}"


def parse_ratios(annotations: Mapping[str, str]) -> dict[str, float]:
    """Return resource -> amplification ratio of a node; empty if the annotation is absent or empty. `annotations`:
    Annotations of the node. `node.koordinator.sh/resource-amplification-ratio` counts.

    Raises:
        InvalidInput: The annotation is not valid JSON, or a ratio is not a number.

    Source: protocol spec, 4.4, 8 (3).
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
    """Return the node's allocatable as the kubelet wrote it, before amplification; None if no annotation records it.
    `node.koordinator.sh/raw-allocatable` counts.

    Raises:
        InvalidInput: The annotation is not valid JSON, or a quantity is invalid.

    Source: protocol spec, 4.4.
    """
    text = annotations.get(keys.RAW_ALLOCATABLE)
    if text is None:
        return None
    try:
        return parse_resources(lenient_json.parse_json(text))
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{keys.RAW_ALLOCATABLE}]") from error


class NodeUpdate(NamedTuple):
    """The values that the webhook for node status stores for an update of a Node."""

    allocatable: ResourceList  # Allocatable to store, with amplification
    # Text for the annotation `node.koordinator.sh/raw-allocatable`, the kubelet's own values; None removes the
    # annotation.
    raw_allocatable: str | None


def amplify_node_update(
    annotations: Mapping[str, str], allocatable: Quantities, old_allocatable: Quantities
) -> NodeUpdate:
    """Return the values that the webhook for node status stores: amplified allocatable, and the kubelet's own values.
    If the node has no annotation with ratios, allocatable stays as it is, and the annotation with raw values goes.

    Only the kubelet changes cpu and memory of allocatable. If they differ between old and new, or if no raw values are
    recorded yet, the new values are the kubelet's own (raw) ones. Otherwise the raw values recorded in the annotation
    stay. If the ratio of cpu or memory exceeds 1, allocatable is trunc(milli(raw) * ratio) milli. Other resources are
    not amplified here.

    `annotations`: annotations of the node: ratios and recorded raw values. `old_allocatable`: stored allocatable before
    the update.

    Raises:
        InvalidInput: A ratio or quantity is invalid, or a needed raw value is invalid.

    Source: protocol spec, 8 (3); vectors protocol/amplification (op node_update).
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
    """Model and settings of a node's processor, from the annotation `cpu-basic-info` of its NodeResourceTopology."""

    cpu_model: str = msgspec.field(default="", name="cpuModel")
    hyper_thread_enabled: bool = msgspec.field(default=False, name="hyperThreadEnabled")
    turbo_enabled: bool = msgspec.field(default=False, name="turboEnabled")
    cat_l3_cbm_mask: str = msgspec.field(default="", name="catL3CbmMask")
    vendor_id: str = ""


class ModelRatios(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """CPU normalization ratios of one CPU model, by its hyper-threading and turbo settings. None: not configured."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class NormalizationStrategy(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Strategy for CPU normalization of one node, from the section cpu-normalization-config."""

    enable: bool = False  # Whether ratios are written
    default_ratio: float | None = None  # Ratio of models that `ratio_model` does not list; None: not configured
    ratio_model: dict[str, ModelRatios] = {}  # CPU model -> ratios


class AmplificationStrategy(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Strategy for resource amplification of one node, from the section resource-amplification-config."""

    enable: bool = False  # Whether ratios are written
    resource_amplification_ratio: dict[str, float] = {}  # Resource -> ratio


def cpu_normalization_ratio(
    info: CpuBasicInfo | None, strategy: NormalizationStrategy, enabled: bool | None = None
) -> float:
    """Return the CPU normalization ratio that the manager writes on a node. `info`: Processor of the node; None if the
    agent has not reported it yet. `enabled`: value of the node's label `node.koordinator.sh/cpu-normalization-enabled`;
    None without the label. It takes precedence over the strategy.

    Returns:
        1.0 if normalization is not enabled. Otherwise the model's ratio for its hyper-threading and turbo settings, or
        the default ratio.

    Raises:
        InvalidInput: Normalization is enabled, but the processor is not reported yet, no ratio is configured, or the
            ratio is outside 1.0..5.0. The caller leaves the annotation unchanged.

    Source: protocol spec, 8 (1).
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
    """Format a CPU normalization ratio with two decimals for the annotation `cpu-normalization-ratio` of a node."""
    return f"{ratio:.2f}"


def amplification_ratios(strategy: AmplificationStrategy, annotations: Mapping[str, str]) -> dict[str, float]:
    """Return resource -> amplification ratio that the manager writes on a node; empty: remove the annotation.

        cpu = (configured cpu if > 0 else 1) * (normalization ratio if present) when that exceeds 1

    `annotations`: annotations of the node, with the normalization ratio.

    Raises:
        InvalidInput: The normalization ratio is invalid, or a ratio is below 1. The caller leaves the annotation
            unchanged.

    Source: protocol spec, 8 (2); vectors protocol/amplification (op controller).
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
