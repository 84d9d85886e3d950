"""Finds the few candidate nodes of a pod with indexes of node labels, names and free amounts.

The result contains all nodes that the filters accept, and possibly others: the filters still run over them. The rows
of a resource are in buckets by the number of bits of the free amount. A node without the resource, or without a free
amount, is in bucket 0. A resource is indexed when it is first needed, and updated from the journal when it is needed
again, so that a placement needs no work here.

Source: scheduler-core spec, 12.2 a
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from koordcore.protocol.objects import LabelSelectorRequirement, NodeSelectorTerm

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import NodeColumns


class _Resource:
    """Rows by the number of bits of their free amount, for one resource."""

    def __init__(self) -> None:
        self._position = -1
        self._bucket_of: dict[int, int] = {}
        self._buckets: dict[int, set[int]] = {}

    def refresh(self, nodes: NodeColumns, column: int) -> None:
        changed = nodes.load.since(self._position) if self._position >= 0 else None
        self._position = nodes.load.position
        for row in range(len(nodes.names)) if changed is None else changed:
            bucket = max(nodes.free.item(column, row), 0).bit_length() if nodes.alive[row] else 0
            before = self._bucket_of.get(row)
            if before != bucket:
                if before is not None:
                    self._buckets[before].discard(row)
                self._bucket_of[row] = bucket
                self._buckets.setdefault(bucket, set()).add(row)

    def at_least(self, amount: int) -> list[set[int]]:
        least = amount.bit_length()
        return [rows for bucket, rows in self._buckets.items() if bucket >= least]


class FreeIndex:
    """An index that finds nodes with a free amount of a resource without looking at all nodes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._resources: dict[int, _Resource] = {}

    def rows(self, demand: Iterable[tuple[int, int]], most: int) -> list[int] | None:
        """Positions of all nodes that may have room, ascending. None if there are more than `most`, or if `demand` is
        empty. Only the resource for which the fewest nodes qualify is considered, so some may lack room. `demand`:
        (resource column, amount).
        """
        fewest: list[set[int]] | None = None
        for column, amount in demand:
            resource = self._resources.get(column)
            if resource is None:
                resource = self._resources[column] = _Resource()
            resource.refresh(self._nodes, column)
            rows = resource.at_least(amount)
            if fewest is None or sum(map(len, rows)) < sum(map(len, fewest)):
                fewest = rows
        if fewest is None or sum(map(len, fewest)) > most:
            return None
        return sorted(row for rows in fewest for row in rows)


MOST_CANDIDATES: Final = 32
"""With more candidates, a cached view is cheaper."""
_NAME_FIELD: Final = "metadata.name"


class _Wanted(NamedTuple):
    """A required label with its allowed values. The key "" stands for the name of the node."""

    key: str
    values: tuple[str, ...]


_Term = tuple[_Wanted, ...]
"""The part of a node selector term that an index can answer. All requirements must be met."""


class Candidates:
    """Finds candidate nodes of pods with indexes of node labels and names."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._terms: WeakKeyDictionary[PodClass, tuple[_Term, ...]] = WeakKeyDictionary()

    def of(self, pod: PodClass) -> list[int] | None:
        """Return the positions of the only nodes that the NodeAffinity filter may pass, ascending. None: there are too
        many, or no index finds them.
        """
        terms = self._terms.get(pod)
        if terms is None:
            terms = self._terms[pod] = tuple(_terms_of(pod))
        if not all(terms):
            return None
        found: set[int] = set()
        for term in terms:
            rows = self._rows(term)
            if rows is None:
                return None
            found |= rows
        return sorted(found) if len(found) <= MOST_CANDIDATES else None

    def _rows(self, term: _Term) -> set[int] | None:
        fewest: set[int] | None = None
        for wanted in term:
            rows = self._rows_with(wanted)
            if rows is not None and (fewest is None or len(rows) < len(fewest)):
                fewest = rows
        return fewest

    def _rows_with(self, wanted: _Wanted) -> set[int] | None:
        if wanted.key:
            return self._nodes.label_index.rows(wanted.key, wanted.values, MOST_CANDIDATES)
        if len(wanted.values) > MOST_CANDIDATES:
            return None
        return {row for name in wanted.values if (row := self._nodes.row(name)) is not None}


def _terms_of(pod: PodClass) -> Iterator[_Term]:
    """Yield the alternatives of the pod, each with its node selector. An empty one means that no index helps."""
    selector = [_Wanted(key, (value,)) for key, value in pod.node_selector.items()]
    required = pod.node_affinity.required if pod.node_affinity is not None else None
    if required is None:
        yield tuple(selector)
        return
    for term in required.node_selector_terms:
        if term.match_fields or term.match_expressions:
            yield (*selector, *_wanted(term))


def _wanted(term: NodeSelectorTerm) -> Iterator[_Wanted]:
    for field in _sets(term.match_fields):
        if field.key == _NAME_FIELD:
            yield _Wanted("", tuple(field.values))
    for label in _sets(term.match_expressions):
        yield _Wanted(label.key, tuple(label.values))


def _sets(requirements: Sequence[LabelSelectorRequirement]) -> Iterable[LabelSelectorRequirement]:
    return (each for each in requirements if each.operator == "In" and each.key)
