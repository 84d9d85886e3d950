"""The fragmentation measure and FGD."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordcore.fragmentation.measure import Category, Measure, after_whole_gpus, gradient_score, gradient_scores
from koordcore.fragmentation.nodes import NO_GPU, GpuColumns, NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, TypicalPod, gpu_pod, typical_pods
from support.depth import examples

MODELS = ("G2", "T4", "P100")
EXAMPLE = [
    TypicalPod(GpuPod(8000, 1000, 1), 0.5),
    TypicalPod(GpuPod(4000, 300, 1, "T4|P100"), 0.3),
    TypicalPod(GpuPod(6000, 0, 0), 0.2),
]


def one_node(cpu: int, *lefts: int) -> GpuColumns:
    return columns_of([NodeGpus(cpu, lefts, "T4")])


def fragment(cpu: int, *lefts: int) -> float:
    nodes = one_node(cpu, *lefts)
    return float(Measure(EXAMPLE, nodes.models).fragment(nodes)[0])


def test_the_worked_example_of_the_specification() -> None:
    nodes = one_node(12000, 1000, 600)
    measure = Measure(EXAMPLE, nodes.models)
    amounts = {name: float(amount[0]) for name, amount in measure.amounts(nodes).items() if amount[0]}
    assert amounts == pytest.approx({Category.Q2_LACK_GPU: 300, Category.Q3_SATISFIED: 980, Category.XL_SATISFIED: 320})
    assert fragment(12000, 1000, 600) == pytest.approx(620)
    assert fragment(8000, 700, 600) == pytest.approx(910)
    assert fragment(8000, 1000, 300) == pytest.approx(410)
    assert gradient_score(np.array([620.0 - 910, 620.0 - 410])).tolist() == [42, 55]
    assert [int(found[0]) for found in gradient_scores(measure, nodes, GpuPod(4000, 300, 1))] == [55, 1]
    assert [int(found[0]) for found in gradient_scores(measure, nodes, GpuPod(8000, 1000, 1))] == [54, NO_GPU]


def test_an_unchanged_fragmentation_scores_50_whatever_the_last_bits_are() -> None:
    assert gradient_score(np.array([0.0, -1e-10, 1e-10])).tolist() == [50, 50, 50]


def test_pods_without_gpus_count_in_the_typical_pods() -> None:
    pods = [GpuPod(4000, 1000, 1)] * 3 + [GpuPod(8000, 0, 0)] * 6 + [GpuPod(1000, 100, 1)]
    found = typical_pods(pods, 90)
    assert found == [TypicalPod(GpuPod(8000, 0, 0), 6 / 9), TypicalPod(GpuPod(4000, 1000, 1), 3 / 9)]


def test_the_larger_of_two_equally_frequent_requests_comes_first() -> None:
    small, large = GpuPod(1000, 500, 1), GpuPod(2000, 500, 1)
    assert [each.pod for each in typical_pods([small, large], 100)] == [large, small]
    assert [each.pod for each in typical_pods([small, large], 50)] == [large]


def test_a_request_above_one_gpu_is_capped() -> None:
    assert gpu_pod(1, 1500, 1) == GpuPod(1, 1000, 1)
    assert gpu_pod(1, 1000, 0) == GpuPod(1, 0, 0)


LEFTS = st.lists(st.sampled_from([0, 100, 300, 470, 500, 999, 1000]), max_size=8).map(tuple)
NODES = st.lists(st.builds(NodeGpus, st.integers(0, 40000), LEFTS, st.sampled_from(MODELS)), min_size=1, max_size=6)
PODS = st.builds(
    gpu_pod,
    st.sampled_from([0, 1000, 8000, 20000]),
    st.sampled_from([0, 100, 300, 470, 1000]),
    st.sampled_from([0, 1, 1, 1, 2, 4]),
    st.sampled_from(["", "T4", "T4|G2"]),
)
TYPICAL = st.lists(st.builds(TypicalPod, PODS, st.floats(0.001, 1)), max_size=6)


@settings(max_examples=examples(200))
@given(NODES, TYPICAL)
def test_the_fragmentation_sums_the_unusable_categories(nodes: list[NodeGpus], typical: list[TypicalPod]) -> None:
    columns = columns_of(nodes)
    measure = Measure(typical, columns.models)
    amounts = measure.amounts(columns)
    unusable = sum(amount for name, amount in amounts.items() if name is not Category.Q3_SATISFIED)
    everything = columns.gpu_milli_left.sum(axis=1) * measure.frequency.sum()
    assert measure.fragment(columns) == pytest.approx(unusable)
    assert sum(amounts.values()) == pytest.approx(everything)


@settings(max_examples=examples(200))
@given(NODES, TYPICAL, st.sampled_from([0, 2000, 9000]), st.sampled_from([100, 300, 999]))
def test_a_share_on_one_gpu_is_measured_like_the_changed_node(
    nodes: list[NodeGpus], typical: list[TypicalPod], cpu: int, share: int
) -> None:
    columns = columns_of(nodes)
    measure = Measure(typical, columns.models)
    found = measure.fragment_with_share(columns, cpu, share)
    for row, node in enumerate(nodes):
        for gpu, left in enumerate(node.gpu_milli_left):
            if left >= share:
                lefts = list(node.gpu_milli_left)
                lefts[gpu] -= share
                after = columns_of([NodeGpus(node.milli_cpu_left - cpu, tuple(lefts), node.gpu_model)])
                expected = Measure(typical, after.models).fragment(after)
                assert found[row, gpu] == pytest.approx(expected[0])


def test_gpus_with_the_least_room_serve_a_pod_of_several_shares() -> None:
    after = after_whole_gpus(one_node(9000, 1000, 400, 500, 450), GpuPod(1000, 450, 2))
    assert after.gpu_milli_left.tolist() == [[1000, 400, 50, 0]]
    assert after.milli_cpu_left.tolist() == [8000]
