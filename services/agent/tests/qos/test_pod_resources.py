"""Values that hooks missed: what the strategy proposes, how it ends, and what is told about it."""

import json
from dataclasses import replace
from typing import Any

from koord_agent.domain import gate_names
from koord_agent.domain.hooks.call import HookOptions, HookRules, rules_of_look
from koord_agent.domain.hooks.facts import HookRepairs, SetValue
from koord_agent.domain.kernel.cfs_bandwidth import BURST
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json, agent_pod_of_ledger
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.cpu_burst import CpuBurstStrategy
from koord_agent.domain.strategies.cpu_burst_rules import QuotaStep, step_quota
from koord_agent.domain.strategies.cpu_suppress_strategy import suppresses_cpu
from koord_agent.domain.strategies.pod_resources import RENEW_AFTER_MS, PodResourcesStrategy, batch_pod, batch_values
from koord_agent.domain.strategies.strategy import CycleState
from koord_agent.shell.node.protect import HostReadings
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.config import node_strategies
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY

HOST = SimulatedFleet([SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 30)]).host("n")
QUARTER = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}
RATIO = {keys.CPU_NORMALIZATION_RATIO: "1.25"}


class _Files(HostReadings):
    """Readings of a machine whose quotas are all the same, except for some; burst buffers are 0."""

    def __init__(self, quota_us: int, **others: int) -> None:
        super().__init__(HOST, None)
        self.quotas = others  # Last part of a directory -> its quota
        self._quota_us = quota_us

    def quota_us(self, directory: str) -> int | None:
        return self.quotas.get(directory.rpartition("/")[2], self._quota_us)

    def tree(self, directory: str) -> tuple[str, ...]:
        return (directory, f"{directory}/sandbox", f"{directory}/main")

    def read(self, file: CgroupFile) -> str | None:
        return "0\n" if file.resource == BURST else super().read(file)


STATE = CycleState(readings=_Files(200_000))


def pod(uid: str, label: str, resources: dict[str, dict[str, str]], **annotations: str) -> AgentPod:
    labels = {"koordinator.sh/qosClass": label}
    return agent_pod_from_json(
        {
            "metadata": {"uid": uid, "namespace": "d", "name": uid, "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "main", "containerID": f"containerd://{uid}"}],
            },
        }
    )


BATCH = pod("be", "BE", {"requests": QUARTER, "limits": QUARTER})
SERVICE = pod("ls", "LS", {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})


def look(*pods: AgentPod, now_ms: int = 0, annotations: dict[str, str] | None = None, **of_node: Any) -> NodeLook:
    return NodeLook(
        now_ms=now_ms,
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=pods,
        annotations=annotations or {},
        **of_node,
    )


def proposed(strategy: PodResourcesStrategy, seen: NodeLook, files: _Files | None = None) -> dict[str, str]:
    state = STATE if files is None else CycleState(readings=files)
    return {plan.file.key.removeprefix("kubepods/"): plan.value for plan in strategy.propose(seen, {}, state).plans}


def test_best_effort_pod_gets_shares_quota_and_memory_of_its_batch_resources() -> None:
    values = {"cpu.shares": "256", "cpu.cfs_quota_us": "25000", "memory.limit_in_bytes": str(64 << 20)}
    expected = {f"besteffort/podbe{below}/{name}": value for below in ("", "/be") for name, value in values.items()}
    assert proposed(PodResourcesStrategy(batch=True, normalization=False), look(BATCH, SERVICE)) == expected
    assert proposed(PodResourcesStrategy(batch=False, normalization=True), look(BATCH, SERVICE)) == {}


def test_quota_of_the_class_leaves_the_quotas_of_its_pods_unlimited() -> None:
    slo = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
    found = proposed(PodResourcesStrategy(batch=True, normalization=False), look(BATCH, slo=slo))
    assert {value for key, value in found.items() if key.endswith("quota_us")} == {"-1"}


BY_QUOTA = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
OF_POD, OF_MAIN = (f"besteffort/podbe{below}/cpu.cfs_quota_us" for below in ("", "/main"))


def of_ledger(**limits: int) -> AgentPod:
    """A batch pod `be` whose containers are unknown."""
    return agent_pod_of_ledger(
        PodOnNode(
            uid="be",
            namespace="d",
            name="be",
            requests=limits,
            limits=limits,
            qos="BE",
            kube_qos="BestEffort",
            priority_class="koord-batch",
        )
    )


LIMITED = of_ledger(**{BATCH_CPU: 300, BATCH_MEMORY: 64 << 20})


def test_quota_of_a_class_that_the_gates_keep_off_leaves_the_quotas_of_its_pods() -> None:
    found = proposed(PodResourcesStrategy(batch=True, normalization=False, suppresses=False), look(BATCH, slo=BY_QUOTA))
    assert {value for key, value in found.items() if key.endswith("quota_us")} == {"25000"}
    for suppresses in (True, False):
        machine = HookRules(options=HookOptions(suppresses=suppresses))
        assert rules_of_look(look(slo=BY_QUOTA), machine).be_unlimited == suppresses


def test_gates_decide_whether_cpu_suppression_can_act() -> None:
    assert suppresses_cpu(lambda name: name == gate_names.BE_CPU_SUPPRESS)
    assert not suppresses_cpu(lambda _: False)
    assert not suppresses_cpu(lambda _: True), "the manager chooses the CPUs of best effort"


def test_quotas_of_unknown_containers_are_lifted_while_the_quota_of_the_class_limits_them() -> None:
    strategy, files, lifted = (
        PodResourcesStrategy(batch=True, normalization=False),
        _Files(30_000, sandbox=-1),
        _Files(-1),
    )
    assert proposed(strategy, look(LIMITED, slo={}), files) == {}
    assert proposed(strategy, look(LIMITED, slo=BY_QUOTA), files) == {OF_POD: "-1", OF_MAIN: "-1"}
    assert proposed(strategy, look(LIMITED, slo=BY_QUOTA, now_ms=RENEW_AFTER_MS), lifted) == {}
    restoring = proposed(strategy, look(LIMITED, slo={}, now_ms=RENEW_AFTER_MS + 1), lifted)
    assert restoring == {OF_POD: "30000", OF_MAIN: "30000"}
    assert proposed(strategy, look(LIMITED, slo={}, now_ms=2 * RENEW_AFTER_MS + 1), files) == {}
    # Below the pod, a quota that somebody else lifts later is not ours.
    assert proposed(strategy, look(LIMITED, slo={}, now_ms=3 * RENEW_AFTER_MS + 1), lifted) == {OF_POD: "30000"}


def test_pod_that_another_agent_or_a_hook_left_unlimited_gets_the_quota_of_its_limit() -> None:
    fresh, lifted = PodResourcesStrategy(batch=True, normalization=True), _Files(-1)
    assert proposed(fresh, look(LIMITED, slo=BY_QUOTA), lifted) == {}
    assert proposed(fresh, look(LIMITED, slo={}, annotations=RATIO), lifted) == {OF_POD: "24000"}
    # Whether the quota of the class is in force is unknown.
    assert proposed(PodResourcesStrategy(batch=True, normalization=False), look(LIMITED), lifted) == {}
    unlimited = look(of_ledger(), slo={})
    assert proposed(PodResourcesStrategy(batch=True, normalization=False), unlimited, lifted) == {}


def test_cap_of_an_antagonist_is_not_put_back_as_the_quota_that_was_lifted() -> None:
    strategy, unlimited = PodResourcesStrategy(batch=True, normalization=False), of_ledger()
    for now_ms, files in enumerate((_Files(30_000), _Files(-1, podbe=10_000))):
        seen = look(unlimited, slo=BY_QUOTA, now_ms=now_ms * RENEW_AFTER_MS)
        assert proposed(strategy, seen, files)[OF_POD] == "-1"
    restored = proposed(strategy, look(unlimited, slo={}, now_ms=2 * RENEW_AFTER_MS), _Files(-1))
    assert (restored[OF_POD], restored[OF_MAIN]) == ("30000", "30000")


def test_ratio_scales_quotas_and_its_removal_restores_them() -> None:
    strategy = PodResourcesStrategy(batch=True, normalization=True)
    of_service = "burstable/podls/ls/cpu.cfs_quota_us"
    assert proposed(strategy, look(SERVICE, annotations=RATIO))[of_service] == "160000"
    broken = look(SERVICE, now_ms=RENEW_AFTER_MS, annotations={keys.CPU_NORMALIZATION_RATIO: "x"})
    assert proposed(strategy, broken)[of_service] == "160000", "an invalid ratio changes nothing"
    scaled = _Files(160_000, podls=200_000)
    assert proposed(strategy, look(SERVICE, now_ms=RENEW_AFTER_MS + 1), scaled)[of_service] == "200000"
    assert proposed(strategy, look(SERVICE, now_ms=2 * RENEW_AFTER_MS + 1))[of_service] == "200000"
    assert proposed(strategy, look(SERVICE, now_ms=3 * RENEW_AFTER_MS + 1)) == {}


def test_pod_with_an_unlimited_container_gets_no_quota_of_its_own() -> None:
    spec = {"containers": [{"name": "app"}, {"name": "proxy", "resources": {"limits": {"cpu": "500m"}}}]}
    ids = [{"name": "app", "containerID": "containerd://a"}, {"name": "proxy", "containerID": "containerd://p"}]
    meta = {"uid": "ls", "labels": {"koordinator.sh/qosClass": "LS"}}
    half = agent_pod_from_json({"metadata": meta, "spec": spec, "status": {"containerStatuses": ids}})
    strategy, files = PodResourcesStrategy(batch=True, normalization=True), _Files(-1, p=50_000)
    found = proposed(strategy, look(half, annotations=RATIO), files)
    assert found == {"burstable/podls/p/cpu.cfs_quota_us": "40000"}


def test_plans_are_renewed_only_when_something_changed_or_after_ten_seconds() -> None:
    strategy = PodResourcesStrategy(batch=True, normalization=True)
    assert proposed(strategy, look(BATCH))
    assert not proposed(strategy, look(BATCH, now_ms=RENEW_AFTER_MS - 1))
    assert proposed(strategy, look(BATCH, now_ms=RENEW_AFTER_MS - 1, annotations=RATIO))
    assert proposed(strategy, look(BATCH, now_ms=2 * RENEW_AFTER_MS, annotations=RATIO))


def test_cpu_burst_starts_from_the_normalized_quota() -> None:
    policy = node_strategies.CpuBurstStrategy(policy="auto")
    change = step_quota(
        policy, QuotaStep.RESET, limit_milli=2_000, container_quota_us=200_000, pod_quota_us=-1, ratio=1.25
    )
    assert change.container_quota_us == 160_000


def test_each_new_container_of_a_pod_gets_a_burst_buffer() -> None:
    strategy, policy = CpuBurstStrategy(draw=lambda: 0.5), {"policy": "cpuBurstOnly", "cpuBurstPercent": 200}
    written: dict[CgroupFile, bool] = {}
    found: list[dict[str, str]] = []
    for now_ms, identity in enumerate(("", "one", "one", "one", "two")):
        status = {"name": "main", "containerID": f"containerd://{identity}"} if identity else {"name": "main"}
        burst = agent_pod_from_json(
            {
                "metadata": {"uid": "ls"},
                "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
                "status": {"phase": "Running", "containerStatuses": [status]},
            }
        )
        state = CycleState(readings=_Files(100_000), written=written)
        plans = tuple(strategy.propose(look(burst, now_ms=now_ms), policy, state).plans)
        written = {plan.file: True for plan in plans}
        found.append({plan.file.directory.rpartition("/")[2]: plan.value for plan in plans})
    of_one, of_two = ({name: "200000", "podls": "200000"} for name in ("one", "two"))
    assert found == [{"podls": "0"}, of_one, of_one, {}, of_two], "it rests once the values are in place"


def test_value_that_a_container_lacked_at_first_sight_is_told_once() -> None:
    repairs, seen = HookRepairs(), look(BATCH)
    shares = CgroupFile("kubepods/besteffort/podbe/be", "cpu.shares")
    quota = CgroupFile("kubepods/besteffort/podbe/be", "cpu.cfs_quota_us")
    (told,) = repairs.facts(
        seen, [SetValue(shares, "BatchResource", "2", "256"), SetValue(quota, "BatchResource", "25000", None)]
    )
    assert (told.uid, told.container, told.mode, told.stage) == ("be", "main", "Reconciler", "")
    assert [(v.name, v.plugin, v.old, v.new) for v in told.values] == [("cpu.shares", "BatchResource", "2", "256")]
    assert repairs.facts(seen, [SetValue(quota, "BatchResource", "25000", "-1")]) == (), "a rule changed later"
    elsewhere = CgroupFile("kubepods/besteffort", "cpu.bvt_warp_ns")
    assert repairs.facts(seen, [SetValue(elsewhere, "CPUQOS", "0", "-1")]) == (), "not a pod"


def test_what_a_container_lacked_before_its_name_was_known_is_told_with_the_name() -> None:
    repairs, shares = HookRepairs(), CgroupFile("kubepods/besteffort/podbe/be", "cpu.shares")
    without_containers = replace(BATCH, containers=())
    lacked = [SetValue(shares, "BatchResource", "2", "256")]
    assert repairs.facts(look(without_containers), lacked) == ()
    assert repairs.facts(look(without_containers), ()) == ()
    (told,) = repairs.facts(look(BATCH), ())
    assert (told.container, [(v.old, v.new) for v in told.values]) == ("main", [("2", "256")])
    assert repairs.facts(look(BATCH), ()) == (), "once"


def batch(cpu_milli: int, memory_mib: int) -> dict[str, dict[str, str]]:
    amounts = {"kubernetes.io/batch-cpu": str(cpu_milli), "kubernetes.io/batch-memory": f"{memory_mib}Mi"}
    return {"requests": amounts, "limits": amounts}


def batch_pod_of(*, init: list[dict[str, Any]] | None = None, **spec: Any) -> AgentPod:
    """A best-effort pod with the container `main` (1 core, 256 MiB); the id of each container is its name."""
    init = init or []
    return agent_pod_from_json(
        {
            "metadata": {"uid": "u", "labels": {"koordinator.sh/qosClass": "BE"}},
            "spec": {"containers": [{"name": "main", "resources": batch(1_000, 256)}], "initContainers": init, **spec},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
                "initContainerStatuses": [
                    {"name": each["name"], "containerID": f"containerd://{each['name']}"} for each in init
                ],
            },
        }
    )


def quotas_and_memory(pod: AgentPod) -> dict[str, tuple[int, int]]:
    """Directory below the pod ("" for the pod) -> quota in microseconds, memory limit in MiB."""
    found = proposed(PodResourcesStrategy(batch=True, normalization=False), look(pod))
    base = "besteffort/podu"
    directories = {key.removeprefix(base).rpartition("/")[0].strip("/") for key in found}
    return {
        directory: (
            int(found["/".join(filter(None, (base, directory, "cpu.cfs_quota_us")))]),
            int(found["/".join(filter(None, (base, directory, "memory.limit_in_bytes")))]) // (1 << 20),
        )
        for directory in directories
    }


SIDECAR = {"name": "side", "restartPolicy": "Always", "resources": batch(500, 128)}


def test_overhead_of_a_pod_in_a_virtual_machine_is_in_its_limits_and_its_containers_get_none() -> None:
    pod = batch_pod_of(runtimeClassName="kata", overhead=batch(500, 512)["limits"])
    assert quotas_and_memory(pod) == {"": (150_000, 768)}
    variant = batch_pod_of(runtimeClassName="kata-qemu", overhead=batch(500, 512)["limits"])
    assert quotas_and_memory(variant) == {"": (150_000, 768)}
    assert pod.be_requests_milli == (1_000, 500)
    other = batch_pod_of(runtimeClassName="katana")
    assert quotas_and_memory(other) == {"": (100_000, 256), "main": (100_000, 256)}


def test_sidecar_counts_in_the_limits_of_its_pod_and_has_its_own() -> None:
    found = quotas_and_memory(batch_pod_of(init=[SIDECAR]))
    assert found == {"": (150_000, 384), "main": (100_000, 256), "side": (50_000, 128)}


def test_init_container_that_is_larger_than_the_containers_gets_what_it_needs() -> None:
    init = {"name": "init", "resources": batch(200, 1_024)}
    found = quotas_and_memory(batch_pod_of(init=[init]))
    assert found == {"": (100_000, 1_024), "main": (100_000, 256), "init": (20_000, 1_024)}
    after_sidecar = quotas_and_memory(batch_pod_of(init=[SIDECAR, init]))
    assert after_sidecar[""] == (150_000, 1_152), "the sidecar runs while the init container runs (KEP-753)"


def test_sidecar_without_a_limit_leaves_its_pod_without_one() -> None:
    unlimited = {**SIDECAR, "resources": {"requests": batch(500, 128)["requests"]}}
    assert quotas_and_memory(batch_pod_of(init=[unlimited]))[""][0] == -1
    tree = proposed(PodResourcesStrategy(batch=True, normalization=False), look(batch_pod_of(init=[unlimited])))
    assert tree["besteffort/podu/memory.limit_in_bytes"] == "-1"
    assert tree["besteffort/podu/side/cpu.cfs_quota_us"] == "-1"


def test_hook_knows_the_overhead_and_sidecars_that_the_annotation_lacks() -> None:
    annotation = {keys.EXTENDED_RESOURCE_SPEC: json.dumps({"containers": {"main": batch(1_000, 256)}})}
    listed = batch_pod_of(init=[SIDECAR], overhead=batch(500, 512)["limits"])
    ledger = agent_pod_of_ledger(
        PodOnNode(
            uid="u",
            namespace="d",
            name="p",
            qos="BE",
            kube_qos="BestEffort",
            priority_class="koord-batch",
            requests={name: listed.requests[name] for name in (BATCH_CPU, BATCH_MEMORY)},
            limits={name: listed.limits[name] for name in (BATCH_CPU, BATCH_MEMORY)},
        )
    )
    for known, of_side in ((listed, (512, 50_000)), (ledger, None), (None, None)):
        found = batch_pod(known, annotation)
        assert found is not None
        values = batch_values(found.of_pod)
        expected = (1_024, 100_000, 256) if known is None else (2_048, 200_000, 896)
        assert (values.cpu_shares, values.cfs_quota_us, values.memory_limit_bytes >> 20) == expected
        side = found.containers.get("side")
        assert (None if side is None else (batch_values(side).cpu_shares, batch_values(side).cfs_quota_us)) == of_side


def test_annotation_counts_for_what_the_spec_leaves_out() -> None:
    """Runtime spec, 2.3: the spec of a container first, the annotation if it has no batch resources."""
    listed = {name: batch(milli, 64) for name, milli in (("main", 500), ("side", 250))}
    annotations = {keys.EXTENDED_RESOURCE_SPEC: json.dumps({"containers": listed})}
    found = batch_pod(batch_pod_of(), annotations)
    assert found is not None
    assert (found.of_pod.limits[BATCH_CPU], found.containers["main"].limits[BATCH_CPU]) == (1_000, 1_000)
    assert batch_values(found.containers["side"]).cfs_quota_us == 25_000
    bare = agent_pod_from_json({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "main"}]}})
    found = batch_pod(bare, annotations)
    assert found is not None
    assert (found.of_pod.limits[BATCH_CPU], found.containers["main"].limits[BATCH_CPU]) == (750, 500)
