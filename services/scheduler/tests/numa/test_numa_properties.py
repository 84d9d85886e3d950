"""Counts per zone decide as the exact allocation does, and books return to where they were."""

import dataclasses
import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.koordinator_args import NodeNUMAResourceArgs
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.books import make_books
from koord_scheduler.domain.plugins.numa import need
from koord_scheduler.domain.plugins.numa import scores as scores_module
from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy, CpuRequest, CpuUse, ExclusivePolicy, take_cpus
from koord_scheduler.domain.plugins.numa.binding import Binding
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuLayout, mask_of
from koord_scheduler.domain.plugins.numa.hardware import cpu_layout
from koord_scheduler.domain.plugins.numa.plugin import NodeNUMAResource
from koord_scheduler.domain.plugins.numa.zones import NodeZones, Shortage, allocate, shortage
from koordcore.protocol import keys
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node, Pod, object_from_json
from koordcore.values.allocation import Allocation, ZoneAmounts
from koordcore.values.cpuset import format_cpuset
from support.depth import examples, seeds
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.scheduling import node, pod, with_metadata


def layout_without(*offline: int) -> CpuLayout:
    described = node_topology("n", sockets=2, zones_per_socket=2, cores_per_zone=3, offline=offline)
    found = cpu_layout(described["metadata"]["annotations"][keys.CPU_TOPOLOGY])
    assert found is not None
    return found


LAYOUT = layout_without()
UNEQUAL = layout_without(1, 8, 9, 15)
CPUS = st.sets(st.integers(0, 23)).map(mask_of)
BINDINGS = st.builds(
    Binding, st.integers(1, 12), st.sampled_from(BindPolicy), st.booleans(), st.sampled_from(ExclusivePolicy)
)


@given(st.sampled_from([LAYOUT, UNEQUAL]), CPUS, CPUS, CPUS, BINDINGS, st.booleans())
def test_the_accumulator_takes_as_many_as_asked_out_of_those_available(
    layout: CpuLayout, online: int, preferred: int, exclusive: int, binding: Binding, most: bool
) -> None:
    available = online & layout.cpus
    request = CpuRequest(
        count=binding.count, bind_policy=binding.policy, exclusive_policy=binding.exclusive, most_allocated=most
    )
    use = CpuUse(exclusive={binding.exclusive: exclusive})
    taken = take_cpus(layout, available, request, use, preferred)
    assert (taken is None) == (available.bit_count() < binding.count)
    if taken is not None:
        assert taken & ~available == 0
        assert taken.bit_count() == binding.count
        assert (taken & preferred).bit_count() == min(binding.count, (available & preferred).bit_count())
    if binding.policy is BindPolicy.FULL_PCPUS and taken and not preferred and layout.can_fill(binding.count):
        assert (layout.full_cores(taken) == taken) == layout.fills(available, binding.count)


@given(st.sampled_from([LAYOUT, UNEQUAL]), CPUS, BINDINGS)
def test_a_node_keeps_the_sums_of_the_cores_of_each_zone(layout: CpuLayout, free: int, binding: Binding) -> None:
    zones = NodeZones(layout=layout, free=free & layout.cpus)
    wanted = [binding, dataclasses.replace(binding, is_required=not binding.is_required)]
    for one, unit in itertools.product(2 * wanted, layout.zones.values()):
        assert zones.core_sums(unit, one) == layout.core_sums(zones.candidates(one) & unit.cpus)
        assert zones.core_sums(unit, one) is zones.core_sums(unit, one)


AMOUNTS = st.fixed_dictionaries({"cpu": st.integers(0, 9000), "memory": st.integers(0, 20)})


@given(
    st.sampled_from([LAYOUT, UNEQUAL]),
    st.dictionaries(st.integers(0, 3), AMOUNTS, min_size=1),
    st.dictionaries(st.integers(0, 3), AMOUNTS),
    CPUS,
    st.one_of(st.none(), BINDINGS),
    st.integers(0, 12_000),
    st.integers(0, 40),
    st.sampled_from([1.0, 1.5]),
    st.integers(1, 15),
)
@settings(max_examples=examples(300))
def test_a_shortage_by_counts_is_a_shortage_by_allocation(
    layout: CpuLayout,
    allocatable: dict[int, dict[str, int]],
    allocated: dict[int, dict[str, int]],
    online: int,
    binding: Binding | None,
    milli: int,
    memory: int,
    ratio: float,
    zones: int,
) -> None:
    free = online & layout.cpus
    bound = layout.cpus & ~free
    state = NodeZones(layout=layout, allocatable=allocatable, allocated=allocated, bound=bound, free=free, ratio=ratio)
    requests = {"cpu": milli if binding is None else 1000 * binding.count, "memory": memory}
    found = allocate(state, requests, binding, zones)
    expected = shortage(state, requests, binding, zones)
    assert isinstance(found, Shortage) == (expected is not None)
    if not isinstance(found, Shortage):
        for name, amount in requests.items():
            given_out = sum(amounts.get(name, 0) for amounts in found.zones.values())
            assert given_out == (amount if state.reports(name) else 0)
        assert found.cpus & ~free == 0
        assert found.cpus.bit_count() == (0 if binding is None else binding.count)
        assert all(zones >> zone & 1 for zone in found.zones)


# --- filters over arrays, for one row, and the exact decision ---------------------------------------------------------


class Rows:
    """A few nodes with random hardware and random pods on them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = Cluster()
        self.books = make_books(self.cluster)
        self.plugin = NodeNUMAResource(self.cluster, self.books.numa, self.books.reservations, NodeNUMAResourceArgs())
        self.cluster.join(self.plugin)
        self.nodes: NodeColumns = self.cluster.nodes
        for index in range(4):
            self.put(f"n{index}")
        self.held: list[tuple[int, PodInfo]] = []
        for index in range(12):
            self.take(index)

    def put(self, name: str) -> None:
        chance = self.chance
        labels = {
            keys.CPU_BIND_POLICY: chance.choice(["None", "None", "FullPCPUsOnly", "SpreadByPCPUs"]),
            keys.NUMA_TOPOLOGY_POLICY: chance.choice(["", "BestEffort", "Restricted", "SingleNUMANode"]),
        }
        annotations: dict[str, str] = {}
        if chance.random() < 0.3:
            annotations[keys.RESOURCE_AMPLIFICATION_RATIO] = chance.choice(['{"cpu":1.5}', "{", '{"cpu":1}'])
        cpu = chance.choice(["12", "18", "24"])
        described: Node = node(name, cpu=cpu, memory="64Gi", labels=labels, annotations=annotations)
        row, _ = self.nodes.put(name, node_shape(described))
        self.cluster.put_node(row, described, self.nodes.shape_of(row))
        if chance.random() < 0.9:
            report: dict[str, Any] = node_topology(
                name,
                offline=() if chance.random() < 0.7 else chance.sample(range(12), 2),
                zones_per_socket=chance.choice([1, 2, 3]),
                cores_per_zone=chance.choice([2, 3]),
                cpus_per_core=chance.choice([1, 2]),
                zone_resources={} if chance.random() < 0.7 else {"hugepages-2Mi": "1Gi"},
            )
            if chance.random() < 0.2:
                report["zones"] = []
            self.books.numa.put_topology(object_from_json(report, NodeResourceTopology))

    def take(self, index: int) -> None:
        chance, row = self.chance, self.chance.randrange(4)
        cpus = chance.sample(range(12), chance.randrange(4))
        zones = [
            ZoneAmounts(zone, {"cpu": chance.choice([500, 1000, 2000]), "memory": chance.choice([1, 4]) << 30})
            for zone in sorted(chance.sample(range(3), chance.randrange(3)))
        ]
        allocation = Allocation(
            cpuset=format_cpuset(cpus), zones=tuple(zones), cpu_exclusive_policy=chance.choice(["", "PCPULevel"])
        )
        demand = self.nodes.demand({"cpu": 1000 * len(cpus) + 250}, {})
        info = PodInfo(f"p{index}", demand, allocation=allocation)
        self.cluster.accounting.take(row, info)
        self.held.append((row, info))

    def pod(self) -> Pod:
        chance = self.chance
        policies = ["", "", "BestEffort", "Restricted", "SingleNUMANode"]
        more = {} if chance.random() < 0.7 else {"hugepages-2Mi": "512Mi"}
        if chance.random() < 0.25:
            return with_metadata(pod("p", {"cpu": chance.choice(["1500m", "2", "7"]), "memory": "8Gi", **more}))
        return lsr_pod(
            "p",
            chance.randint(1, 8),
            memory=chance.choice(["1Gi", "12Gi", "20Gi"]),
            bind=chance.choice(["", "FullPCPUs", "SpreadByPCPUs"]),
            required=chance.choice(["", "", "FullPCPUs", "SpreadByPCPUs"]),
            exclusive=chance.choice(["", "PCPULevel", "NUMANodeLevel"]),
            policy=chance.choice(policies),
            more=more,
        )


@pytest.mark.parametrize("seed", seeds(150, few=8))
def test_a_filter_over_arrays_says_what_it_says_of_one_row_and_what_the_allocation_says(seed: int) -> None:
    rows = Rows(random.Random(seed))
    plugin, nodes = rows.plugin, rows.nodes
    for _ in range(8):
        wanted = rows.pod()
        pod_class = rows.cluster.pod_classes.of(wanted)
        every = np.arange(4, dtype=np.intp)
        codes = plugin.filter(pod_class, nodes, every)
        single = plugin.row_filter(pod_class, nodes)
        assert single is not None
        one_by_one = [single(row) for row in range(4)]
        assert (np.zeros(4, np.int64) if codes is None else codes).tolist() == one_by_one
        scores = plugin.score(pod_class, nodes, every)
        for row in range(4):
            wish = pod_class.aspects.get(plugin.name)
            if getattr(wish, "refusal", ""):
                continue
            estimate = plugin.estimate(pod_class, row)
            reasons = plugin.reasons(pod_class, nodes, one_by_one[row]) if one_by_one[row] else ()
            assert estimate is not None or reasons, "what the filter admits can be allocated"
            if estimate is not None and reasons:
                assert reasons[0] in ("Insufficient amplified cpu", "node(s) invalid CPU amplification ratio")
            assert bool(reasons) == bool(one_by_one[row])
        if scores is not None:
            assert ((scores >= 0) & (scores <= 100)).all()


def no_single_zone(*_: object) -> None:
    """Stands for `best_single_zone`, so that hints are merged."""


@pytest.mark.parametrize("seed", seeds(60, few=4))
def test_the_best_single_zone_is_the_one_that_a_merge_of_hints_chooses(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows(random.Random(seed))
    for _ in range(8):
        pod_class = rows.cluster.pod_classes.of(rows.pod())
        quick = [rows.plugin.estimate(pod_class, row) for row in range(4)]
        scores = rows.plugin.score(pod_class, rows.nodes, np.arange(4, dtype=np.intp))
        with monkeypatch.context() as patch:
            patch.setattr(need, "best_single_zone", no_single_zone)
            patch.setattr(scores_module, "best_single_zone", no_single_zone)
            assert [rows.plugin.estimate(pod_class, row) for row in range(4)] == quick
            again = rows.plugin.score(pod_class, rows.nodes, np.arange(4, dtype=np.intp))
        feasible = [row for row in range(4) if quick[row] is not None]
        if scores is not None and again is not None:
            assert scores[feasible].tolist() == again[feasible].tolist()


@pytest.mark.parametrize("seed", seeds(40, few=4))
def test_books_return_to_where_they_were_and_equal_those_that_are_folded_anew(seed: int) -> None:
    rows = Rows(random.Random(seed))
    columns = rows.books.numa.columns
    again = Rows(random.Random(seed))
    order = list(rows.held)
    rows.chance.shuffle(order)
    for row, info in order[:6]:
        rows.cluster.accounting.give(row, info)
    for row, info in reversed(order[:6]):
        rows.cluster.accounting.take(row, info)
    assert same(columns, again.books.numa.columns)
    for row, info in order:
        rows.cluster.accounting.give(row, info)
    fresh = Rows(random.Random(seed))
    for row, info in fresh.held:
        fresh.cluster.accounting.give(row, info)
    for row in range(4):
        book = rows.books.numa.book(row)
        assert (book.pods, book.bound, book.allocated, book.counts()) == ({}, 0, {}, {})
        before = [array[:, row].copy() for array in arrays(columns)]
        columns.put(row, book)
        assert all(np.array_equal(a, array[:, row]) for a, array in zip(before, arrays(columns), strict=True))


def arrays(columns: Any) -> list[Any]:
    return [columns.free, columns.full, columns.open, columns.spanning, columns.single, *columns.left.values()]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(arrays(one), arrays(other), strict=True))
