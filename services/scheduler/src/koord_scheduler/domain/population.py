"""Which pods run on which node, counted by what the constraints of other pods ask of them.

    PodKind    what such constraints read of a pod: namespace, labels, being deleted, its own terms; interned
    Counter    pods that one question is about, per node, with a journal of changes
    DomainSums a counter summed over the nodes of each topology domain, brought up to date from that journal

A pod that comes or goes costs the counters that it belongs to, never the cluster. A counter lives as long as somebody
holds it.

source    scheduler-core spec, 5.6 and 5.7
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from koordcore.protocol.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.columns import BoolArray, IntArray, LabelColumn, NodeColumns

_LONGEST_JOURNAL: Final = 4096
_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class Question:
    """Which pods are meant: those in the namespaces whose labels match.

    namespaces           names; empty with `namespace_selector` None: no pod
    namespace_selector   also every namespace whose labels match; without requirements: all namespaces
    selector             None matches nothing
    skips_terminating    pods that are being deleted do not count
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None = None
    selector: Selector | None = None
    skips_terminating: bool = False

    def covers(self, namespace: str, labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Is the namespace meant? labels_of: namespace -> its labels."""
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and chosen.matches(labels_of.get(namespace) or {_NAME_LABEL: namespace})

    def is_about(self, kind: "PodKind", labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Is a pod of this kind meant?"""
        if self.selector is None or (self.skips_terminating and kind.terminating):
            return False
        return self.covers(kind.namespace, labels_of) and self.selector.matches(kind.labels)


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod affinity or anti-affinity term, resolved for its owner."""

    topology_key: str
    question: Question


@dataclass(frozen=True, slots=True)
class OwnTerms:
    """The inter-pod terms of a pod. preferred: with weights, negative for anti-affinity."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class PodKind:
    """What affinity and spread constraints read of a pod; two pods of one kind are the same to them.

    spread    its own constraints as written
    owners    (kind, name) of the controllers that own it
    """

    namespace: str
    labels: Mapping[str, str]
    terminating: bool = False
    terms: OwnTerms = OwnTerms()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()


def compiled(selector: LabelSelector | None) -> Selector | None:
    """The selector ready to match; None, or one whose syntax is bad (admission refuses it): matches nothing."""
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except InvalidInput:
        return None


def with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], match: Iterable[str], mismatch: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector with the owner's values of some labels added: `key in (value)` and `key notin (value)`."""
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (("In", match), ("NotIn", mismatch))
        for key in keys
        if key in labels
    ]
    if selector is None or not added:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *added])


def resolved_term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> Term:
    """The term of a pod in this namespace with these labels. source    scheduler-core spec, 5.7"""
    selector = with_label_keys(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
    own = not term.namespaces and term.namespace_selector is None
    return Term(
        topology_key=term.topology_key,
        question=Question(
            namespaces=frozenset([namespace] if own else term.namespaces),
            namespace_selector=compiled(term.namespace_selector),
            selector=compiled(selector),
        ),
    )


class Counter:
    """How many pods of some sort run on each node.

    rows    int64 (N,)
    total   their sum
    """

    __slots__ = ("__weakref__", "_base", "_changes", "rows", "total")

    def __init__(self, capacity: int) -> None:
        self.rows: IntArray = np.zeros(capacity, np.int64)
        self.total = 0
        self._base = 0
        self._changes: list[tuple[int, int]] = []

    @property
    def position(self) -> int:
        """Number of all changes ever made."""
        return self._base + len(self._changes)

    def add(self, row: int, delta: int) -> None:
        """So many pods more, or fewer, on one node."""
        self.rows[row] += delta
        self.total += delta
        changes = self._changes
        if len(changes) >= _LONGEST_JOURNAL:
            del changes[: _LONGEST_JOURNAL // 2]
            self._base += _LONGEST_JOURNAL // 2
        changes.append((row, delta))

    def since(self, position: int) -> list[tuple[int, int]] | None:
        """Changes (row, delta) at or after a position; None when the journal no longer reaches back so far."""
        return None if position < self._base else self._changes[position - self._base :]

    def restart(self, rows: IntArray) -> None:
        """Count anew."""
        self.rows, self.total = rows, int(rows.sum())
        self._base = self.position + 1
        self._changes.clear()

    def grow(self, capacity: int) -> None:
        """Room for more rows."""
        larger = np.zeros(capacity, np.int64)
        larger[: len(self.rows)] = self.rows
        self.rows = larger


class DomainSums:
    """A counter summed over the domains of a topology key: `sums[id of the label's value]`, int64.

    Rows that lack the key (value id 0) count in no domain; entry 0 is always 0.
    """

    def __init__(self, counter: Counter, column: LabelColumn) -> None:
        self.counter = counter
        self.column = column
        self.sums: IntArray = np.zeros(0, np.int64)
        self.version = 0
        self._eligible: BoolArray | None = None
        self._position = -1
        self._column_version = -1

    def refresh(self, eligible: BoolArray | None = None) -> IntArray:
        """The sums as of now.

        eligible    bool (N,): only these rows count; the array may be replaced, not changed in place. None: all rows
        """
        counter, column = self.counter, self.column
        is_same_base = eligible is self._eligible and self._column_version == column.version
        changes = counter.since(self._position) if is_same_base else None
        if changes is None:
            self._recount(eligible)
        elif changes:
            values = column.values
            for row, delta in changes:
                value = int(values[row])
                if value and (eligible is None or eligible[row]):
                    self.sums[value] += delta
            self.version += 1
        self._position = counter.position
        return self.sums

    def _recount(self, eligible: BoolArray | None) -> None:
        if len(self.counter.rows) < len(self.column.values):
            self.counter.grow(len(self.column.values))
        counted = self.counter.rows if eligible is None else self.counter.rows * eligible
        sums = np.bincount(self.column.values, weights=counted, minlength=len(self.column.texts))
        self.sums = sums.astype(np.int64)
        self.sums[0] = 0
        self._eligible, self._column_version = eligible, self.column.version
        self.version += 1


@dataclass(slots=True, eq=False)
class _Entry:
    """A kind that runs somewhere: where, and which counters it belongs to."""

    rows: dict[int, int] = field(default_factory=dict[int, int])
    counters: list[Counter] = field(default_factory=list[Counter])


class _Asked(Counter):
    """Pods that a set of questions is about, all of them at once."""

    __slots__ = ("questions",)

    def __init__(self, capacity: int, questions: tuple[Question, ...]) -> None:
        super().__init__(capacity)
        self.questions = questions


@dataclass(frozen=True, slots=True)
class OwnedTerm:
    """A term that pods in the cluster have, and a counter of those pods.

    weight    of a preferred term, negative for anti-affinity; 0 for required ones
    """

    term: Term
    weight: int
    owners: Counter


class Population:
    """All pods on nodes, by kind.

    affinity, anti_affinity, preferred   the terms that pods on nodes have
    terms_version                        grows when one of these appears or disappears
    moves                                grows with every pod that arrives or leaves
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._entries: dict[PodKind, _Entry] = {}
        self._in_namespace: dict[str, dict[PodKind, None]] = {}
        self._asked: WeakValueDictionary[tuple[Question, ...], _Asked] = WeakValueDictionary()
        self._asked_in: dict[str, WeakSet[_Asked]] = {}
        self._asked_anywhere: WeakSet[_Asked] = WeakSet()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self.namespaces_version = 0
        self.affinity: dict[Term, OwnedTerm] = {}
        self.anti_affinity: dict[Term, OwnedTerm] = {}
        self.preferred: dict[tuple[Term, int], OwnedTerm] = {}
        self.terms_version = 0
        self.moves = 0

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of each namespace."""
        return self._namespaces

    def counter(self, *questions: Question) -> Counter:
        """The pods that every one of the questions is about; kept up to date while the caller holds it."""
        known = self._asked.get(questions)
        if known is None:
            known = self._asked[questions] = _Asked(self._nodes.capacity, questions)
            first = questions[0]
            if first.namespace_selector is None:
                for namespace in first.namespaces:
                    self._asked_in.setdefault(namespace, WeakSet()).add(known)
            else:
                self._asked_anywhere.add(known)
            for kind in self._kinds_of(first):
                entry = self._entries[kind]
                if self._belongs(kind, known):
                    entry.counters.append(known)
                    for row, count in entry.rows.items():
                        known.add(row, count)
        self._fit(known)
        return known

    def sums(self, key: str, *questions: Question) -> DomainSums:
        """The pods that the questions are about, by domain of a topology key."""
        return DomainSums(self.counter(*questions), self._nodes.label(key))

    def arrive(self, row: int, kind: PodKind) -> None:
        """A pod of the kind counts on the node from now on."""
        self.moves += 1
        entry = self._entries.get(kind)
        if entry is None:
            entry = self._entries[kind] = self._enter(kind)
        entry.rows[row] = entry.rows.get(row, 0) + 1
        for counter in entry.counters:
            self._fit(counter)
            counter.add(row, 1)

    def leave(self, row: int, kind: PodKind) -> None:
        """A pod of the kind counts there no more: the inverse of `arrive`."""
        self.moves += 1
        entry = self._entries[kind]
        left = entry.rows[row] - 1
        if left:
            entry.rows[row] = left
        else:
            del entry.rows[row]
        for counter in entry.counters:
            counter.add(row, -1)
        if not entry.rows:
            self._exit(kind)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """The namespace has these labels; terms that choose namespaces by label are counted anew if that matters."""
        named = {_NAME_LABEL: name, **labels}
        if self._namespaces.get(name) == named:
            return
        self._namespaces[name] = named
        self._namespace_changed(name)

    def drop_namespace(self, name: str) -> None:
        """The namespace is gone."""
        if self._namespaces.pop(name, None) is not None:
            self._namespace_changed(name)

    def _namespace_changed(self, name: str) -> None:
        self.namespaces_version += 1
        for kind in self._in_namespace.get(name, ()):
            entry = self._entries[kind]
            for counter in list(self._asked_anywhere):
                was, now = counter in entry.counters, self._belongs(kind, counter)
                if was == now:
                    continue
                (entry.counters.append if now else entry.counters.remove)(counter)
                for row, count in entry.rows.items():
                    counter.add(row, count if now else -count)

    def _enter(self, kind: PodKind) -> _Entry:
        entry = _Entry()
        self._in_namespace.setdefault(kind.namespace, {})[kind] = None
        for asked in (*self._asked_in.get(kind.namespace, ()), *self._asked_anywhere):
            if self._belongs(kind, asked):
                entry.counters.append(asked)
        entry.counters.extend(owned.owners for owned in self._own(kind))
        return entry

    def _exit(self, kind: PodKind) -> None:
        del self._entries[kind]
        del self._in_namespace[kind.namespace][kind]
        terms = kind.terms
        for term in terms.affinity:
            self._disown(self.affinity, term)
        for term in terms.anti_affinity:
            self._disown(self.anti_affinity, term)
        for weighted in terms.preferred:
            self._disown(self.preferred, weighted)

    def _own(self, kind: PodKind) -> Iterator[OwnedTerm]:
        for term in kind.terms.affinity:
            yield self._owned(self.affinity, term, term, 0)
        for term in kind.terms.anti_affinity:
            yield self._owned(self.anti_affinity, term, term, 0)
        for term, weight in kind.terms.preferred:
            yield self._owned(self.preferred, (term, weight), term, weight)

    def _owned(self, terms: dict[_K, OwnedTerm], key: _K, term: Term, weight: int) -> OwnedTerm:
        owned = terms.get(key)
        if owned is None:
            owned = terms[key] = OwnedTerm(term, weight, Counter(self._nodes.capacity))
            self.terms_version += 1
        return owned

    def _disown(self, terms: dict[_K, OwnedTerm], key: _K) -> None:
        owned = terms.get(key)
        if owned is not None and owned.owners.total == 0:
            del terms[key]
            self.terms_version += 1

    def _belongs(self, kind: PodKind, asked: _Asked) -> bool:
        return all(question.is_about(kind, self._namespaces) for question in asked.questions)

    def _kinds_of(self, question: Question) -> Iterable[PodKind]:
        if question.namespace_selector is not None:
            return self._entries
        return [kind for namespace in question.namespaces for kind in self._in_namespace.get(namespace, ())]

    def _fit(self, counter: Counter) -> None:
        if len(counter.rows) < self._nodes.capacity:
            counter.grow(self._nodes.capacity)
