"""Both ways of finding the best nodes give the same answer, whatever changed in which order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.engine.ranking import INFEASIBLE, Ranking, best_of, best_of_groups, rankings_by

TOTALS = st.lists(st.integers(INFEASIBLE, 4), min_size=1, max_size=30)
MOVES = st.lists(st.tuples(st.integers(0, 29), st.integers(INFEASIBLE, 4)), max_size=40)
SEEDS = st.integers(0, 2**64 - 1)


def places(count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return (np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0x123456789ABCDEF)


def ranking_of(
    totals: "np.ndarray[tuple[int], np.dtype[np.int64]]", hashes: "np.ndarray[tuple[int], np.dtype[np.uint64]]"
) -> Ranking:
    row_at = {int(place): row for row, place in enumerate(hashes)}
    return rankings_by(np.zeros(len(totals), np.int64), totals, hashes, row_at).get(0, Ranking(row_at))


@given(TOTALS, MOVES, SEEDS, st.integers(1, 5))
def test_buckets_answer_like_a_pass_over_all(
    totals: list[int], moves: list[tuple[int, int]], seed: int, count: int
) -> None:
    array, hashes = np.array(totals, np.int64), places(len(totals))
    ranking = ranking_of(array, hashes)
    for row, total in moves:
        if row < len(totals):
            ranking.move(int(hashes[row]), int(array[row]), total)
            array[row] = total
        assert ranking.best(seed, count) == best_of(array, hashes, seed, count)


@given(TOTALS, st.lists(st.integers(0, 3), min_size=4, max_size=4), SEEDS, st.integers(1, 5), st.data())
def test_groups_answer_like_a_pass_over_the_sums(
    totals: list[int], added: list[int], seed: int, count: int, data: st.DataObject
) -> None:
    array, hashes = np.array(totals, np.int64), places(len(totals))
    groups = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(totals), max_size=len(totals))), np.int64)
    row_at = {int(place): row for row, place in enumerate(hashes)}
    rankings = rankings_by(groups, array, hashes, row_at)
    sums = np.where(array >= 0, array + np.array(added)[groups], INFEASIBLE)
    assert best_of_groups(rankings, added, row_at, seed, count) == best_of(sums, hashes, seed, count)


def test_equals_are_shared_out_by_the_seed() -> None:
    hashes = places(16)
    array = np.full(16, 7, np.int64)
    firsts = {best_of(array, hashes, (seed * 0x9E3779B97F4A7C15) % 2**64, 1)[0] for seed in range(200)}
    assert len(firsts) > 10


def test_nothing_feasible_gives_nothing() -> None:
    array = np.full(3, INFEASIBLE, np.int64)
    assert best_of(array, places(3), 1, 3) == ranking_of(array, places(3)).best(1, 3) == []
