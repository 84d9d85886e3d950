"""Compute the strategy of a node from a section: defaults, cluster part, first matching entry, the node's overrides.

A `Section` is resolved once per configuration. A lookup for a node only checks selectors and returns a shared value.
Next module: config_map.py.

Source: protocol spec, 6.2 and 6.3; manager spec, 3.2 and 4.1.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from koordcore.protocol import keys
from koordcore.protocol.annotations.node import parse_network_bandwidth
from koordcore.protocol.config.fields import JsonValue, Part, Range, fields_of, merge
from koordcore.protocol.config.parse import WrittenSection, parse_section, parse_text
from koordcore.protocol.config.sections import SECTIONS, ColocationStrategy, SectionName, SectionTable
from koordcore.protocol.selector_index import SelectorIndex
from koordcore.protocol.selectors import Selector
from koordcore.values.invalid import InvalidInput

Strategy: TypeAlias = Mapping[str, JsonValue]  # A strategy as JSON values. Nodes share it: never change it in place.

# Node label -> field that it overrides.
RATIO_LABELS: Final = (
    (keys.CPU_RECLAIM_RATIO, "cpuReclaimThresholdPercent"),
    (keys.MEMORY_RECLAIM_RATIO, "memoryReclaimThresholdPercent"),
    (keys.MID_STATIC_CPU_RESERVED_RATIO, "midStaticCPUReservedPercent"),
    (keys.MID_STATIC_MEMORY_RESERVED_RATIO, "midStaticMemoryReservedPercent"),
)

_DECIMAL_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionEntry:
    """An entry for selected nodes, merged over the fields for the cluster (host applications: over the defaults)."""

    name: str  # Name of the entry; "" if not set
    selector: Selector  # Selects nodes by their labels
    strategy: Strategy  # The merged strategy
    fell_back: bool = False  # Whether the entry was invalid. Its strategy is then that of the cluster.


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section with its strategies for the cluster and for selected nodes. Entries without a valid selector are left
    out.
    """

    name: SectionName
    cluster: Strategy
    entries: tuple[SectionEntry, ...] = ()
    _index: SelectorIndex = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", SelectorIndex([entry.selector for entry in self.entries]))

    def entry_for(self, labels: Mapping[str, str]) -> SectionEntry | None:
        """Return the first entry that selects a node with these labels; None if the cluster strategy applies to it."""
        first = next(self._index.matching(labels), None)
        return None if first is None else self.entries[first]

    def strategy_for(self, labels: Mapping[str, str]) -> Strategy:
        """Return the strategy of a node with these labels. Overrides in the node's annotations are not applied."""
        entry = self.entry_for(labels)
        return self.cluster if entry is None else entry.strategy


def default_section(name: SectionName) -> Section:
    """Return the section that applies if the ConfigMap lacks its key: defaults for the cluster, no entries."""
    return Section(name=name, cluster=SECTIONS[name].defaults)


@lru_cache(maxsize=2 * len(SectionName))
def read_section(name: SectionName, text: str | None) -> Section:
    """Return the section that the text of its key defines. `text`: text of the key; None if the key is absent. The last
    sections are kept: a text of 900 kB takes a second, and is read when it is checked, and when it comes into force.

    Raises:
        InvalidInput: The text or the merged cluster strategy is invalid. The caller keeps the previous section.
    """
    table = SECTIONS[name]
    if text is None or (text == "" and table.empty_is_default):
        return default_section(name)
    return resolve_section(table, parse_section(table, text))


def resolve_section(table: SectionTable, written: WrittenSection) -> Section:
    """Merge defaults, cluster fields and entries of a section, and check the ranges of the results.

    Raises:
        InvalidInput: The cluster strategy is invalid. An invalid entry does not raise; it gets the cluster strategy.
    """
    cluster = merge(table.part, table.defaults, written.cluster)
    fault = runtime_fault(table.part, cluster, written.cluster_path)
    if fault is not None:
        raise fault
    base = cluster if table.entry_inherits else table.defaults
    entries: list[SectionEntry] = []
    for entry in written.entries:
        if entry.selector is None:
            continue
        strategy = merge(table.part, base, entry.strategy)
        fell_back = runtime_fault(table.part, strategy, entry.path) is not None
        entries.append(
            SectionEntry(
                name=entry.name,
                selector=entry.selector,
                strategy=cluster if fell_back else strategy,
                fell_back=fell_back,
            )
        )
    return Section(name=table.name, cluster=cluster, entries=tuple(entries))


def runtime_fault(part: type[Part], strategy: Strategy, path: str) -> InvalidInput | None:
    """Return the error of the first field of a merged strategy outside its runtime range; None if all are inside."""
    for name, field in fields_of(part).items():
        value = strategy.get(name)
        where = f"{path}.{name}" if path else name
        fault = None
        if field.runtime is not None and value is not None:
            fault = range_fault(field.runtime, value, where)
        elif isinstance(value, dict):
            fault = runtime_fault(field.part, value, where)
        if fault is not None:
            return fault
    return None


def range_fault(allowed: Range, value: JsonValue, path: str) -> InvalidInput | None:
    """Return the error of a number that is outside its range; None if it is inside, or is not a number."""
    if isinstance(value, int | float) and not allowed.allows(value):
        return InvalidInput(str(allowed), value, path)
    return None


def override_colocation(strategy: Strategy, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Strategy:
    """Return a colocation strategy with the overrides in the labels and annotations of a node. The annotation is
    applied first, then the four ratio labels. Invalid annotations and labels are ignored. The result is not validated.
    The percentage of a label is trunc(float64(ratio) * 100), so 0.29 gives 28. If the node has no overrides, `strategy`
    itself is returned.

    Source: protocol spec, 6.3; manager spec, 4.1.
    """
    text = annotations.get(keys.COLOCATION_STRATEGY)
    if text is not None:
        try:
            written = parse_text(ColocationStrategy, text, keys.COLOCATION_STRATEGY)
        except InvalidInput:
            written = {}
        if written:
            strategy = merge(ColocationStrategy, strategy, written)
    percents: dict[str, JsonValue] = {}
    for label, field in RATIO_LABELS:
        ratio = labels.get(label)
        percent = None if ratio is None else ratio_percent(ratio)
        if percent is not None:
            percents[field] = percent
    return {**strategy, **percents} if percents else strategy


def ratio_percent(text: str) -> int | None:
    """Return the percentage of a ratio as text: trunc(float64(text) * 100), so `0.29` gives 28. None if the text is not
    a decimal, is negative or exceeds int64.
    """
    if _DECIMAL_FLOAT.fullmatch(text) is None:
        return None
    ratio = float(text)
    percent = ratio * 100
    return int(percent) if ratio >= 0 and math.isfinite(percent) and percent < 2**63 else None


def override_system(strategy: Strategy, annotations: Mapping[str, str]) -> Strategy:
    """Return a system strategy with the network bandwidth of a node, if its annotation `network-bandwidth` states one.

    Raises:
        InvalidInput: The annotation is not a quantity. The section is then unset for this node, and its agent uses the
            defaults (protocol spec, 15 item 18).
    """
    bandwidth = parse_network_bandwidth(annotations)
    return strategy if bandwidth is None else {**strategy, "totalNetworkBandwidth": bandwidth.canonical()}
