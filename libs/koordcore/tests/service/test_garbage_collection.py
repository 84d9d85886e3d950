"""How often a service collects garbage."""

import gc
from collections.abc import Generator

import pytest
from koordcore.service import run


@pytest.fixture(autouse=True)
def as_before() -> Generator[None]:
    before, callbacks = gc.get_threshold(), gc.callbacks.copy()
    yield
    gc.set_threshold(*before)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def collections_of(objects: int) -> int:
    """How often the garbage collector runs while so many objects are made that stay."""
    gc.collect()
    before = sum(each["collections"] for each in gc.get_stats())
    made = [[number] for number in range(objects)]
    after = sum(each["collections"] for each in gc.get_stats())
    assert len(made) == objects
    return after - before


def test_a_service_that_folds_a_cluster_collects_less_often_while_facts_are_under_way() -> None:
    run.collect_rarely()
    others = collections_of(90_000)
    run.collect_rarely(folds_cluster=True)
    assert collections_of(90_000) < others


def test_what_survives_a_full_collection_is_not_looked_at_again() -> None:
    run.collect_rarely(folds_cluster=True)
    kept = [[number] for number in range(1000)]
    frozen = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(kept)
