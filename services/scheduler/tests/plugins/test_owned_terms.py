"""Affinity terms of running pods: those that select a pod are found, and their pods counted, in any order of events."""

from itertools import product
from random import Random
from typing import Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.kinds import OwnTerms, PodKind, Question, Term
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koordcore.protocol.selectors import EVERYTHING, Operator, Requirement, Selector
from support.depth import examples

VALUES: Final = ("", "a", "b")
LABELS: Final = [
    {key: value for key, value in zip(("app", "tier"), pair, strict=True) if value} for pair in product(VALUES, VALUES)
]
REQUIREMENTS: Final = [
    *(Requirement(key, Operator.IN, frozenset(values)) for key in ("app", "tier") for values in ("a", "b", "ab")),
    *(Requirement(key, Operator.NOT_IN, frozenset("a")) for key in ("app", "tier")),
    *(Requirement(key, Operator.EXISTS, frozenset()) for key in ("app", "tier")),
    Requirement("app", Operator.DOES_NOT_EXIST, frozenset()),
]
SPACES: Final = ("x", "y")


def some_term(random: Random) -> Term:
    selector = random.choice([None, EVERYTHING, Selector(tuple(random.sample(REQUIREMENTS, random.randint(1, 2))))])
    anywhere = random.random() < 0.2
    question = Question(frozenset() if anywhere else frozenset({random.choice(SPACES)}), None, selector)
    if anywhere:
        question = Question(frozenset(), EVERYTHING, selector)
    return Term(random.choice(("zone", "host")), question)


def some_kind(random: Random, terms: list[Term]) -> PodKind:
    own = tuple(random.choices(terms, k=random.randint(0, 3)))
    return PodKind(namespace=random.choice(SPACES), labels=random.choice(LABELS), terms=OwnTerms(anti_affinity=own))


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32).map(Random))
def test_terms_that_select_a_pod_are_those_that_a_look_at_all_finds(random: Random) -> None:
    population = Population(NodeColumns())
    terms = [some_term(random) for _ in range(6)]
    kinds = [some_kind(random, terms) for _ in range(6)]
    running: list[tuple[int, PodKind]] = []
    for _ in range(60):
        if running and random.random() < 0.45:
            row, kind = running.pop(random.randrange(len(running)))
            population.leave(row, kind)
        else:
            running.append((random.randrange(4), random.choice(kinds)))
            population.arrive(*running[-1])
        if random.random() < 0.5:
            continue
        asking = random.choice(kinds)
        found = population.anti_affinity.about(asking, population.namespaces)
        owned = {term for _, kind in running for term in kind.terms.anti_affinity}
        assert {each.term for each in found} == {term for term in owned if term.question.is_about(asking, {})}
        assert len(population.anti_affinity) == len(owned)
        for each in found:
            rows = [row for row, kind in running for term in kind.terms.anti_affinity if term == each.term]
            expected = np.bincount(rows, minlength=population.owners(each).rows.size)
            assert population.owners(each).rows.tolist() == expected.tolist()
    for row, kind in running:
        population.leave(row, kind)
    assert not len(population.anti_affinity)


def test_terms_that_select_no_waiting_pod_cost_no_counter() -> None:
    population = Population(NodeColumns())
    terms = tuple(
        Term("zone", Question(frozenset({"x"}), None, Selector((Requirement("app", Operator.IN, frozenset({name})),))))
        for name in ("a", "b")
    )
    population.arrive(0, PodKind(namespace="x", labels={}, terms=OwnTerms(anti_affinity=terms)))
    [found] = population.anti_affinity.about(PodKind(namespace="x", labels={"app": "a"}), {})
    assert population.owners(found).total == 1
    assert [owned.counter is None for owned in map(population.anti_affinity.get, terms) if owned] == [False, True]
