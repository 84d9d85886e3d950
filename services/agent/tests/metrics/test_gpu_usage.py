"""Usage of GPUs: from processes over samples to the report, by node, pod and container."""

from dataclasses import replace
from pathlib import Path

from koord_agent.domain.metrics.gpu_usage import GpuOwner, GpuProcess, GpuReading, gpu_samples, gpu_usages
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.node.pods import AgentPod, ReportedPod, agent_pod_from_json
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.reporting.report import node_report, usage_reported
from koord_agent.shell.collect.devices import owners_of
from koordcore.events.observation import GpuUsage

NOW_MS = 60_000
ID = "0123abcd" * 8
A = GpuReading(
    minor=0,
    uuid="A",
    memory_bytes=1000,
    processes=(GpuProcess(1, 30.0, 100), GpuProcess(2, 20.0, 50), GpuProcess(3, 10.0, 25), GpuProcess(9, 1.0, 1)),
)
B = GpuReading(minor=1, uuid="B", memory_bytes=1000)
OWNERS = {1: GpuOwner("p", "c1"), 2: GpuOwner("p", "c2"), 3: GpuOwner("q", "c3")}


def stored() -> SeriesStore:
    store = SeriesStore()
    store.append_all(tuple(gpu_samples([A, B], OWNERS, NOW_MS)))
    store.append(Kind.POD_CPU, NOW_MS, 1.0, "p")
    store.append(Kind.POD_MEMORY, NOW_MS, 1.0, "p")
    return store


def test_pods_and_containers_have_the_sum_of_their_processes() -> None:
    found = {(each.kind, each.of): each.value for each in gpu_samples([A, B], OWNERS, NOW_MS)}
    assert found[Kind.NODE_GPU_CORE, ("0", "A")] == 61.0
    assert found[Kind.NODE_GPU_MEMORY, ("1", "B")] == 0
    assert found[Kind.POD_GPU_CORE, ("p", "0", "A")] == 50.0
    assert found[Kind.CONTAINER_GPU_MEMORY, ("c2", "0", "A")] == 50
    assert (Kind.POD_GPU_CORE, ("q", "1", "B")) not in found


def test_report_has_the_gpus_of_the_node_and_of_each_pod() -> None:
    pod = ReportedPod(uid="p", namespace="d", name="p", priority="koord-prod", qos="LS")
    report = node_report(stored(), now_ms=NOW_MS, policy=CollectPolicy(), pods=[pod], gpus=[B, A])
    told = usage_reported(report, updated_at="", be_quota_us=-1)
    assert told.gpus == [
        GpuUsage(minor=0, uuid="A", core_percent=61, memory_bytes=176, memory_percent=17),
        GpuUsage(minor=1, uuid="B"),
    ]
    assert told.pods[0].gpus == [GpuUsage(minor=0, uuid="A", core_percent=50, memory_bytes=150, memory_percent=15)]


def test_unknown_usage_of_cores_is_not_reported_as_idle() -> None:
    store, partitioned = SeriesStore(), replace(A, has_cores=False)
    store.append_all(tuple(gpu_samples([partitioned, B], OWNERS, NOW_MS)))
    assert not store.held(Kind.POD_GPU_CORE)
    assert store.held(Kind.POD_GPU_MEMORY) == (("p", "0", "A"), ("q", "0", "A"))
    assert gpu_usages(store, [partitioned, B], 0, NOW_MS) == (GpuUsage(minor=1, uuid="B"),)


def test_samples_of_a_pod_that_ended_are_dropped() -> None:
    store = stored()
    store.forget(["p", "c1", "c2"])
    assert store.held(Kind.POD_GPU_CORE) == (("q", "0", "A"),)
    assert store.held(Kind.CONTAINER_GPU_CORE) == (("c3", "0", "A"),)


def container(id_: str) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {"uid": "p", "namespace": "d", "name": "p"},
            "spec": {"containers": [{"name": "main"}, {"name": "stopped"}]},
            "status": {"containerStatuses": [{"name": "main", "containerID": f"containerd://{id_}"}]},
        }
    )


def test_processes_belong_to_the_container_whose_id_is_in_the_name_of_their_cgroup(tmp_path: Path) -> None:
    texts = {
        1: f"5:cpu:/kubepods/burstable/podp/{ID}\n",
        2: f"0::/kubepods.slice/kubepods-podp.slice/cri-containerd-{ID}.scope\n",
        3: "0::/system.slice/sshd.service\n",
    }
    for pid, text in texts.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    owner = GpuOwner("p", f"containerd://{ID}")
    assert owners_of([1, 2, 3, 4], [container(ID)], tmp_path) == {1: owner, 2: owner}
