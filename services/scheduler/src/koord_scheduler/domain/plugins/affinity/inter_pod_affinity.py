"""InterPodAffinity: pods that must or prefer to run near other pods, or away from them.

Filter, by domain of the term's topology key:
    affinity          every required term finds a pod that matches all required terms. If no such pod runs anywhere and
                      the pod matches its own terms, it may be the first
    anti-affinity     no pod in the domain matches a required anti-affinity term of this pod
    existing pods     no pod in the domain has a required anti-affinity term that matches this pod
Score: for each preferred term of this pod, and each term of a running pod that matches it: the term's weight times the
number of pods in the node's domain.

Source: scheduler-core spec, 5.7
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.kinds import PodKind, Term
from koord_scheduler.domain.cluster.population import OwnedTerm, Population
from koord_scheduler.domain.columns.counters import DomainSums
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.config.kubernetes_args import InterPodAffinityArgs
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS, Detail
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_FILTER, CROSS_NODE_SCORE

_WIDEST_TABLE: Final = 1 << 14
AFFINITY: Final = 1
ANTI_AFFINITY: Final = 2
EXISTING_ANTI_AFFINITY: Final = 3
_REASONS: Final = {
    AFFINITY: "node(s) didn't match pod affinity rules",
    ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    EXISTING_ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
}


class _Weighted(NamedTuple):
    sums: DomainSums
    weight: int


class InterPodAffinity:
    """The plugin InterPodAffinity: makes a filter and a score for pods with equal class and kind."""

    name = "InterPodAffinity"
    extension_points = (CROSS_NODE_FILTER, CROSS_NODE_SCORE)

    def __init__(self, nodes: NodeColumns, population: Population, args: InterPodAffinityArgs) -> None:
        self.nodes = nodes
        self.population = population
        self.args = args

    def version(self) -> int:
        return self.population.terms_version + self.population.namespaces_version

    def filter_for(self, subject: Subject) -> "InterPodFilter | None":
        """Return the filter for a pod. None if the pod has no required terms and no running pod's anti-affinity selects
        it.
        """
        against = self.population.anti_affinity.about(subject.kind, self.population.namespaces)
        terms = subject.kind.terms
        if not (terms.affinity or terms.anti_affinity or against):
            return None
        return InterPodFilter(self, subject, [(owned.term, self._owners(owned)) for owned in against])

    def score_for(self, subject: Subject) -> "InterPodScore | None":
        """Return the score for a pod. None if the pod has no preferred terms and no term of a running pod selects it.
        With the argument `ignorePreferredTermsOfExistingPods`, terms of running pods give no score to pods without
        preferred terms.
        """
        preferred = subject.kind.terms.preferred
        if self.args.ignore_preferred_terms_of_existing_pods and not preferred:
            return None
        weighted = [*self._own(subject), *self._of_others(subject)]
        return InterPodScore(weighted) if weighted else None

    def _own(self, subject: Subject) -> Iterator[_Weighted]:
        for term, weight in subject.kind.terms.preferred:
            yield _Weighted(self.population.sums(term.topology_key, term.question), weight)

    def _of_others(self, subject: Subject) -> Iterator[_Weighted]:
        population, hard = self.population, self.args.hard_pod_affinity_weight
        if hard:
            for owned in population.affinity.about(subject.kind, population.namespaces):
                yield _Weighted(self._owners(owned), hard)
        for owned in population.preferred.about(subject.kind, population.namespaces):
            yield _Weighted(self._owners(owned), owned.weight)

    def _owners(self, owned: OwnedTerm) -> DomainSums:
        return DomainSums(self.population.owners(owned), self.nodes.label(owned.term.topology_key))


class InterPodFilter:
    """Refuses nodes by required affinity and anti-affinity, for pods with equal class and kind. `against`: Required
    anti-affinity terms of running pods that select these pods, with the number of the running pods by topology domain.
    """

    def __init__(self, plugin: InterPodAffinity, subject: Subject, against: list[tuple[Term, DomainSums]]) -> None:
        population, terms = plugin.population, subject.kind.terms
        self._population, self._terms = population, terms
        questions = [term.question for term in terms.affinity]
        self._affinity = [population.sums(term.topology_key, *questions) for term in terms.affinity]
        self._matches_itself = all(question.is_about(subject.kind, population.namespaces) for question in questions)
        self._anti = [population.sums(term.topology_key, term.question) for term in terms.anti_affinity]
        self._against = against

    def filter(self, rows: Rows) -> IntArray | None:
        """Return codes that refuse nodes because of affinity or anti-affinity, of the new pod or of running pods."""
        codes = np.zeros(len(rows), np.int64)
        for _, sums in self._against:
            codes[_in_domain_with_pods(sums, rows)] = EXISTING_ANTI_AFFINITY
        for sums in self._anti:
            codes[_in_domain_with_pods(sums, rows)] = ANTI_AFFINITY
        if self._affinity:
            codes[~self._satisfied(rows)] = AFFINITY
        return codes

    def _satisfied(self, rows: Rows) -> BoolArray:
        has_keys = np.ones(len(rows), np.bool_)
        near = np.ones(len(rows), np.bool_)
        found_anywhere = False
        for sums in self._affinity:
            counts = sums.refresh()
            values = sums.column.at(rows)
            has_keys &= values != 0
            near &= (counts > 0)[values]
            found_anywhere |= bool(counts.any())
        return has_keys if not found_anywhere and self._matches_itself else has_keys & near

    def reason(self, code: int) -> str:
        return _REASONS[code]

    def is_unresolvable(self, code: int) -> bool:
        """Return whether preemption cannot help, because the code is AFFINITY: the pod that must be near is missing."""
        return code == AFFINITY

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        if reason == _REASONS[AFFINITY]:
            found = self._lacking(rows)
        elif reason == _REASONS[ANTI_AFFINITY]:
            anti = zip(self._terms.anti_affinity, self._anti, strict=True)
            found = self._too_near(rows, anti, "it keeps away from {pod}", self._is_meant)
        else:
            found = self._too_near(rows, self._against, "{pod} keeps it away", _owns)
        return list(islice(found, MOST_DETAILS))

    def _lacking(self, rows: Rows) -> Iterator[Detail]:
        for term, sums in zip(self._terms.affinity, self._affinity, strict=True):
            counts, values = sums.refresh(), sums.column.values[rows]
            for value in np.unique(values[counts[values] == 0]):
                where = f"{term.topology_key}={sums.column.texts[value]}"
                yield Detail(f"{where}: no pod that it wants to be near" if value else f"no label {term.topology_key}")

    def _too_near(
        self,
        rows: Rows,
        against: Iterable[tuple[Term, DomainSums]],
        text: str,
        is_it: Callable[[Term, PodKind], bool],
    ) -> Iterator[Detail]:
        for term, sums in against:
            counts, values = sums.refresh(), sums.column.values[rows]
            for value in np.unique(values[counts[values] > 0]):
                there = (sums.column.values == value) & (sums.counter.rows[: len(sums.column.values)] > 0)
                where = f"{term.topology_key}={sums.column.texts[value]}"
                yield Detail(f"{where}: {text}", int(np.flatnonzero(there)[0]), partial(is_it, term))

    def _is_meant(self, term: Term, kind: PodKind) -> bool:
        return term.question.is_about(kind, self._population.namespaces)


class InterPodScore:
    """Scores nodes by preferred terms: the normalized sum of weight times number of matching pods in the domain."""

    def __init__(self, weighted: list[_Weighted]) -> None:
        self._weighted = weighted

    def scores(self, feasible: Rows) -> IntArray | None:
        """Return the weighted number of matching pods in each node's domains, scaled to 0..100 over the feasible nodes.
        None if no pod was counted in any domain. All scores are 0 if the numbers of all nodes are equal.
        """
        raw = np.zeros(len(feasible), np.int64)
        touched = False
        for sums, weight in self._weighted:
            counts = sums.refresh()
            touched |= bool(counts.any())
            raw += weight * counts[sums.column.at(feasible)]
        if not touched:
            return None
        low, high = (int(raw.min()), int(raw.max())) if len(raw) else (0, 0)
        if high <= low:
            return np.zeros_like(raw)
        if high - low > _WIDEST_TABLE:
            return _scaled(raw - low, high - low)
        return _shares(high - low)[raw - low]


def _owns(term: Term, kind: PodKind) -> bool:
    return term in kind.terms.anti_affinity


def _in_domain_with_pods(sums: DomainSums, rows: Rows) -> BoolArray:
    return (sums.refresh() > 0)[sums.column.at(rows)]


@lru_cache(maxsize=64)
def _shares(span: int) -> IntArray:
    """Return the scaled score of each n in 0..span, because a table is faster than a division."""
    return _scaled(np.arange(span + 1, dtype=np.int64), span)


def _scaled(above: IntArray, span: int) -> IntArray:
    """Return 100 * (above / span) in double precision, rounded down: 29 of 50 score 57, as in kube-scheduler."""
    return (100.0 * (above / span)).astype(np.int64)
