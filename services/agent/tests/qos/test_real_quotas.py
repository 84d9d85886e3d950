"""CPU quotas on this machine's own kernel (cgroup v1): what the agent wants, the kernel accepts at once."""

from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.contention.cpi_caps import Caps
from koordcore.protocol.keys import CPU_NORMALIZATION_RATIO
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


def test_on_two_cpus_best_effort_is_limited_by_its_quota(tmp_path: Path) -> None:
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 0, "cpuSuppressMinPercent": 25}
    with real_tree(tmp_path, pods(JOB), small=True) as tree:
        tree.live(3, {"resourceUsedThresholdWithBE": {**threshold, "cpuSuppressPolicy": "cpuset"}})
        assert tree.read(tree.layout.qos_directory(KubeQos.BEST_EFFORT), QUOTA) == 50_000
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


def bursting(policy: str, **settings: Any) -> dict[str, Any]:
    """A NodeSLO with CPU burst; the pool of a node at rest is never overloaded."""
    return {"cpuBurstStrategy": {"policy": policy, "sharePoolThresholdPercent": 100, **settings}}


WEB = limited_pod("web", "LS", {"cpu": "2"})


@pytest.mark.parametrize("policy", ["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"])
@pytest.mark.parametrize("of_pod", [-1, 200_000])
def test_an_unlimited_container_stays_unlimited(tmp_path: Path, policy: str, of_pod: int) -> None:
    """A kubelet with static CPU manager unsets the quota of containers with exclusive CPUs, or of all containers."""
    with real_tree(tmp_path, pods(WEB), gates="CPUNormalization=true") as tree:
        tree.set_quotas("web", of_pod, -1)
        tree.live(13, bursting(policy), annotations={CPU_NORMALIZATION_RATIO: "1.25"})
        assert tree.quotas("web") == (of_pod, -1)
        assert tree.problems == ()


@pytest.mark.parametrize("policy", ["none", "auto"])
def test_a_resize_that_the_kubelet_has_deferred_is_not_applied(tmp_path: Path, policy: str) -> None:
    waits = limited_pod("web", "LS", {"cpu": "8"}, in_force={"cpu": "2"})
    with real_tree(tmp_path, pods(waits)) as tree:
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(3, bursting(policy))
        assert tree.quotas("web") == (200_000, 200_000)
        tree.add(limited_pod("web", "LS", {"cpu": "8"}, in_force={"cpu": "8"}))
        tree.set_quotas("web", 800_000, 800_000)
        tree.live(3, bursting(policy))
        assert tree.quotas("web") == (800_000, 800_000)


def test_a_quota_that_another_writer_set_is_left(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(WEB)) as tree:
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(2, bursting("none"))
        tree.set_quotas("web", 300_000, 300_000)  # such as by a resize that the status does not show yet
        tree.live(12, bursting("none"))
        assert tree.quotas("web") == (300_000, 300_000)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_quota_that_the_agent_raised_is_put_back(tmp_path: Path, restarts: bool) -> None:
    policy = bursting("auto", cpuBurstPercent=0)
    with real_tree(tmp_path, pods(WEB)) as tree:
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(1, policy)
        for _ in range(3):
            tree.throttle("web")
            tree.live(1, policy)
        pod, container = tree.quotas("web")
        assert pod == container > 200_000
        if restarts:
            tree.restart()
        tree.live(2, bursting("none"))
        assert tree.quotas("web") == (200_000, 200_000)


def test_a_burst_is_at_most_the_quota_and_does_not_keep_it_from_falling(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(WEB)) as tree:
        container = tree.container("web")
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(2, bursting("auto"))
        assert tree.read(container, BURST) == 200_000, "of the 1000 % that are wanted"
        for _ in range(3):
            tree.throttle("web")
            tree.live(1, bursting("auto"))
        raised = tree.read(container, QUOTA)
        assert raised > 200_000
        assert tree.read(container, BURST) == tree.read(tree.pod("web"), BURST) == raised
        assert tree.agent.qos.burst_values.by_file[CgroupFile(container, BURST)] == raised
        tree.live(20, bursting("auto", sharePoolThresholdPercent=0))
        assert tree.quotas("web") == (200_000, 200_000)
        assert tree.read(container, BURST) == 200_000
        assert tree.problems == ()


def test_a_burst_that_the_kernel_refused_is_tried_again(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(WEB)) as tree:
        container = tree.container("web")
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(2, bursting("cpuBurstOnly", cpuBurstPercent=50))
        tree.write(container, BURST, 0)  # by another writer
        tree.live(13, bursting("cpuBurstOnly", cpuBurstPercent=50))
        assert tree.read(container, BURST) == 100_000
        assert tree.agent.qos.burst_values.by_file[CgroupFile(container, BURST)] == 100_000


def test_normalization_leaves_a_container_room_to_start(tmp_path: Path) -> None:
    both, ratio = limited_pod("web", "LS", {"cpu": "2"}, state="", containers=2), {CPU_NORMALIZATION_RATIO: "2"}
    with real_tree(tmp_path, pods(both), gates="CPUNormalization=true") as tree:
        tree.set_quotas("web", 400_000, 200_000)
        for _ in range(2):
            tree.live(12, {}, annotations=ratio)
            assert tree.quotas("web") == (400_000, 100_000), "each container that runs is scaled"
            tree.add(limited_pod("web", "LS", {"cpu": "2"}, containers=2))
            tree.write(tree.container("web", "containerd://web-1"), QUOTA, 200_000)  # as the runtime starts it
        tree.live(12, {}, annotations=ratio)
        assert tree.read(tree.container("web", "containerd://web-1"), QUOTA) == 100_000
        assert tree.problems == ()


def test_normalization_does_not_take_back_what_a_burst_raised(tmp_path: Path) -> None:
    ratio, policy = {CPU_NORMALIZATION_RATIO: "1.25"}, bursting("auto")
    with real_tree(tmp_path, pods(WEB), gates="CPUNormalization=true") as tree:
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(2, policy, annotations=ratio)
        assert tree.read(tree.container("web"), QUOTA) == 160_000
        for _ in range(12):
            tree.throttle("web")
            tree.live(1, policy, annotations=ratio)
        assert tree.read(tree.container("web"), QUOTA) == 480_000, "three times the normalized quota"
        for _ in range(12):
            tree.live(1, policy, annotations=ratio)
            assert tree.read(tree.container("web"), QUOTA) == 480_000
        assert tree.problems == ()


def test_a_cap_also_holds_a_pod_with_limits_of_its_own(tmp_path: Path) -> None:
    caps = Caps()
    with real_tree(tmp_path, pods(JOB), gates="BatchResource=false") as tree:
        tree.set_quotas("job", 200_000, 200_000)

        def cycle(seconds: int, *, ends: bool = False) -> None:
            tree.live(seconds, {})
            assert tree.agent.last_look is not None
            plans = caps.plans(tree.agent.last_look, tree.readings.quota_us, ttl_ms=1_000, ends=ends)
            tree.executor.apply(plans, tree.now_ms)

        cycle(1)
        caps.hold("job", quota_us=10_000, before_us=200_000, now_ms=tree.now_ms, seconds=60, cause="c")
        cycle(2)
        assert tree.quotas("job") == (10_000, 10_000)
        cycle(1, ends=True)
        assert tree.quotas("job") == (200_000, 200_000)
        cycle(1, ends=True)
        assert "job" not in caps


def test_a_burst_makes_room_for_a_resize_to_a_lower_limit(tmp_path: Path) -> None:
    with real_tree(tmp_path, pods(WEB)) as tree:
        tree.set_quotas("web", 200_000, 200_000)
        tree.live(2, bursting("cpuBurstOnly"))
        assert tree.read(tree.container("web"), BURST) == 200_000
        tree.add(limited_pod("web", "LS", {"cpu": "1"}, in_force={"cpu": "2"}))
        tree.live(1, bursting("cpuBurstOnly"))
        for directory in (tree.container("web"), tree.pod("web")):
            tree.write(directory, QUOTA, 100_000)  # as the kubelet and the runtime do
        tree.add(limited_pod("web", "LS", {"cpu": "1"}, in_force={"cpu": "1"}))
        tree.live(2, bursting("cpuBurstOnly"))
        assert tree.quotas("web") == (100_000, 100_000)
        assert tree.read(tree.container("web"), BURST) == 100_000
        assert tree.problems == ()
