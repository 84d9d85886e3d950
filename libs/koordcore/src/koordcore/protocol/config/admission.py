"""Admission of the ConfigMap slo-controller-config: a webhook refuses an invalid configuration as a whole.

Admission is stricter than the controllers (parse.py, strategy.py). Controllers use the valid part of a configuration.
Admission refuses the whole ConfigMap and reports field, rule and value. No two entries of a section may match the same
node, existing or hypothetical.

Source: protocol spec, 6.11; manager spec, 12.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, cast

from koordcore.protocol.config.fields import JsonObject, JsonValue, Kind, Part, fields_of
from koordcore.protocol.config.parse import WrittenEntry, WrittenSection, parse_section
from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.config.strategy import range_fault, resolve_section
from koordcore.protocol.objects import LabelSelector
from koordcore.protocol.selector_index import SelectorIndex
from koordcore.values.codec import encode_canonical
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, parse_quantity

# Largest number of hypothetical nodes per entry. It limits the work that one text can cause.
_MAX_VIRTUAL_NODES: Final = 10_000
_MAX_ALL_VIRTUAL_NODES: Final = 100_000  # Largest number of hypothetical nodes of all entries
_MAX_ASKED: Final = 2_000_000  # Largest number of checks of one selector against one node


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two or more entries of a section that match one node. The node may exist or be hypothetical."""

    names: tuple[str, ...]  # Names of the entries, in order
    path: str  # Path of the second entry that matches
    example_nodes: tuple[str, ...] = ()  # Existing nodes that the entries match; empty if the node is hypothetical


def virtual_nodes(selector: LabelSelector) -> Iterator[dict[str, str]]:
    """Yield the labels of hypothetical nodes for which an entry with this selector is probably meant. Set i has the
    labels of matchLabels. For every expression with values, it also has the label with value number (i mod number of
    values). Operators are ignored. Koordinator creates as many sets as the product of the numbers of values. They
    repeat after the least common multiple, so only that many are created.
    """
    valued = [expression for expression in selector.match_expressions if expression.values]
    period = math.lcm(*(len(expression.values) for expression in valued))
    for index in range(min(period, _MAX_VIRTUAL_NODES)):
        labels = dict(selector.match_labels)
        for expression in valued:
            labels[expression.key] = expression.values[index % len(expression.values)]
        yield labels


def first_overlap(entries: Sequence[WrittenEntry]) -> Overlap | None:
    """Return the first two entries whose selectors could match the same node (see `virtual_nodes`). None if there are
    none, or if none was found within the limits of the search.
    """
    if len(entries) < 2:
        return None
    index = SelectorIndex([entry.selector for entry in entries])
    seen: set[frozenset[tuple[str, str]]] = set()
    for entry in entries:
        if entry.labels is None:
            continue
        for labels in virtual_nodes(entry.labels):
            key = frozenset(labels.items())
            if key in seen:
                continue
            seen.add(key)
            overlap = _overlap(entries, index, labels)
            if overlap is not None:
                return overlap
            if len(seen) > _MAX_ALL_VIRTUAL_NODES or index.asked > _MAX_ASKED:
                return None
    return None


def first_node_conflict(entries: Sequence[WrittenEntry], nodes: Iterable[NodeLabels]) -> Overlap | None:
    """Return the entries that match the first existing node which several entries match; None if there is none, or if
    none was found within the limits of the search.
    """
    if len(entries) < 2:
        return None
    index = SelectorIndex([entry.selector for entry in entries])
    for node in nodes:
        overlap = _overlap(entries, index, node.labels)
        if overlap is not None:
            return replace(overlap, example_nodes=(node.name,))
        if index.asked > _MAX_ASKED:
            return None
    return None


def _overlap(entries: Sequence[WrittenEntry], index: SelectorIndex, labels: Mapping[str, str]) -> Overlap | None:
    matching = [entries[number] for number in index.matching(labels)]
    if len(matching) < 2:
        return None
    return Overlap(names=tuple(match.name for match in matching), path=matching[1].path)


# Sections in the order of the checks; other keys are not checked.
CHECKED_SECTIONS: Final = (
    SectionName.COLOCATION,
    SectionName.RESOURCE_THRESHOLD,
    SectionName.RESOURCE_QOS,
    SectionName.SYSTEM,
    SectionName.CPU_BURST,
)

_NETWORK_CLASSES: Final = ("lsrClass", "lsClass", "beClass")
_DIRECTIONS: Final = ("ingress", "egress")
_PARTNER: Final = "written together with"
_DISJOINT: Final = "disjoint from the selector of every other entry"


class Reason(StrEnum):
    """Reason codes of refused ConfigMaps, which consoles parse."""

    PARSE_CONFIG_FAIL = "ParseConfigFail"  # A section is not valid JSON, or a field has the wrong type
    CONFIG_PARAM_INVALID = "ConfigParamInvalid"  # A field has a value that its rule does not allow
    NODE_STRATEGIES_OVERLAP = "NodeStrategiesOverlap"  # Two entries of a section could match the same node
    # Two entries of a section match an existing node. The text `ExistNodeConfict` keeps the misspelling of Koordinator.
    EXIST_NODE_CONFLICT = "ExistNodeConfict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReview:
    """Answer of the admission of slo-controller-config: allowed, or refused with reason, field, rule and value."""

    allowed: bool
    reason: Reason | None = None  # Code for consoles; None if allowed
    message: str = ""  # A sentence. For the two selector conflicts it is the JSON object that consoles parse.
    field: str = ""  # Path such as `resource-qos-config.clusterStrategy.beClass.cpuQOS.groupIdentity`; "" if allowed
    rule: str = ""  # Rule that the field violates; "" if allowed
    value: object = None  # Invalid value

    def http_message(self) -> str:
        """Return the text of the HTTP 400 answer: `___{"reason":R,"message":M}___`; "" if the ConfigMap is allowed."""
        if self.reason is None:
            return ""
        return f"___{json.dumps({'reason': self.reason, 'message': self.message}, separators=(',', ':'))}___"


ALLOWED: Final = ConfigReview(allowed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    name: str
    labels: Mapping[str, str]


def validate_config_map(
    data: Mapping[str, str],
    old_data: Mapping[str, str],
    nodes: Sequence[NodeLabels],
    *,
    check_names: bool,
    require_both_bounds: bool = False,
) -> ConfigReview:
    """Validate the ConfigMap slo-controller-config when it is created or updated. Return `ALLOWED`, or the refusal with
    the first violation. Only the keys of `CHECKED_SECTIONS` are checked.

    Args:
        data: New data, key -> text. Only keys that are not empty and have changed are checked.
        old_data: Data before the update, key -> text; empty on create.
        nodes: Every existing node.
        check_names: Flag --node-strategy-name-need-check: names of entries must be present and unique.
        require_both_bounds: Koordinator's rule for pairs of bounds: both or none must be written. If False, the upper
            bound may be written alone if the lower one has a default (protocol spec, 15 item 8; manager spec, 12.2
            differs).
    """
    checked: list[tuple[SectionName, WrittenSection]] = []
    for name in CHECKED_SECTIONS:
        text = data.get(name.key, "")
        if not text or text == old_data.get(name.key):
            continue
        try:
            written = parse_section(SECTIONS[name], text)
        except InvalidInput as error:
            return _refused(Reason.PARSE_CONFIG_FAIL, error.at(name.key))
        fault = next(_section_faults(name, written, data, check_names, require_both_bounds), None)
        if fault is not None:
            return _refused(Reason.CONFIG_PARAM_INVALID, fault.at(name.key))
        overlap = first_overlap(written.entries)
        if overlap is not None:
            return _conflict(Reason.NODE_STRATEGIES_OVERLAP, name, overlap)
        checked.append((name, written))
    for name, written in checked:
        overlap = first_node_conflict(written.entries, nodes)
        if overlap is not None:
            return _conflict(Reason.EXIST_NODE_CONFLICT, name, overlap)
    return ALLOWED


def config_faults(data: Mapping[str, str]) -> list[InvalidInput]:
    """Return every violation in the fields of slo-controller-config, for a user who corrects a file.
    `validate_config_map` returns only the first violation.

    Returns:
        Violations whose path begins with the key of the section. Only the first pair of overlapping selectors of a
        section is reported. If a field is unreadable, further rules about its object may not be checked.
    """
    found: list[InvalidInput] = []
    for name, table in SECTIONS.items():
        unreadable: list[InvalidInput] = []
        try:
            written = parse_section(table, data.get(name.key) or "{}", unreadable)
        except InvalidInput as error:
            found.append(error.at(name.key))
            continue
        faults = list(unreadable)
        if name in CHECKED_SECTIONS:
            faults += [
                fault
                for fault in _section_faults(name, written, data, check_names=False, require_both_bounds=False)
                if not unreadable or not fault.rule.startswith(_PARTNER)
            ]
            overlap = first_overlap(written.entries)
            if overlap is not None:
                faults.append(InvalidInput(_DISJOINT, list(overlap.names), f"{overlap.path}.nodeSelector"))
        if not faults:
            try:
                resolve_section(table, written)
            except InvalidInput as error:  # the ranges of merged values are checked when the section is read
                faults.append(error)
        found += [fault.at(name.key) for fault in faults]
    return found


def validate_node_labels(data: Mapping[str, str], node: NodeLabels) -> ConfigReview:
    """Validate new labels of a node: no section of slo-controller-config may have two entries that match them. Sections
    with an invalid text are skipped.

    Source: protocol spec, 6.11 (last paragraph); manager spec, 11.2.
    """
    for name in CHECKED_SECTIONS:
        text = data.get(name.key, "")
        if not text:
            continue
        try:
            written = parse_section(SECTIONS[name], text)
        except InvalidInput:
            continue
        overlap = first_node_conflict(written.entries, [node])
        if overlap is not None:
            return _conflict(Reason.EXIST_NODE_CONFLICT, name, overlap)
    return ALLOWED


def _refused(reason: Reason, fault: InvalidInput) -> ConfigReview:
    return ConfigReview(
        allowed=False,
        reason=reason,
        message=fault.sentence(),
        field=fault.path,
        rule=fault.rule,
        value=fault.value,
    )


def _conflict(reason: Reason, section: SectionName, overlap: Overlap) -> ConfigReview:
    message: dict[str, object] = {"config": section.key, "strategies": list(overlap.names)}
    if overlap.example_nodes:
        message["exampleNodes"] = list(overlap.example_nodes)
    return ConfigReview(
        allowed=False,
        reason=reason,
        message=json.dumps(message, separators=(",", ":")),
        field=f"{section.key}.{overlap.path}.nodeSelector",
        rule=_DISJOINT,
        value=list(overlap.names),
    )


def _section_faults(
    name: SectionName,
    written: WrittenSection,
    data: Mapping[str, str],
    check_names: bool,
    require_both_bounds: bool,
) -> Iterator[InvalidInput]:
    """Yield the violations of steps 2 to 5 for one section; admission reports the first one."""
    for entry in written.entries:
        yield from _selector_faults(entry)
    part = SECTIONS[name].part
    yield from _value_faults(part, written.cluster, written.cluster_path, require_both_bounds)
    for entry in written.entries:
        yield from _value_faults(part, entry.strategy, entry.path, require_both_bounds)
    if name is SectionName.RESOURCE_QOS:
        bandwidth = _Bandwidth.of(data.get(SectionName.SYSTEM.key, ""))
        yield from _network_faults(written.cluster, written.cluster_path, bandwidth.cluster)
        for entry in written.entries:
            yield from _network_faults(entry.strategy, entry.path, bandwidth.of_entry(entry))
    if check_names:
        yield from _name_faults(written.entries)


def _selector_faults(entry: WrittenEntry) -> Iterator[InvalidInput]:
    if entry.selector_fault is not None:
        yield entry.selector_fault
    elif entry.selector is None or not entry.selector.requirements:
        yield InvalidInput("a selector with at least one label or expression", {}, f"{entry.path}.nodeSelector")


def _name_faults(entries: Sequence[WrittenEntry]) -> Iterator[InvalidInput]:
    seen: set[str] = set()
    for entry in entries:
        if not entry.name:
            yield InvalidInput("a non-empty name", entry.name, f"{entry.path}.name")
        if entry.name in seen:
            yield InvalidInput("unique among the entries", entry.name, f"{entry.path}.name")
        seen.add(entry.name)


def _value_faults(
    part: type[Part], written: JsonObject, path: str, require_both_bounds: bool
) -> Iterator[InvalidInput]:
    """Yield the range and bounds violations of all written fields, in the order of the table. Values inside lists and
    maps are not checked.
    """
    for name, field in fields_of(part).items():
        value = written.get(name)
        if value is None:
            continue
        where = f"{path}.{name}" if path else name
        if field.webhook is not None:
            fault = range_fault(field.webhook, value, where)
            if fault is not None:
                yield fault
        if field.kind is Kind.OBJECT:
            yield from _value_faults(field.part, cast("JsonObject", value), where, require_both_bounds)
        elif field.kind is Kind.RATE:
            yield from _bandwidth_faults(value, where)
    yield from _bound_faults(part, written, path, require_both_bounds)


def _bound_faults(
    part: type[Part], written: JsonObject, path: str, require_both_bounds: bool
) -> Iterator[InvalidInput]:
    for pair in part.bounds:
        upper = cast("int | None", written.get(pair.upper))
        lower = cast("int | None", written.get(pair.lower))
        upper_path, lower_path = (f"{path}.{name}" if path else name for name in (pair.upper, pair.lower))
        if lower is not None and upper is None:
            yield InvalidInput(f"{_PARTNER} {pair.upper}", lower, lower_path)
        elif upper is not None and lower is None:
            if require_both_bounds or not pair.lower_has_default:
                yield InvalidInput(f"{_PARTNER} {pair.lower}", upper, upper_path)
        elif upper is not None and lower is not None and lower >= upper:
            yield InvalidInput(f"less than {pair.upper} ({upper})", lower, lower_path)


def _bandwidth_faults(value: JsonValue, path: str) -> Iterator[InvalidInput]:
    if isinstance(value, int):
        if not 0 <= value <= 100:
            yield InvalidInput("a percentage 0..100 or a quantity as text", value, path)
        return
    try:
        parse_quantity(str(value))
    except InvalidInput as error:
        yield error.at(path)


def _network_faults(strategy: JsonObject, path: str, total: Quantity | None) -> Iterator[InvalidInput]:
    """Yield the violations of step 4, about the network requests of the three pod classes. The three requests must have
    the same form, and their sum must not exceed the bandwidth. `total`: Bandwidth in bits/s. None: not configured; then
    sums of quantities are not checked.
    """
    requests: list[tuple[str, str, JsonValue]] = []
    for owner in _NETWORK_CLASSES:
        network = cast("JsonObject", cast("JsonObject", strategy.get(owner, {})).get("networkQOS", {}))
        for direction in _DIRECTIONS:
            field = f"{direction}Request"
            if field in network:
                where = ".".join(part for part in (path, owner, "networkQOS", field) if part)
                requests.append((direction, where, network[field]))
    forms = {isinstance(value, str) for _, _, value in requests}
    if len(forms) > 1:
        _, where, value = requests[-1]
        yield InvalidInput("in the same form (all percentages or all quantities) as the other requests", value, where)
        return
    for direction in _DIRECTIONS:
        same = [(where, value) for towards, where, value in requests if towards == direction]
        if not same:
            continue
        where = same[-1][0]
        if forms == {False}:
            percent = sum(cast("int", value) for _, value in same)
            if percent > 100:
                yield InvalidInput(f"such that the {direction} requests sum to <= 100 percent", percent, where)
        elif total is not None:
            try:
                bits = sum((parse_quantity(cast("str", value)) for _, value in same), Quantity(0))
            except InvalidInput:
                continue  # `_bandwidth_faults` reports it
            if bits > total:
                rule = f"such that the {direction} requests sum to <= totalNetworkBandwidth {total.canonical()}"
                yield InvalidInput(rule, bits.canonical(), where)


@dataclass(frozen=True, slots=True)
class _Bandwidth:
    """Total network bandwidth by the section system-config. None: unknown."""

    cluster: Quantity | None
    by_selector: Mapping[bytes, Quantity | None]  # Selector of an entry, encoded -> its bandwidth

    @classmethod
    def of(cls, text: str) -> _Bandwidth:
        """Return the network bandwidths that the system section sets for the cluster and for selected nodes. `text`:
        Text of the section. If it is absent or invalid, no bandwidth is set.

        Source: protocol spec, 15 item 8 a.
        """
        try:
            written = parse_section(SECTIONS[SectionName.SYSTEM], text) if text else None
        except InvalidInput:
            written = None
        if written is None:
            return cls(None, {})
        # reversed: the first entry of a selector counts
        by_selector = {encode_canonical(entry.labels): _total(entry.strategy) for entry in reversed(written.entries)}
        return cls(_total(written.cluster), by_selector)

    def of_entry(self, entry: WrittenEntry) -> Quantity | None:
        """Return the network bandwidth in bits per second that applies to the nodes of an entry of another section. It
        is that of the entry of the system section with an equal selector, else that of the cluster; None if there is
        none.
        """
        own = self.by_selector.get(encode_canonical(entry.labels))
        return own if own is not None else self.cluster


def _total(strategy: JsonObject) -> Quantity | None:
    text = strategy.get("totalNetworkBandwidth")
    quantity = parse_quantity(text) if isinstance(text, str) else None
    return quantity if quantity is not None and not quantity.is_zero() else None
