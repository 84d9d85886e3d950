"""The best nodes of one class of pods over many looks, with few and with many changes between them."""

from random import Random

import numpy as np
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.ranking import INFEASIBLE, best_of
from koord_scheduler.domain.engine.view_totals import Groups, Totals
from support.scheduler.scheduling import node

NODES = 40


def columns() -> NodeColumns:
    nodes = NodeColumns()
    for number in range(NODES):
        nodes.put(f"n{number}", node_shape(node(f"n{number}")))
    return nodes


def test_every_look_finds_the_best_nodes_whether_totals_are_searched_or_ranked() -> None:
    nodes, random = columns(), Random(5)
    totals = Totals(nodes)
    totals.clear(Groups())
    present = np.full(NODES, INFEASIBLE, np.int64)
    for look in range(300):
        changes = 1 if look % 100 < 60 else random.choice([1, NODES])
        totals.unsettle(changes)
        for row in random.sample(range(NODES), changes):
            present[row] = random.choice([INFEASIBLE, 3, 5, 8])
            totals.put(row, int(present[row]))
        totals.settle()
        seed = random.getrandbits(64)
        assert totals.best(3, seed) == best_of(present, nodes.name_hash[:NODES], seed, 3), f"look {look}"


def test_nodes_with_equal_raw_scores_of_all_plugins_are_one_group() -> None:
    random = np.random.default_rng(3)
    groups = Groups()
    for scores in (1, 2, 3):
        raws = [random.integers(-2, 3, 60) for _ in range(scores)]
        expected = [groups.id_of(key) for key in zip(*(raw.tolist() for raw in raws), strict=True)]
        assert groups.ids_of(raws, 60).tolist() == expected
