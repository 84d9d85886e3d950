"""`koord simulate gpu`: the benchmark of the placement policies on the recorded workloads."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from koordcore.fragmentation.pods import typical_pods
from koordcore.fragmentation.policies import PolicyName
from koordctl.demo.trace import InvalidTrace
from koordctl.simulate.gpu_report import compared, picture, read_published, write_report
from koordctl.simulate.gpu_run import WORKLOADS, GpuTrace, Load, Outcome, arriving, read_trace, simulate
from koordctl.simulate.gpu_sweep import Run, Sweep, summaries, sweep

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[4] / "examples" / "openb"
TYPICAL = (35, 35, 35, 34, 34, 36, 33, 32, 21, 74, 102, 113, 127, 38, 40, 42, 43)


def part_of(trace: GpuTrace, step: int) -> GpuTrace:
    """Return every `step`-th node and pod."""
    return replace(trace, nodes=trace.nodes[::step], memory_mib=trace.memory_mib[::step], pods=trace.pods[::step])


@pytest.fixture(scope="module")
def trace() -> GpuTrace:
    return read_trace(FOLDER, "default")


def test_the_cluster_has_the_published_capacity(trace: GpuTrace) -> None:
    assert len(trace.nodes) == 1213
    assert trace.capacity == 6_212_000
    assert sum(node.milli_cpu_left for node in trace.nodes) == 107_018_000


@pytest.mark.parametrize(("workload", "count"), list(zip(WORKLOADS, TYPICAL, strict=True)))
def test_every_workload_has_the_published_number_of_typical_pods(workload: str, count: int) -> None:
    assert len(typical_pods(each.pod for each in read_trace(FOLDER, workload).pods)) == count


def test_arrivals_request_the_ratio_of_the_capacity(trace: GpuTrace) -> None:
    pods = arriving(trace, 1.3, random.Random(1))
    assert 10_700 < len(pods) < 11_000
    assert sum(each.pod.total_milli for each in pods) == pytest.approx(1.3 * trace.capacity, rel=2e-3)
    fewer = arriving(trace, 0.5, random.Random(1))
    assert len(fewer) < len(trace.pods)
    assert sum(each.pod.total_milli for each in fewer) == pytest.approx(0.5 * trace.capacity, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "mean"),
    [(PolicyName.FGD, 95.39), (PolicyName.BEST_FIT, 93.08), (PolicyName.EXPECTED_FILLING, 96.2)],
)
@pytest.mark.deep
def test_one_seed_comes_close_to_the_mean_of_ten(trace: GpuTrace, name: PolicyName, mean: float) -> None:
    outcome = simulate(trace, name, 43, Load())
    assert outcome.points[-1].arrived_pct == 130
    assert outcome.points[-1].alloc_pct == pytest.approx(mean, abs=0.4)


def test_below_80_percent_fgd_places_almost_every_pod(trace: GpuTrace) -> None:
    outcome = simulate(part_of(trace, 12), PolicyName.FGD, 42, Load(ratio=0.8))
    assert [point.arrived_pct for point in outcome.points] == sorted({point.arrived_pct for point in outcome.points})
    assert outcome.points[-1].alloc_pct == pytest.approx(80, abs=1.5)
    assert outcome.failed < 10


def test_the_fragmentation_of_a_run_lies_below_its_free_capacity(trace: GpuTrace) -> None:
    for point in simulate(part_of(trace, 40), PolicyName.FGD, 1, Load()).points:
        assert 0 <= point.frag_pct <= 100 - point.alloc_pct + 1e-6
        assert 0 <= point.frag_ratio_pct <= 100 + 1e-6


def small_sweep(folder: Path) -> Sweep:
    """Return a sweep over a small copy of the traces."""
    for name, step in (("openb_node_list_gpu_node.csv", 60), ("openb_pod_list_default.csv", 60)):
        lines = (FOLDER / name).read_text().splitlines()
        (folder / name).write_text("\n".join([lines[0], *lines[1::step]]) + "\n")
    (folder / "published.csv").write_text((FOLDER / "published.csv").read_text())
    policies = [PolicyName.RANDOM, PolicyName.FGD]
    return Sweep(folder=folder, workloads=["default"], policies=policies, seeds=[1, 2], load=Load())


def test_equal_sweeps_write_equal_files(tmp_path: Path) -> None:
    asked, finished = small_sweep(tmp_path), list[int]()

    def written(name: str) -> dict[str, bytes]:
        outcomes: dict[Run, Outcome] = sweep(asked, 2, lambda: finished.append(1))
        found = summaries(outcomes)
        write_report(tmp_path / name, outcomes, found, compared(found, read_published(tmp_path), 130))
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    first = written("first")
    assert first == written("second")
    assert len(finished) == 8
    assert set(first) == {"curves.csv", "summary.csv", "comparison.csv", "default.svg"}
    assert b"default,FGD,130," in first["comparison.csv"]
    assert first["summary.csv"].startswith(b"workload,policy,arrived_pct,alloc_mean,alloc_sd,n\n")


def test_results_are_compared_with_the_published_ones(trace: GpuTrace) -> None:
    small = part_of(trace, 60)
    found = summaries({Run("default", PolicyName.FGD, 1): simulate(small, PolicyName.FGD, 1, Load())})
    beside = compared(found, read_published(FOLDER), 130)
    assert [each.summary.arrived_pct for each in beside] == [90, 95, 100, 130]
    assert beside[-1].published == 95.39
    assert beside[-1].difference == pytest.approx(abs(beside[-1].summary.alloc_mean - 95.39))
    assert "FGD" in picture("default", found)


def test_a_missing_workload_is_named(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n")
    with pytest.raises(InvalidTrace, match=r"openb_pod_list_default\.csv"):
        read_trace(tmp_path, "default")
