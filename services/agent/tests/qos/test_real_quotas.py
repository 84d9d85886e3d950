"""CPU quotas on this machine's own kernel (cgroup v1): what the agent wants, the kernel accepts at once."""

from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.node.pods import AgentPod
from koordcore.protocol.qos import KubeQos
from support.agent.pods import limited_pod
from support.agent.real_tree import CPUS, real_tree

pytestmark = pytest.mark.root

QUOTA, BURST, SHARES = "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares"
BATCH = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "64Mi"}
JOB = limited_pod("job", "BE", BATCH)


def suppressed_to(percent: int) -> dict[str, Any]:
    """A NodeSLO whose budget for best effort is this part of the node, whatever the load is."""
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 0, "cpuSuppressMinPercent": percent}
    return {"resourceUsedThresholdWithBE": {**threshold, "cpuSuppressPolicy": "cfsQuota"}}


def pods(*pods: AgentPod) -> dict[str, AgentPod]:
    return {pod.uid: pod for pod in pods}


def test_the_quota_of_best_effort_falls_at_once_above_pods_with_batch_limits(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(JOB)) as tree:
        be = tree.layout.qos_directory(KubeQos.BEST_EFFORT)
        tree.live(2, {})
        assert tree.quotas("job") == (200_000, 200_000), "without suppression, the limits of its batch resources"
        tree.live(2, suppressed_to(65))
        for percent in (50, 20, 5):
            tree.live(1, suppressed_to(percent))
            assert tree.read(be, QUOTA) == percent * CPUS * 1_000, tree.problems
            assert tree.quotas("job") == (-1, -1)
            assert tree.problems == ()


def test_a_quota_that_another_writer_lifts_is_back_in_the_next_cycle(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(JOB)) as tree:
        be = tree.layout.qos_directory(KubeQos.BEST_EFFORT)
        tree.live(3, suppressed_to(10))
        for _ in range(3):
            tree.write(be, QUOTA, -1)  # as systemd does, when the kubelet sets a property of the slice
            tree.live(1, suppressed_to(10))
            assert tree.read(be, QUOTA) == CPUS * 10_000


def test_a_kubelet_with_another_cfs_period_gets_the_same_cpu(tmp_path: Path) -> None:
    web = limited_pod("web", "LS", {"cpu": "2"})
    with real_tree(tmp_path, pods(JOB, web)) as tree:
        be = tree.layout.qos_directory(KubeQos.BEST_EFFORT)
        for directory in (be, tree.pod("job"), tree.container("job"), tree.pod("web"), tree.container("web")):
            tree.write(directory, "cpu.cfs_period_us", 10_000)
        tree.set_quotas("web", 20_000, 20_000)
        tree.live(3, {})
        assert tree.quotas("job") == (20_000, 20_000), "2 cores"
        assert tree.quotas("web") == (20_000, 20_000), "left as it is"
        tree.live(3, suppressed_to(50))
        assert tree.read(be, QUOTA) == CPUS * 5_000
        assert tree.problems == ()
        assert tree.agent.be_quota_us == CPUS * 50_000, "reported in microseconds per 100 ms"
