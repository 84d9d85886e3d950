"""Numbers of pods by node, for each selection of pods that constraints of other pods need.

A pod that comes or goes costs only the counters (`counters`) to which its kind (`kinds`) belongs. A counter exists as
long as a constraint holds it.

Source: scheduler-core spec, 5.6 and 5.7
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

from koordcore.protocol.selectors import Operator

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.kinds import NAME_LABEL, PodKind, Question, Term
from koord_scheduler.domain.columns.counters import Counter, DomainSums
from koord_scheduler.domain.columns.node_columns import NodeColumns

_K = TypeVar("_K")


@dataclass(slots=True, eq=False)
class _Entry:
    rows: dict[int, int] = field(default_factory=dict[int, int])  # Row -> number of pods
    counters: list[Counter] = field(default_factory=list[Counter])  # The counters to which the kind belongs


class _Asked(Counter):
    """A counter of the pods that all of some questions select."""

    __slots__ = ("questions",)

    def __init__(self, capacity: int, questions: tuple[Question, ...]) -> None:
        super().__init__(capacity)
        self.questions = questions


@dataclass(slots=True, eq=False)
class OwnedTerm:
    """An inter-pod affinity term that pods on nodes have."""

    term: Term  # The topology key and the selection of pods
    weight: int  # Weight of a preferred term, negative for anti-affinity; 0 for required terms
    number: int  # Of the terms, in the order in which they appeared
    # Kind of pods -> how often these pods have the term: one that a pod repeats counts as often.
    kinds: dict[PodKind, int] = field(default_factory=dict[PodKind, int])
    # Counter of these pods. None until a pod that the term selects asks for it: most terms of others select few pods.
    counter: Counter | None = None


class OwnedTerms(Generic[_K]):
    """Terms by key, and by a label value that they require, so that terms about other pods are not looked at."""

    def __init__(self) -> None:
        self._terms: dict[_K, OwnedTerm] = {}
        self._requiring: dict[tuple[str, str], dict[_K, OwnedTerm]] = {}
        self._others: dict[_K, OwnedTerm] = {}
        self._appeared = 0

    def __len__(self) -> int:
        return len(self._terms)

    def get(self, key: _K) -> OwnedTerm | None:
        return self._terms.get(key)

    def add(self, key: _K, term: Term, weight: int) -> OwnedTerm:
        self._appeared += 1
        owned = self._terms[key] = OwnedTerm(term, weight, self._appeared)
        required = _required_labels(term)
        for label in required:
            self._requiring.setdefault(label, {})[key] = owned
        if not required:
            self._others[key] = owned
        return owned

    def remove(self, key: _K) -> None:
        owned = self._terms.pop(key)
        for label in _required_labels(owned.term):
            filed = self._requiring[label]
            filed.pop(key, None)
            if not filed:
                del self._requiring[label]
        self._others.pop(key, None)

    def about(self, kind: PodKind, namespaces: Mapping[str, Mapping[str, str]]) -> list[OwnedTerm]:
        """Return the terms that select pods of a kind, in the order in which they appeared. `namespaces`: namespace ->
        its labels.
        """
        found = [owned for owned in self._others.values() if owned.term.question.is_about(kind, namespaces)]
        if self._requiring:
            for label in kind.labels.items():
                filed = self._requiring.get(label)
                if filed is not None:
                    found += [owned for owned in filed.values() if owned.term.question.is_about(kind, namespaces)]
        return sorted(found, key=_number_of)


def _number_of(owned: OwnedTerm) -> int:
    return owned.number


def _required_labels(term: Term) -> list[tuple[str, str]]:
    """Return label values of which each pod that the term selects has one; empty if there are none."""
    selector = term.question.selector
    for requirement in selector.requirements if selector is not None else ():
        if requirement.operator is Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
    return []


class Population:
    """Numbers of pods on each node for the selections that affinity and spread constraints make. They are updated with
    each pod that comes or leaves.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._entries: dict[PodKind, _Entry] = {}
        self._in_namespace: dict[str, dict[PodKind, None]] = {}
        self._asked: WeakValueDictionary[tuple[Question, ...], _Asked] = WeakValueDictionary()
        self._asked_in: dict[str, WeakSet[_Asked]] = {}
        self._asked_anywhere: WeakSet[_Asked] = WeakSet()
        self._forgetting = Forgetting()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self.namespaces_version = 0  # Number that grows when labels of a namespace change
        self.affinity: OwnedTerms[Term] = OwnedTerms()  # Required affinity terms that pods on nodes have
        self.anti_affinity: OwnedTerms[Term] = OwnedTerms()  # Required anti-affinity terms that pods on nodes have
        self.preferred: OwnedTerms[tuple[Term, int]] = OwnedTerms()  # Preferred terms that pods on nodes have
        self.terms_version = 0  # Number that grows when one of these terms appears or disappears
        self.moves = 0  # Number that grows with every pod that comes or leaves, and if domains or namespaces change

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Namespace -> its labels."""
        return self._namespaces

    def counter(self, *questions: Question) -> Counter:
        """A counter of the pods that all of the questions select. Equal questions share it. It is kept up to date while
        it is referred to.
        """
        known = self._asked.get(questions)
        if known is None:
            known = self._asked[questions] = _Asked(self._nodes.capacity, questions)
            first = questions[0]
            if first.namespace_selector is None:
                for namespace in first.namespaces:
                    self._asked_in.setdefault(namespace, WeakSet()).add(known)
                if self._forgetting.is_due(len(self._asked_in)):
                    self._asked_in = {namespace: asked for namespace, asked in self._asked_in.items() if asked}
                    self._forgetting.searched(len(self._asked_in))
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

    def owners(self, owned: OwnedTerm) -> Counter:
        """A counter of the pods that have a term. It is made on first use, and kept while pods have the term."""
        counter = owned.counter
        if counter is None:
            counter = owned.counter = Counter(self._nodes.capacity)
            for kind, times in owned.kinds.items():
                entry = self._entries[kind]
                entry.counters += [counter] * times
                for row, count in entry.rows.items():
                    counter.add(row, count * times)
        self._fit(counter)
        return counter

    def sums(self, key: str, *questions: Question) -> DomainSums:
        """Return the number of pods that all questions select, by value of the node label `key` (topology domain)."""
        return DomainSums(self.counter(*questions), self._nodes.label(key))

    def arrive(self, row: int, kind: PodKind) -> None:
        self.moves += 1
        entry = self._entries.get(kind)
        if entry is None:
            entry = self._entries[kind] = self._enter(kind)
        entry.rows[row] = entry.rows.get(row, 0) + 1
        for counter in entry.counters:
            self._fit(counter)
            counter.add(row, 1)

    def leave(self, row: int, kind: PodKind) -> None:
        """The inverse of `arrive`."""
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

    def domains_changed(self) -> None:
        """Record that labels or taints of a node have changed, or that a node is gone: other nodes may fit now."""
        self.moves += 1

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """If the labels changed, its pods are counted again for terms that select namespaces by label."""
        named = {NAME_LABEL: name, **labels}
        if self._namespaces.get(name) == named:
            return
        self._namespaces[name] = named
        self._namespace_changed(name)

    def drop_namespace(self, name: str) -> None:
        if self._namespaces.pop(name, None) is not None:
            self._namespace_changed(name)

    def _namespace_changed(self, name: str) -> None:
        self.namespaces_version += 1
        self.moves += 1
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
        for owned in self._own(kind):
            owned.kinds[kind] = owned.kinds.get(kind, 0) + 1
            if owned.counter is not None:
                entry.counters.append(owned.counter)
        return entry

    def _exit(self, kind: PodKind) -> None:
        del self._entries[kind]
        kinds = self._in_namespace[kind.namespace]
        del kinds[kind]
        if not kinds:
            del self._in_namespace[kind.namespace]
        terms = kind.terms
        for term in terms.affinity:
            self._disown(self.affinity, term, kind)
        for term in terms.anti_affinity:
            self._disown(self.anti_affinity, term, kind)
        for weighted in terms.preferred:
            self._disown(self.preferred, weighted, kind)

    def _own(self, kind: PodKind) -> Iterator[OwnedTerm]:
        for term in kind.terms.affinity:
            yield self._owned(self.affinity, term, term, 0)
        for term in kind.terms.anti_affinity:
            yield self._owned(self.anti_affinity, term, term, 0)
        for term, weight in kind.terms.preferred:
            yield self._owned(self.preferred, (term, weight), term, weight)

    def _owned(self, terms: OwnedTerms[_K], key: _K, term: Term, weight: int) -> OwnedTerm:
        owned = terms.get(key)
        if owned is None:
            owned = terms.add(key, term, weight)
            self.terms_version += 1
        return owned

    def _disown(self, terms: OwnedTerms[_K], key: _K, kind: PodKind) -> None:
        owned = terms.get(key)
        if owned is not None:
            owned.kinds.pop(kind, None)
            if not owned.kinds:
                terms.remove(key)
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
