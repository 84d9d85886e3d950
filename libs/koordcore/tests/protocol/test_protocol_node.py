"""Node reservation and amplification beyond the vectors' cases."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import amplification, keys
from koordcore.protocol.annotations import node as node_reservations
from koordcore.protocol.annotations.node import NodeReservation
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, of_milli, parse_quantity
from koordcore.values.resources import (
    ResourceList,
    add,
    format_resources,
    is_equal,
    maximum,
    parse_amounts,
    parse_resources,
    subtract,
)
from koordcore.values.topology import CpuPlace, CpuTopology

names = st.sampled_from(["cpu", "memory", "pods", "kubernetes.io/batch-cpu"])
lists = st.dictionaries(names, st.builds(Quantity, st.integers(-(10**15), 10**15)))


def annotated(value: object) -> dict[str, str]:
    return {keys.NODE_RESERVATION: value if isinstance(value, str) else json.dumps(value)}


# --- resource lists ------------------------------------------------------------------------------------------------


@given(lists, lists)
def test_resource_algebra(a: ResourceList, b: ResourceList) -> None:
    assert is_equal(subtract(add(a, b), b), a)
    assert is_equal(add(a, b), add(b, a))
    assert set(maximum(a, b)) == set(a) | set(b)
    assert is_equal(parse_resources(format_resources(a)), a)


def test_resource_list_forms() -> None:
    assert parse_resources(None) == {}
    assert parse_resources({"cpu": None}) == {"cpu": ZERO}
    assert parse_amounts({"cpu": "1500m", "memory": "1.5Ki", "kubernetes.io/batch-cpu": "1k"}) == {
        "cpu": 1500,
        "memory": 1536,
        "kubernetes.io/batch-cpu": 1000,
    }
    assert is_equal({}, {"cpu": ZERO})
    refused: list[object] = [[], "x", {"cpu": "1C"}, {"cpu": True}]
    for wrong in refused:
        with pytest.raises(InvalidInput):
            parse_resources(wrong)


# --- reservation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "x",
        "[]",
        "{",
        {"resources": []},
        {"resources": {"cpu": True}},
        {"resources": {"cpu": "1C", "memory": "1"}},
        {"reservedCPUs": 3},
        {"reservedCPUs": ["0"]},
        {"applyPolicy": 1},
        {"resources": {"cpu": ""}},
    ],
)
def test_malformed_annotation_is_ignored_as_a_whole(value: object) -> None:
    with pytest.raises(InvalidInput, match="reservation"):
        node_reservations.parse_node_reservation(annotated(value))
    assert node_reservations.node_reservation(annotated(value)) == NodeReservation()


def test_annotation_keys_are_lenient_and_nulls_unset() -> None:
    text = '{"Resources":{"cpu":2,"memory":null},"ReservedCpus":null,"applypolicy":"Default"}'
    found = node_reservations.parse_node_reservation(annotated(text))
    assert found == NodeReservation(resources={"cpu": parse_quantity("2"), "memory": ZERO}, apply_policy="Default")
    assert node_reservations.parse_node_reservation(annotated("null")) == NodeReservation()


def test_negative_quantities_never_raise_allocatable() -> None:
    found = node_reservations.node_reservation(annotated({"resources": {"cpu": "-2", "memory": "1Gi"}}))
    trimmed = node_reservations.trim_allocatable(parse_resources({"cpu": "4", "memory": "4Gi"}), found)
    assert format_resources(trimmed) == {"cpu": "4", "memory": "3Gi"}
    assert node_reservations.num_reserved_cpus(found) == 0


def test_unknown_apply_policy_does_not_trim_but_the_agent_still_deducts() -> None:
    found = node_reservations.node_reservation(annotated({"resources": {"cpu": "2"}, "applyPolicy": "Other"}))
    allocatable = parse_resources({"cpu": "4"})
    assert node_reservations.trim_allocatable(allocatable, found) == allocatable
    assert node_reservations.agent_reserved(found, allocatable, allocatable)["cpu"] == parse_quantity("2")


def test_list_that_names_no_cpu_reserves_zero() -> None:
    found = node_reservations.node_reservation(annotated({"resources": {"cpu": "2"}, "reservedCPUs": "5-3"}))
    assert node_reservations.reserved_resources(found) == {"cpu": ZERO}
    assert node_reservations.reported_reserved_cpus(found, CpuTopology(())) == ""


def test_reported_cpus_are_as_many_as_asked_for() -> None:
    topology = CpuTopology(tuple(CpuPlace(cpu=i, core=i % 4, socket=0, node=0) for i in range(8)))
    for cpu in ("1m", "1", "2500m", "8"):
        found = node_reservations.node_reservation(annotated({"resources": {"cpu": cpu}}))
        reported = node_reservations.reported_reserved_cpus(found, topology)
        assert len(parse_cpuset(reported)) == parse_quantity(cpu).value()


def test_numa_zones_share_what_the_kubelet_keeps() -> None:
    capacity, allocatable = parse_resources({"cpu": "8", "memory": "10"}), parse_resources({"cpu": "7", "memory": "11"})
    assert node_reservations.numa_zone_reserved(capacity, allocatable, 3) == {"cpu": of_milli(334), "memory": ZERO}


@given(lists, lists)
def test_trimming_lowers_and_stays_at_zero_or_above(allocatable: ResourceList, reserved: ResourceList) -> None:
    found = node_reservations.node_reservation(annotated({"resources": format_resources(reserved)}))
    trimmed = node_reservations.trim_allocatable({k: max(v, ZERO) for k, v in allocatable.items()}, found)
    assert trimmed.keys() == allocatable.keys()
    assert all(ZERO <= quantity <= max(allocatable[name], ZERO) for name, quantity in trimmed.items())


# --- amplification -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x", "[]", '{"cpu":"1.5"}', '{"cpu":true}', "{"])
def test_malformed_ratio_annotation_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="amplification-ratio"):
        amplification.amplify_node_update({keys.RESOURCE_AMPLIFICATION_RATIO: text}, {"cpu": "4"}, {})


@pytest.mark.parametrize("text", [None, ""])
def test_without_ratios_the_raw_values_are_forgotten(text: str | None) -> None:
    annotations = {keys.RAW_ALLOCATABLE: "x"} | ({} if text is None else {keys.RESOURCE_AMPLIFICATION_RATIO: text})
    update = amplification.amplify_node_update(annotations, {"cpu": "4"}, {"cpu": "4"})
    assert (format_resources(update.allocatable), update.raw_allocatable) == ({"cpu": "4"}, None)


@pytest.mark.parametrize("text", ["{}", "null"])
def test_an_annotation_that_names_no_ratio_amplifies_nothing_and_keeps_the_raw_values(text: str) -> None:
    annotations = {keys.RAW_ALLOCATABLE: '{"cpu":"4"}', keys.RESOURCE_AMPLIFICATION_RATIO: text}
    update = amplification.amplify_node_update(annotations, {"cpu": "4"}, {"cpu": "4"})
    assert (format_resources(update.allocatable), update.raw_allocatable) == ({"cpu": "4"}, '{"cpu":"4"}')


def test_malformed_raw_values_do_not_matter_when_the_kubelet_changed_its_own() -> None:
    annotations = {keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":2,"pods":2}', keys.RAW_ALLOCATABLE: "x"}
    update = amplification.amplify_node_update(annotations, {"cpu": "3", "pods": "10"}, {"cpu": "4", "pods": "10"})
    assert format_resources(update.allocatable) == {"cpu": "6", "pods": "10"}
    assert update.raw_allocatable == '{"cpu":"3"}'


@given(st.integers(0, 10**15), st.floats(0, 5))
def test_requests_round_up_and_nodes_round_down(origin: int, ratio: float) -> None:
    scaled = amplification.amplify(origin, ratio)
    assert scaled >= origin
    update = amplification.amplify_node_update(
        {keys.RESOURCE_AMPLIFICATION_RATIO: json.dumps({"cpu": ratio})}, {"cpu": f"{origin}m"}, {}
    )
    assert update.allocatable["cpu"].milli() <= scaled


def test_normalization_label_wins_over_the_strategy() -> None:
    strategy = amplification.NormalizationStrategy(enable=True, default_ratio=5.5)
    info = amplification.CpuBasicInfo(cpu_model="M")
    assert amplification.cpu_normalization_ratio(info, strategy, enabled=False) == 1.0
    with pytest.raises(InvalidInput, match=r"1\.0\.\.5\.0"):
        amplification.cpu_normalization_ratio(info, strategy)
    with pytest.raises(InvalidInput):
        amplification.cpu_normalization_ratio(None, strategy)


def test_configured_ratio_of_zero_is_not_hidden_by_a_normalization_of_one() -> None:
    strategy = amplification.AmplificationStrategy(enable=True, resource_amplification_ratio={"cpu": 0.0})
    with pytest.raises(InvalidInput):
        amplification.amplification_ratios(strategy, {keys.CPU_NORMALIZATION_RATIO: "1.00"})
    assert amplification.amplification_ratios(strategy, {keys.CPU_NORMALIZATION_RATIO: "1.5"}) == {"cpu": 1.5}


def test_ratio_text_escapes_names_and_rounds_half_to_even() -> None:
    assert amplification.format_ratios({'a"b': 1.125, "A": 2}) == '{"A":2.00,"a\\"b":1.12}'
