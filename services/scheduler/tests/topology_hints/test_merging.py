"""Hints of several providers are merged as the specification's loop over all combinations does."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.framework.topology_hints import (
    Hint,
    Hints,
    TopologyPolicy,
    Zones,
    ZoneStatus,
    admitted,
    ids_of,
    narrowest_union,
    zones_of,
)
from support.depth import examples

ALL = zones_of(range(4))
HINT = st.builds(Hint, st.one_of(st.none(), st.integers(1, ALL)), preferred=st.booleans(), score=st.integers(0, 5))
PROVIDERS = st.lists(
    st.dictionaries(st.sampled_from("ab"), st.lists(HINT, min_size=1, max_size=4), max_size=2), max_size=3
)
STATUSES = st.one_of(st.none(), st.dictionaries(st.integers(0, 3), st.sampled_from(ZoneStatus)))


def by_the_letter(providers: list[Hints], exclusive: dict[int, ZoneStatus] | None) -> tuple[Zones, bool, int]:
    """The merge of spec 1.7, step by step, without its treatment of unsatisfied combinations."""
    lists = [hints or [] for provider in providers for hints in (provider or {"": [Hint(None, True)]}).values()]
    zones, preferred, score = ALL, False, 0
    for combination in product(*lists):
        masks = [hint.zones for hint in combination if hint.zones is not None]
        merged = ALL
        for mask in masks:
            merged &= mask
        if not merged:
            continue
        is_preferred = all(hint.preferred for hint in combination) and len(set(masks)) <= 1
        if exclusive is not None:
            among = [exclusive.get(zone) for zone in ids_of(merged)]
            if (len(among) > 1 and ZoneStatus.SINGLE in among) or among == [ZoneStatus.SHARED]:
                is_preferred = False
        total = sum(hint.score for hint in combination if hint.zones == merged)
        narrower = (merged.bit_count(), merged) < (zones.bit_count(), zones)
        same_size_and_better = merged.bit_count() == zones.bit_count() and total > score
        if (is_preferred and not preferred) or (is_preferred == preferred and (narrower or same_size_and_better)):
            zones, preferred, score = merged, is_preferred, total
    return zones, preferred, score


@given(PROVIDERS, STATUSES)
def test_restricted_admits_the_best_of_all_combinations_if_it_is_preferred(
    providers: list[dict[str, list[Hint]]], exclusive: dict[int, ZoneStatus] | None
) -> None:
    zones, preferred, score = by_the_letter(list(providers), exclusive)
    found = admitted(TopologyPolicy.RESTRICTED, ALL, providers, exclusive)
    assert found.is_admitted == preferred
    if preferred:
        assert (found.zones, found.preferred, found.score) == (zones, True, score)
    else:
        assert found.reasons


@given(PROVIDERS, STATUSES)
def test_best_effort_takes_the_best_combination_or_all_zones(
    providers: list[dict[str, list[Hint]]], exclusive: dict[int, ZoneStatus] | None
) -> None:
    found = admitted(TopologyPolicy.BEST_EFFORT, ALL, providers, exclusive)
    assert found.is_admitted
    assert (found.zones, found.preferred, found.score) in (
        by_the_letter(list(providers), exclusive),
        (ALL, False, 0),
    )


@given(PROVIDERS)
def test_single_numa_node_admits_one_zone_or_none(providers: list[dict[str, list[Hint]]]) -> None:
    found = admitted(TopologyPolicy.SINGLE_NUMA_NODE, ALL, providers)
    if found.is_admitted:
        assert found.zones is None or found.zones.bit_count() == 1


def test_a_refusal_names_the_resource_and_the_masks_that_it_prefers() -> None:
    providers: list[Hints] = [
        {"cpu": [Hint(0b01, preferred=True), Hint(0b11, preferred=False)]},
        {"gpu": [Hint(0b10, preferred=True)]},
    ]
    found = admitted(TopologyPolicy.SINGLE_NUMA_NODE, 0b11, providers)
    assert found.reasons == ("Unaligned NUMA Hint cause cpu prefer [1] among [1 11], gpu prefer [10] among [10]",)
    found = admitted(TopologyPolicy.RESTRICTED, 0b11, [{"cpu": []}])
    assert found.reasons == ("Unsatisfied NUMA cpu",)
    assert found.unsatisfied == ("cpu",)


# --- more combinations than can be compared ---------------------------------------------------------------------------

EIGHT = zones_of(range(8))
LISTS = st.lists(st.lists(st.integers(1, EIGHT), min_size=1, max_size=40), min_size=1, max_size=4)


@given(LISTS)
@settings(max_examples=examples(200))
def test_the_narrowest_union_is_the_narrowest_set_that_contains_a_hint_of_each_list(lists: list[list[Zones]]) -> None:
    by_width = [zones_of(ids) for size in range(1, 9) for ids in combinations(range(8), size)]
    fitting = [zones for zones in by_width if all(any(mask & ~zones == 0 for mask in masks) for masks in lists)]
    least = min(fitting, key=lambda zones: (zones.bit_count(), zones))
    assert narrowest_union([[Hint(mask, preferred=False) for mask in masks] for masks in lists], EIGHT) == least


def sets_of(ids: range) -> list[Hint]:
    """A hint for each set of these zones; single zones are preferred."""
    masks = [zones_of(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)]
    return [Hint(mask, preferred=mask.bit_count() == 1) for mask in masks]


def test_best_effort_joins_a_gpu_of_one_zone_with_cpus_of_another_out_of_264_million_combinations() -> None:
    cpus = sets_of(range(7))
    gpus = [Hint(hint.zones, preferred=hint.zones == 1 << 7) for hint in sets_of(range(8)) if (hint.zones or 0) >> 7]
    found = admitted(TopologyPolicy.BEST_EFFORT, EIGHT, [{"cpu": cpus, "memory": cpus}, {"gpu": gpus, "rdma": gpus}])
    assert (found.is_admitted, found.zones, found.preferred) == (True, zones_of((0, 7)), False)
    without_gpu: list[Hints] = [{"cpu": cpus, "memory": cpus}, {"gpu": [], "rdma": gpus}]
    assert admitted(TopologyPolicy.BEST_EFFORT, EIGHT, without_gpu).zones == EIGHT


def test_the_narrowest_union_ignores_hints_outside_of_the_node_and_lists_that_accept_any_zones() -> None:
    anywhere, outside = [Hint(None, preferred=True)], [Hint(1 << 9, preferred=True)]
    assert narrowest_union([anywhere, [Hint(0b100, preferred=True)]], 0b1111) == 0b100
    assert narrowest_union([anywhere], 0b1111) == 0b1111
    assert narrowest_union([outside, [Hint(0b100, preferred=True)]], 0b1111) == 0b1111
