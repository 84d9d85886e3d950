"""CPU lists, and the packed choice of CPUs by topology."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.values.cpuset import CpuSet, format_cpuset, is_same_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace, CpuTopology, take_packed

cpusets = st.frozensets(st.integers(0, 4096), max_size=60)


def machine(sockets: int, nodes: int, cores: int, threads: int) -> CpuTopology:
    """sockets x NUMA nodes x cores x threads; sibling threads are numbered one whole machine apart."""
    total = sockets * nodes * cores
    return CpuTopology(
        tuple(
            CpuPlace(cpu=thread * total + core, core=core, socket=core // (nodes * cores), node=core // cores)
            for thread in range(threads)
            for core in range(total)
        )
    )


@given(cpusets)
def test_parse_after_format_is_identity(cpus: CpuSet) -> None:
    assert parse_cpuset(format_cpuset(cpus)) == cpus


@given(cpusets, cpusets)
def test_set_algebra_survives_the_text(a: CpuSet, b: CpuSet) -> None:
    union, common = format_cpuset(a | b), format_cpuset(a & b)
    assert len(parse_cpuset(union)) + len(parse_cpuset(common)) == len(a) + len(b)
    assert parse_cpuset(format_cpuset(a - b)) | (a & b) == a
    assert is_same_cpuset(format_cpuset(a), ",".join(map(str, sorted(a, reverse=True))))


@pytest.mark.parametrize(
    "text",
    [
        "-",
        "+",
        "1-",
        "1--2",
        "-1-2",
        "1,",
        ",1",
        ",",
        "1 -2",
        "0x1",
        "1.0",
        "2147483648",
        "0-2147483648",
        "4090-4097",
        "5000-5001",
        "١",
        "9" * 40,
    ],
)
def test_what_is_no_cpu_list(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_cpuset(text)
    assert not is_same_cpuset(text, text)


@pytest.mark.parametrize(
    ("text", "cpus"), [("5000-4000", []), ("2147483647", [2147483647]), ("4096-4096", [4096]), ("1,1,0-1", [0, 1])]
)
def test_edges_of_the_cpu_list(text: str, cpus: list[int]) -> None:
    assert sorted(parse_cpuset(text)) == cpus


@pytest.mark.parametrize(
    ("topology", "count", "text"),
    [
        (machine(2, 1, 4, 2), 5, "0-2,8-9"),
        (machine(2, 1, 8, 1), 5, "0-4"),
        (machine(1, 1, 6, 2), 5, "0-2,6-7"),
        (machine(2, 2, 2, 2), 8, "0-3,8-11"),
        (machine(2, 2, 2, 2), 12, "0-5,8-13"),
        (machine(2, 2, 2, 2), 16, "0-15"),
        (machine(1, 1, 2, 2), 3, "0-2"),
        (machine(1, 1, 4, 1), 0, ""),
    ],
)
def test_packed_choice(topology: CpuTopology, count: int, text: str) -> None:
    taken = take_packed(topology, count)
    assert taken is not None
    assert format_cpuset(taken) == text


def test_single_cpus_come_from_the_core_with_fewest_left() -> None:
    topology = machine(1, 1, 4, 2)
    assert take_packed(topology, 1, frozenset({0, 4, 6})) == {6}
    assert take_packed(topology, 2, frozenset({0, 4, 6, 7})) == {0, 4}


def test_a_socket_that_is_used_in_part_comes_first_but_is_not_taken_whole() -> None:
    topology = machine(2, 1, 2, 2)
    assert take_packed(topology, 3, topology.cpus - {2}) == {3, 7, 6}
    assert take_packed(topology, 4, topology.cpus - {2}) == {0, 1, 4, 5}


@given(st.data())
def test_packed_choice_takes_exactly_what_is_asked_and_free(data: st.DataObject) -> None:
    topology = machine(*(data.draw(st.integers(1, 3)) for _ in range(4)))
    available = data.draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    count = data.draw(st.integers(-1, len(topology.cpus) + 1))
    taken = take_packed(topology, count, available)
    if count > len(available) and count >= 1:
        assert taken is None
    else:
        assert taken is not None
        assert len(taken) == max(count, 0)
        assert taken <= available
