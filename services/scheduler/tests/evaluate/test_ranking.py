"""Both ways of finding the best nodes give the same answer, whatever changed in which order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.evaluate.ranking import INFEASIBLE, Ranking, best_of

TOTALS = st.lists(st.integers(INFEASIBLE, 4), min_size=1, max_size=30)
MOVES = st.lists(st.tuples(st.integers(0, 29), st.integers(INFEASIBLE, 4)), max_size=40)
SEEDS = st.integers(0, 2**64 - 1)


def places(count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return (np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0x123456789ABCDEF)


@given(TOTALS, MOVES, SEEDS, st.integers(1, 5))
def test_buckets_answer_like_a_pass_over_all(
    totals: list[int], moves: list[tuple[int, int]], seed: int, count: int
) -> None:
    array, hashes = np.array(totals, np.int64), places(len(totals))
    ranking = Ranking(array, hashes)
    for row, total in moves:
        if row < len(totals):
            ranking.move(row, int(hashes[row]), int(array[row]), total)
            array[row] = total
        assert ranking.best(seed, count) == best_of(array, hashes, seed, count)


def test_equals_are_shared_out_by_the_seed() -> None:
    hashes = places(16)
    array = np.full(16, 7, np.int64)
    firsts = {best_of(array, hashes, (seed * 0x9E3779B97F4A7C15) % 2**64, 1)[0] for seed in range(200)}
    assert len(firsts) > 10


def test_nothing_feasible_gives_nothing() -> None:
    array = np.full(3, INFEASIBLE, np.int64)
    assert best_of(array, places(3), 1, 3) == Ranking(array, places(3)).best(1, 3) == []
