"""Find entries of a section of slo-controller-config that match the same node, hypothetical or existing.

Source:
    protocol spec, 6.11 rules 6 and 7; manager spec, 12.2
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.config.parse import WrittenEntry
from koordcore.protocol.objects import LabelSelector

_MAX_VIRTUAL_NODES: Final = 10_000
"""Largest number of hypothetical nodes per entry. It limits the work that one text can cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two or more entries of a section that match one node. The node may exist or be hypothetical.

    Attributes:
        names: Names of the entries, in order.
        path: Path of the second entry that matches.
        example_nodes: Existing nodes that the entries match; empty if the node is hypothetical.
    """

    names: tuple[str, ...]
    path: str
    example_nodes: tuple[str, ...] = ()


def virtual_nodes(selector: LabelSelector) -> Iterator[dict[str, str]]:
    """Yield the labels of hypothetical nodes for which an entry with this selector is probably meant.

    Set i has the labels of matchLabels. For every expression with values, it also has the label with value number (i
    mod number of values). Operators are ignored.

    Koordinator creates as many sets as the product of the numbers of values. They repeat after the least common
    multiple, so only that many are created.
    """
    valued = [expression for expression in selector.match_expressions if expression.values]
    period = math.lcm(*(len(expression.values) for expression in valued))
    for index in range(min(period, _MAX_VIRTUAL_NODES)):
        labels = dict(selector.match_labels)
        for expression in valued:
            labels[expression.key] = expression.values[index % len(expression.values)]
        yield labels


def first_overlap(entries: Sequence[WrittenEntry]) -> Overlap | None:
    """Return the first two entries whose selectors could match the same node (see `virtual_nodes`).

    None if there are none.
    """
    if len(entries) < 2:
        return None
    for entry in entries:
        if entry.labels is None:
            continue
        for labels in virtual_nodes(entry.labels):
            matching = _matching(entries, labels)
            if len(matching) > 1:
                return Overlap(names=tuple(match.name for match in matching), path=matching[1].path)
    return None


def first_node_conflict(entries: Sequence[WrittenEntry], node: str, labels: Mapping[str, str]) -> Overlap | None:
    """Return the entries that match this existing node; None if fewer than two entries match.

    Args:
        entries: Entries of one section.
        node: Name of the node.
        labels: Labels of the node.
    """
    matching = _matching(entries, labels) if len(entries) > 1 else []
    if len(matching) < 2:
        return None
    return Overlap(names=tuple(match.name for match in matching), path=matching[1].path, example_nodes=(node,))


def _matching(entries: Sequence[WrittenEntry], labels: Mapping[str, str]) -> list[WrittenEntry]:
    return [entry for entry in entries if entry.selector is not None and entry.selector.matches(labels)]
