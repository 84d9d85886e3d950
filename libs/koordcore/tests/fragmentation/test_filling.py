"""Expected filling: values of nodes against sequences of typical pods."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordcore.fragmentation.filling import STEP_MILLI, ExpectedFilling, typical_sequence
from koordcore.fragmentation.nodes import NO_GPU, GpuColumns, NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, TypicalPod
from support.depth import examples

HALF = GpuPod(1000, 500, 1)


def filling(*typical: TypicalPod, models: tuple[str, ...] = ("T4",), sequences: int = 4) -> ExpectedFilling:
    return ExpectedFilling(typical, models, sequences=sequences, offers=20)


def node(cpu: int, *lefts: int) -> GpuColumns:
    return columns_of([NodeGpus(cpu, lefts, "T4")])


def loss(measured: ExpectedFilling, nodes: GpuColumns, pod: GpuPod) -> tuple[int, int]:
    scores, gpus = measured.losses(nodes, pod)
    return int(scores[0]), int(gpus[0])


def test_a_sequence_contains_each_pod_as_often_as_its_frequency_says() -> None:
    typical = [
        TypicalPod(GpuPod(1, 300, 1), 0.5),
        TypicalPod(GpuPod(2, 1000, 1), 0.3),
        TypicalPod(GpuPod(3, 0, 0), 0.2),
    ]
    sequences = [typical_sequence(typical, number, 60) for number in range(8)]
    for sequence in sequences:
        counts = Counter(sequence)
        for each in typical:
            assert abs(counts[each.pod] - 60 * each.frequency) <= 1
    assert len({tuple(sequence) for sequence in sequences}) == 8


def test_capacity_that_no_pod_can_use_is_lost_for_nothing() -> None:
    measured = filling(TypicalPod(HALF, 1))
    assert loss(measured, node(90_000, 400, 1000), GpuPod(0, 400, 1)) == (0, 0)
    # 500 of 1000 milli can no longer be filled: 12.5 steps, rounded away from zero.
    assert loss(measured, node(90_000, 1000, 1000), GpuPod(0, 400, 1)) == (-13, 0)


def test_a_node_without_cpu_has_no_value_to_lose() -> None:
    measured = filling(TypicalPod(HALF, 1))
    assert loss(measured, node(999, 1000), GpuPod(0, 1000, 1)) == (0, NO_GPU)
    assert loss(measured, node(1000, 1000, 1000), GpuPod(0, 1000, 1)) == (0, NO_GPU)
    assert loss(measured, node(1000, 1000, 1000), GpuPod(1000, 0, 0)) == (-13, NO_GPU)


def test_a_share_takes_the_gpu_that_leaves_most_to_fill() -> None:
    measured = filling(TypicalPod(HALF, 0.05), TypicalPod(GpuPod(1000, 1000, 1), 0.95))
    assert loss(measured, node(90_000, 1000, 500), GpuPod(1000, 500, 1))[1] == 1
    assert loss(measured, node(90_000, 300, 200), GpuPod(1000, 500, 1))[1] == NO_GPU


def test_pods_of_other_models_fill_nothing() -> None:
    measured = filling(TypicalPod(GpuPod(1000, 500, 1, "G2"), 1))
    assert loss(measured, node(90_000, 1000), GpuPod(0, 1000, 1)) == (0, NO_GPU)


def test_without_typical_pods_all_nodes_are_equal() -> None:
    assert loss(filling(), node(90_000, 1000), HALF) == (0, 0)


def filled(cpu: int, lefts: list[int], offers: list[GpuPod]) -> int:
    """Return what the offers fill, by the definition."""
    total = 0
    for pod in offers:
        room = sorted((left, index) for index, left in enumerate(lefts) if left >= pod.gpu_milli)
        chosen = room[: pod.num_gpu] if pod.num_gpu == 1 else room[len(room) - pod.num_gpu :]
        if not pod.gpu_milli or pod.milli_cpu > cpu or len(room) < pod.num_gpu:
            continue
        for _, index in chosen:
            lefts[index] -= pod.gpu_milli
        cpu -= pod.milli_cpu
        total += pod.total_milli
    return total


PODS = st.sampled_from(
    [GpuPod(1000, 300, 1), GpuPod(4000, 470, 1), GpuPod(3000, 1000, 1), GpuPod(5000, 1000, 2), GpuPod(2000, 0, 0)]
)
LEFTS = st.lists(st.sampled_from([0, 190, 300, 530, 700, 1000, 1000]), min_size=1, max_size=4)


@settings(max_examples=examples(200))
@given(st.lists(PODS, min_size=1, max_size=4, unique=True), LEFTS, st.integers(0, 30_000), PODS)
def test_the_score_is_the_loss_of_what_the_sequences_fill(
    kinds: list[GpuPod], lefts: list[int], cpu: int, pod: GpuPod
) -> None:
    typical = [TypicalPod(each, 1 / len(kinds)) for each in kinds]
    sequences = [typical_sequence(typical, number, 20) for number in range(3)]

    def value(cpu: int, lefts: list[int]) -> int:
        return sum(filled(cpu, list(lefts), offers) for offers in sequences)

    nodes = node(cpu, *lefts)
    if not nodes.fitting(pod)[0]:
        return
    scores, gpus = ExpectedFilling(typical, ("T4",), sequences=3, offers=20).losses(nodes, pod)
    given_gpus = nodes.assigned(0, pod, int(gpus[0]))
    after = np.array(lefts)
    after[list(given_gpus)] -= pod.gpu_milli
    expected = value(cpu - pod.milli_cpu, after.tolist()) - value(cpu, lefts)
    assert scores[0] == expected // (3 * STEP_MILLI)
    assert len(given_gpus) == pod.num_gpu


@pytest.mark.parametrize("lefts", [(500, 1000), (1000, 500)])
def test_the_order_of_gpus_does_not_change_the_score(lefts: tuple[int, ...]) -> None:
    measured = filling(TypicalPod(HALF, 0.5), TypicalPod(GpuPod(1000, 300, 1), 0.5))
    assert loss(measured, node(90_000, *lefts), HALF)[0] == loss(measured, node(90_000, 1000, 500), HALF)[0]
