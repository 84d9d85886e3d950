"""Shares as weights of cgroup v2: both lines of container runtimes, and which one the node has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel.cgroup_files import SHARES, is_equal, to_file_text
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.cpu_weight import WeightLine, line_of, shares_to_weight
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.weight_evidence import WeightEvidence
from koordcore.protocol.qos import KubeQos
from support.agent.pods import limited_pod


@pytest.mark.parametrize(
    ("shares", "new", "old"), [(2, 1, 1), (1024, 100, 39), (2048, 174, 79), (4096, 303, 157), (262_144, 10_000, 10_000)]
)
def test_a_weight_of_either_line_is_that_of_its_shares(shares: int, new: int, old: int) -> None:
    assert to_file_text(SHARES, str(shares), 2) == str(new)
    assert to_file_text(SHARES, str(shares), 2, WeightLine.LINEAR) == str(old)
    assert is_equal(SHARES, f"{new}\n", str(shares), 2)
    assert is_equal(SHARES, f"{old}\n", str(shares), 2)
    assert not is_equal(SHARES, f"{new + 1}\n", str(shares), 2)


@given(shares=st.integers(2, 262_143), line=st.sampled_from(WeightLine))
def test_weights_grow_with_shares_and_stay_in_range(shares: int, line: WeightLine) -> None:
    assert 1 <= shares_to_weight(shares, line) <= shares_to_weight(shares + 1, line) <= 10_000


def test_the_line_is_that_of_most_containers() -> None:
    assert line_of([(1024, 100), (2048, 174), (4096, 157)]) is WeightLine.QUADRATIC
    assert line_of([(1024, 39), (2048, 1)]) is WeightLine.LINEAR
    assert line_of([]) is line_of([(2, 1), (1024, 5)]) is line_of([(1024, 100), (2048, 79)]) is None


@pytest.mark.parametrize(("of_runtime", "written"), [(39, "79"), (100, "174"), (77, "174")])
def test_the_agent_writes_the_weights_of_the_runtime(tmp_path: Path, of_runtime: int, written: str) -> None:
    layout, web = CgroupLayout(Driver.CGROUPFS), limited_pod("web", "LS", {"cpu": "1"})
    roots = HostRoots(cgroup=tmp_path, proc=tmp_path, sys=tmp_path)
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=layout, version=2, jiffy=10_000_000)
    directory = layout.container_directory(web.kube_qos, "web", "containerd://web-0")
    besteffort = layout.qos_directory(KubeQos.BEST_EFFORT)
    for each, weight in ((directory, of_runtime), (besteffort, 1)):
        (tmp_path / each).mkdir(parents=True)
        (tmp_path / each / "cpu.weight").write_text(f"{weight}\n")
    metrics = Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000)
    evidence = WeightEvidence(host)
    evidence.look(NodeLook(now_ms=0, node="n", layout=layout, cgroup_version=2, metrics=metrics, pods=(web,)))
    assert shares_to_weight(2_048, evidence.line) == int(written)
    host.write(CgroupFile(besteffort, SHARES), "2048")
    assert (tmp_path / besteffort / "cpu.weight").read_text() == written
