"""A configuration with an entry for each of many nodes: the work grows with the entries, not with their square."""

import json
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol.config import admission, strategy
from koordcore.protocol.config.admission import NodeLabels, Reason, config_faults, validate_config_map
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.selector_index import SelectorIndex
from koordcore.protocol.selectors import Operator, Requirement, Selector

ENTRIES: Final = 10_000
KEYS, VALUES = ("a", "b", "c"), ("1", "2", "3")


class Counting(SelectorIndex):
    """An index that adds up what all indexes asked."""

    total = 0
    _own = 0

    @property
    def asked(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._own

    @asked.setter
    def asked(self, value: int) -> None:
        Counting.total += value - self._own
        self._own = value


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    monkeypatch.setattr(admission, "SelectorIndex", Counting)
    monkeypatch.setattr(strategy, "SelectorIndex", Counting)
    monkeypatch.setattr(Counting, "total", 0)
    return Counting


def entry(number: int) -> dict[str, object]:
    selector = {"matchLabels": {"h": f"node-{number:05}"}}
    return {"name": f"n{number}", "nodeSelector": selector, "degradeTimeMinutes": 1 + number % 20}


def config_of(*entries: Mapping[str, object]) -> dict[str, str]:
    document = {"enable": True, "nodeConfigs": entries}
    return {SectionName.COLOCATION.key: json.dumps(document, separators=(",", ":"))}


@pytest.mark.deep
def test_an_entry_for_each_node_is_judged_and_looked_up_with_one_check_each(counting: type[Counting]) -> None:
    data = config_of(*map(entry, range(ENTRIES)))
    assert len(data[SectionName.COLOCATION.key]) > 800_000
    nodes = [NodeLabels(name=f"n{n}", labels={"h": f"node-{n:05}", "zone": "a"}) for n in range(ENTRIES)]
    assert validate_config_map(data, {}, nodes, check_names=True).allowed
    assert config_faults(data) == []
    config = read_config_map(None, data).config
    for number, node in enumerate(nodes):
        found = config.strategy_for(SectionName.COLOCATION, node.labels, {})
        assert found is not None
        assert found["degradeTimeMinutes"] == 1 + number % 20
    assert counting.total <= 4 * ENTRIES


def test_the_last_of_many_entries_may_overlap(counting: type[Counting]) -> None:
    data = config_of(*map(entry, range(ENTRIES)), entry(ENTRIES - 1))
    assert validate_config_map(data, {}, [], check_names=False).reason is Reason.NODE_STRATEGIES_OVERLAP
    assert counting.total <= 2 * ENTRIES


def test_selectors_that_no_index_can_part_are_judged_within_a_limit(
    counting: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_MAX_ASKED", 20_000)
    expressions = [
        [{"key": "h", "operator": "NotIn", "values": ["x"]}, {"key": f"k{n}", "operator": "NotIn", "values": ["x"]}]
        for n in range(2000)
    ]
    entries = [{"nodeSelector": {"matchExpressions": each}} for each in expressions]
    nodes = [NodeLabels(name=f"n{n}", labels={"h": "x", "n": str(n)}) for n in range(2000)]
    assert validate_config_map(config_of(*entries), {}, nodes, check_names=False).allowed
    assert counting.total <= 2 * 20_000 + 2 * 2000


def requirement(key: str, operator: Operator, values: frozenset[str]) -> Requirement:
    return Requirement(key, operator, values if operator in (Operator.IN, Operator.NOT_IN) else frozenset())


def selector(requirements: list[Requirement]) -> Selector:
    return Selector(tuple(requirements))


SOME_VALUES = st.frozensets(st.sampled_from(VALUES), min_size=1)
REQUIREMENTS = st.builds(requirement, st.sampled_from(KEYS), st.sampled_from(Operator), SOME_VALUES)
SELECTORS = st.none() | st.builds(selector, st.lists(REQUIREMENTS, max_size=3))


@given(st.lists(SELECTORS, max_size=12), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_an_index_finds_what_a_scan_finds(selectors: list[Selector | None], labels: dict[str, str]) -> None:
    scan = [number for number, each in enumerate(selectors) if each is not None and each.matches(labels)]
    assert list(SelectorIndex(selectors).matching(labels)) == scan
