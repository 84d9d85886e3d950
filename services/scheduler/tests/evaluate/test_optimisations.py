"""Optimisations are only that: whatever is switched off, the same stories end in the same facts and explanations."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.engine.decision import Optimisations
from support.depth import examples
from support.scheduler.stories import World, differences, play

SEEDS = st.integers(0, 1 << 32)


def same(one: World, other: World) -> None:
    assert differences(one.facts(), other.facts()) == []
    told = [[(each.uid, each.event) for each in world.scheduler.explanations] for world in (one, other)]
    assert told[0] == told[1]
    kinds = {stored.type for stored in one.log.events}
    event(f"gang placed: {'GangPlaced' in kinds}, preempted: {'PodNominated' in kinds}, refused: {bool(told[0])}")


@settings(max_examples=examples(40))
@given(SEEDS)
def test_equivalence_classes_change_no_outcome(seed: int) -> None:
    same(play(seed), play(seed, optimisations=Optimisations(equivalence_classes=False)))


@settings(max_examples=examples(40))
@given(SEEDS)
@pytest.mark.deep
def test_the_dynamic_index_changes_no_outcome(seed: int) -> None:
    same(play(seed), play(seed, optimisations=Optimisations(dynamic_index=False)))
