"""Scores of nodes for pods that bind CPUs or name a topology policy.

Source: scheduler-fine-grained spec, 1.10.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from koordcore.protocol.resource_names import CPU

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.hinting import Strategy, amplified_request, zone_score
from koord_scheduler.domain.plugins.numa.need import Need, Terms, best_single_zone, terms_on
from koord_scheduler.domain.plugins.numa.plans import Plans, amplified_use

NO_SCORE: Final = 0


class Scores:
    """The score of NodeNUMAResource for pods that bind CPUs or name a topology policy. `books`: CPUs and zone amounts
    that pods hold on all nodes. `strategy`: scores a node as a whole, if no topology policy applies. `zone_strategy`:
    scores the zones that the pod would get, if a topology policy applies.
    """

    def __init__(
        self, nodes: NodeColumns, books: NumaBooks, strategy: Strategy, zone_strategy: Strategy, plans: Plans
    ) -> None:
        self._nodes = nodes
        self._books = books
        self._strategy = strategy
        self._zone_strategy = zone_strategy
        self._plans = plans
        self._columns = {name: nodes.column(name) for name, _ in strategy.weights}

    def scores(self, need: Need, rows: Rows) -> IntArray:
        """Return a score within 0..100 for each node at `rows`, int64 (K,)."""
        score = self.row_scores(need)
        return np.array([score(row) for row in row_list(rows)], np.int64)

    def row_scores(self, need: Need) -> Callable[[int], int]:
        """Return a function from a node's position to its score."""
        books = self._books

        def score(row: int) -> int:
            hardware = books.book(row).hardware
            terms = terms_on(need, hardware)
            if isinstance(terms, str):
                return NO_SCORE
            if terms.policy is TopologyPolicy.NONE:
                return self._of_node(need, row, terms)
            if need.providers:
                return self._plans.kept("score", need, row, lambda: self._of_zones(need, row, terms))
            return self._of_zones(need, row, terms)

        return score

    def _of_node(self, need: Need, row: int, terms: Terms) -> int:
        nodes, book = self._nodes, self._books.book(row)
        used: dict[str, int] = {}
        capacity: dict[str, int] = {}
        for name, column in self._columns.items():
            capacity[name] = nodes.allocatable_at[column, row]
            taken = nodes.requested_at[column, row]
            request = need.amounts.get(name, 0)
            if name == CPU and request:
                taken = amplified_use(taken, book.bound.bit_count(), book.hardware.node_ratio)
            used[name] = taken + amplified_request(name, request, terms.binding, book.hardware.node_ratio)
        return self._strategy.score(used, capacity, need.amounts)

    def _of_zones(self, need: Need, row: int, terms: Terms) -> int:
        """Return the score of the zones that the pod would get; 0 if it would get none."""
        book, strategy = self._books.book(row), self._zone_strategy
        node = book.zones(most_allocated=strategy.most_allocated)
        single = best_single_zone(need, row, self._books, node, terms.binding, strategy)
        if single is not None:
            return single[1]
        planned = self._plans.plan(need, row)
        if isinstance(planned, str):
            return NO_SCORE
        zones = planned.affinity if planned.affinity is not None else node.zones
        return zone_score(node, need.amounts, terms.binding, zones, strategy)
