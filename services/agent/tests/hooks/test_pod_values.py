"""Values of a pod as a hook server gives them: from the last look alone, and equal to what the strategies propose."""

import json
from typing import Any

from koord_agent.domain.hooks.cpu_burst import PoolState, pool_load
from koord_agent.domain.hooks.pod_values import node_rules, values_of_pod
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.qos.strategies.memory_qos_strategy import MemoryQosStrategy
from koord_agent.domain.qos.strategy import CycleState
from koord_agent.domain.state.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod, agent_pod_from_json
from koord_agent.shell.host.simulated import SimulatedFleet
from koord_agent.shell.host.simulated_node import SimulatedNode
from koord_agent.shell.node.readings import HostReadings
from koordcore.values.cpuset import EMPTY

SLO: dict[str, Any] = {
    "resourceQOSStrategy": {
        "lsClass": {
            "cpuQOS": {"enable": True, "groupIdentity": 2},
            "memoryQOS": {"minLimitPercent": 50, "throttlingPercent": 0},
            "resctrlQOS": {"enable": True},
        },
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
    },
    "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
}
POOLS = CpuPools(
    ls=(SharedPool(0, 0, "0-3"), SharedPool(1, 1, "4-7")), be=(), reserved=EMPTY, system_exclusive=EMPTY, kubelet=()
)


def pod(uid: str, label: str, resources: dict[str, dict[str, str]], annotations: dict[str, str]) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {
                "uid": uid,
                "namespace": "default",
                "name": uid,
                "labels": {"koordinator.sh/qosClass": label},
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "main", "resources": resources}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "main", "containerID": f"containerd://{uid}"}],
            },
        }
    )


def look(*pods: AgentPod, annotations: dict[str, str] | None = None) -> NodeLook:
    return NodeLook(
        now_ms=0,
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=pods,
        slo=SLO,
        allocatable={"memory": 1 << 34},
        annotations=annotations or {},
        pools=POOLS,
    )


WEB = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}


def test_a_latency_sensitive_pod() -> None:
    web = pod("web", "LS", WEB, {"koordinator.sh/oom-score-adj": "-500"})
    ratio = {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}
    values = values_of_pod(web, node_rules(look(web, annotations=ratio)))
    (container,) = values.containers.values()
    assert (container.bvt, container.cpuset, container.oom_score_adj) == (2, "0-3,4-7", -500)
    assert (container.cfs_quota_us, container.cfs_burst_us) == (160_000, 2_000_000)
    assert (container.memory["memory.min"], values.pod.memory["memory.min"]) == (1 << 29, 1 << 29)
    assert (values.resctrl_group, values.problems) == ("LS", ())


def test_a_best_effort_pod_and_one_that_owns_cpus() -> None:
    job = pod("job", "BE", {"requests": BATCH, "limits": BATCH}, {})
    owned = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "2-3"})}
    own = pod("own", "LSR", WEB, owned)
    rules = node_rules(look(job, own))
    of_job = values_of_pod(job, rules).containers["main"]
    assert (of_job.bvt, of_job.cpu_shares, of_job.cfs_quota_us) == (-1, 512, 50_000)
    assert (of_job.memory_limit_bytes, of_job.cpuset) == (1 << 30, "")
    of_own = values_of_pod(own, rules).pod
    assert (of_own.cfs_quota_us, values_of_pod(own, rules).containers["main"].cpuset) == (-1, "2-3")


def test_a_malformed_annotation_is_a_problem_and_the_other_values_stay() -> None:
    web = pod("web", "LS", WEB, {"koordinator.sh/cpuQOS": "{", "scheduling.koordinator.sh/resource-status": "{"})
    values = values_of_pod(web, node_rules(look(web)))
    assert len(values.problems) == 2
    assert (values.pod.bvt, values.containers["main"].cpuset) == (None, None)
    assert values.containers["main"].cfs_burst_us == 2_000_000


def test_the_strategy_proposes_the_values_that_a_hook_server_answers() -> None:
    web = pod("web", "LS", WEB, {})
    seen = look(web)
    host = SimulatedFleet([SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 34)]).host("n")
    state = CycleState(readings=HostReadings(host, None))
    plans = MemoryQosStrategy().propose(seen, SLO["resourceQOSStrategy"], state).plans
    directory = seen.pod_directory(web)
    proposed = {plan.file.resource: int(plan.value) for plan in plans if plan.file.directory == directory}
    assert proposed == values_of_pod(web, node_rules(seen)).pod.memory


def test_burst_state_without_cpu_info_is_unknown() -> None:
    for cpus in (None, 0, -1):
        load = pool_load(node_cpus=cpus, node_cpu_used_cores=1.0, pods=(), used_cores={}, threshold_percent=50)
        assert (load.state, load.ratio) == (PoolState.UNKNOWN, None)
    known = pool_load(node_cpus=8, node_cpu_used_cores=1.0, pods=(), used_cores={}, threshold_percent=50)
    assert known.state is PoolState.IDLE
