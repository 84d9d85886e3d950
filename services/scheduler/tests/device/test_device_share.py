"""DeviceShare in whole cycles: placement, refusals in numbers, preemption, gangs, failing devices, other schedulers."""

import json
from typing import Any

import pytest
from koord_scheduler.domain.engine.decision import Restriction
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.topology_hints import Hint
from koord_scheduler.domain.loop.state.cycle_view import NodeOffers
from koord_scheduler.domain.plugins.device.plugin import DeviceShare
from koord_scheduler.shell.collectors import StateFigures
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import name_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state.allocation_rules import violations
from koordcore.values.allocation import AllocatedDevice
from support.scheduler.devices import CORE, RATIO, RDMA, VF_HINT, asking, board, device, gpu
from support.scheduler.numa import add_numa_node, lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

MORE = {
    "nvidia.com/gpu": "8",
    "koordinator.sh/gpu": "800",
    CORE: "800",
    RATIO: "800",
    "koordinator.sh/gpu-memory": "640Gi",
    "koordinator.sh/gpu.shared": "800",
    RDMA: "400",
}


def _put(log: SmallLog, document: dict[str, Any]) -> None:
    log.say("customspec", f"devices={name_token(document['metadata']['name'])}", CustomObjectObserved(object=document))


def _cluster(*names: str, devices: list[Any] | None = None) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name, cpu="100", memory="1Ti", more=MORE))
        _put(log, device(name, board() if devices is None else devices))
    return log


def _given(scheduler: Scheduler, uid: str) -> tuple[AllocatedDevice, ...]:
    found = scheduler.state.pods[uid]
    holders = scheduler.state.assumed.ledgers.holders(found.node)
    return holders[uid].allocation.devices


def _minors(scheduler: Scheduler, uid: str, type_: str = "gpu") -> list[int]:
    return [each.minor for each in _given(scheduler, uid) if each.type == type_]


def _plugin(scheduler: Scheduler) -> DeviceShare:
    plugins = scheduler.state.frameworks.first.profile.filters
    (found,) = [each for each in plugins if isinstance(each, DeviceShare)]
    return found


def _refusal(scheduler: Scheduler, uid: str) -> PodUnschedulable:
    found = [each.event for each in scheduler.explanations if each.uid == uid]
    assert isinstance(found[-1], PodUnschedulable)
    return found[-1]


def test_a_job_gets_its_gpus_and_the_rdma_devices_of_their_switches() -> None:
    log = _cluster("a")
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    log.add_pod(asking("job", {"nvidia.com/gpu": "4", RDMA: "1"}, hints=VF_HINT, joint=joint))
    scheduler = Scheduler(log)
    scheduler.run()
    assert _minors(scheduler, "job") == [0, 1, 2, 3]
    assert [
        (each.minor, each.virtual_functions[0].bus_id) for each in _given(scheduler, "job") if each.type == "rdma"
    ] == [
        (1, "0000:01:00.0"),
        (2, "0000:02:00.0"),
    ]


def test_shares_never_exceed_a_card_and_a_copy_folds_to_the_same_state() -> None:
    log = _cluster("a", "b")
    for index in range(40):
        log.add_pod(asking(f"p{index}", {RATIO: str(20 + index % 5 * 15), CORE: "20"}))
    scheduler = Scheduler(log)
    scheduler.run()
    copy = Scheduler(log)
    copy.follow()
    for name in ("a", "b"):
        assert violations(scheduler.state.assumed.ledgers.holders(name)) == []
        row = scheduler.state.nodes.row(name)
        other = copy.state.nodes.row(name)
        assert row is not None
        assert other is not None
        one, two = _plugin(scheduler).states.devices_of(row), _plugin(copy).states.devices_of(other)
        assert one is not None
        assert two is not None
        assert (one.use.amounts, one.use.functions, one.use.holders) == (
            two.use.amounts,
            two.use.functions,
            two.use.holders,
        )
    assert sum(bool(record.node) for record in scheduler.state.pods.values()) > 20


def test_a_refusal_says_in_numbers_what_the_switches_have() -> None:
    log = _cluster("a")
    log.add_pod(_foreign("others", [0, 2, 4, 5, 6]))
    log.add_pod(asking("two", {"nvidia.com/gpu": "2"}, hints={"gpu": {"requiredTopologyScope": "PCIe"}}))
    scheduler = Scheduler(log)
    scheduler.run()
    refusal = _refusal(scheduler, "two")
    assert refusal.diagnosis is not None
    details = [detail for failure in refusal.diagnosis.failures for detail in failure.details]
    assert details == ["a: needs 2 GPUs under one PCIe switch: switches have 1, 1, 0, 1 free"]


@pytest.mark.parametrize(
    ("selector", "lacking"),
    [
        (
            {"vfSelector": {"matchLabels": {"type": "other"}}},
            "with a virtual function of the vfSelector: RDMA devices have 0, 0, 0, 0 such functions free",
        ),
        (
            {"selector": {"matchLabels": {"rack": "x"}}},
            "with the labels of the selector: 0 of 0 such RDMA devices are free",
        ),
    ],
)
def test_a_refusal_says_what_devices_lack_that_a_selector_names(selector: dict[str, Any], lacking: str) -> None:
    log = _cluster("a")
    log.add_pod(asking("picky", {RDMA: "1"}, hints={"rdma": selector}))
    scheduler = Scheduler(log)
    scheduler.run()
    refusal = _refusal(scheduler, "picky")
    assert refusal.diagnosis is not None
    details = [each for failure in refusal.diagnosis.failures for each in failure.details]
    assert details == [f"a: needs 1 RDMA device {lacking}"]


def test_an_invalid_request_is_refused_before_any_node() -> None:
    log = _cluster("a")
    log.add_pod(asking("odd", {CORE: "150", RATIO: "150"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert "multiple of 100" in _refusal(scheduler, "odd").message


def test_a_preemptor_evicts_the_pods_that_make_room_under_one_switch() -> None:
    log = _cluster("a")
    for index in range(8):
        log.add_pod(asking(f"low{index}", {"nvidia.com/gpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    hints = {"gpu": {"requiredTopologyScope": "PCIe"}}
    log.add_pod(asking("high", {"nvidia.com/gpu": "2"}, hints=hints, priority=1000))
    scheduler.run()
    scheduler.run(now=100.0)
    assert len(_minors(scheduler, "high")) == 2
    left, right = _minors(scheduler, "high")
    assert left // 2 == right // 2
    assert sum(f"low{index}" in scheduler.state.assumed.ledgers.holders("a") for index in range(8)) == 6


def test_an_unhealthy_device_takes_no_new_pod_and_keeps_its_pods() -> None:
    log = _cluster("a", devices=[gpu(0), gpu(1)])
    log.add_pod(asking("first", {"nvidia.com/gpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    _put(log, device("a", [gpu(0, healthy=False), gpu(1, healthy=False)]))
    log.add_pod(asking("second", {"nvidia.com/gpu": "1"}))
    scheduler.run()
    assert _minors(scheduler, "first") == [0]
    assert not scheduler.state.pods["second"].node
    _put(log, device("a", [gpu(0, healthy=False), gpu(1)]))
    scheduler.run(now=1000.0)
    assert _minors(scheduler, "second") == [1]


def test_deleting_the_device_object_leaves_no_device_for_new_pods() -> None:
    log = _cluster("a", devices=[gpu(0)])
    log.say("customspec", "devices=a", CustomObjectDeleted(kind="Device", name="a"))
    log.add_pod(asking("late", {"nvidia.com/gpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert not scheduler.state.pods["late"].node


def test_a_node_whose_secondary_devices_do_not_fit_as_planned_is_reported_until_it_changes() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="100", memory="1Ti", more=MORE))
    planned = {keys.SECONDARY_DEVICE_WELL_PLANNED: "true"}
    _put(log, device("a", board(functions=1), labels=planned))
    requests = {"nvidia.com/gpu": "1", RDMA: "1"}
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    scheduler = Scheduler(log)
    figures = StateFigures(scheduler.state)

    def reported() -> list[str]:
        found = {family.name: family for family in figures.collect()}
        return [each.labels["node"] for each in found["scheduler_secondary_device_not_well_planned"].samples]

    for number in range(5):
        log.add_pod(asking(f"job-{number}", requests, hints=VF_HINT, joint=joint))
        scheduler.run()
        if number == 0:
            assert reported() == []
    assert reported() == ["a"], "two GPUs share a switch whose adapter has one virtual function"
    _put(log, device("a", board(functions=4), labels=planned))
    scheduler.follow()
    assert reported() == []


PCIE_LEVEL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: DeviceShare
  pluginConfig:
  - name: DeviceShare
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: DeviceShareArgs
      enablePCIeLevelExclusive: true
"""


@pytest.mark.parametrize("is_on", [True, False])
def test_pcie_level_gives_only_unused_switches_if_it_is_enabled(*, is_on: bool) -> None:
    log = _cluster("a")
    scheduler = Scheduler(log, PCIE_LEVEL if is_on else "")
    # 8 GPUs, two to a switch: the first pod uses one of switch 0, the others need switches without any used GPU
    log.add_pod(asking("share", {CORE: "50", RATIO: "50"}))
    scheduler.run()
    assert _minors(scheduler, "share") == [0]
    alone = {"gpu": {"exclusivePolicy": "PCIeLevel"}}
    for name in ("alone-1", "alone-2", "alone-3", "alone-4"):
        log.add_pod(asking(name, {"nvidia.com/gpu": "1"}, hints=alone))
        scheduler.run()
    placed = [name for name in ("alone-1", "alone-2", "alone-3", "alone-4") if scheduler.state.pods[name].node]
    switches = [_minors(scheduler, name)[0] // 2 for name in placed]
    if is_on:
        assert sorted(switches) == [1, 2, 3]
        log.remove_pod("share")
        scheduler.run(1000.0)
        scheduler.run(2000.0)
        assert _minors(scheduler, "alone-4")[0] // 2 == 0
    else:
        assert len(placed) == 4
        assert len(set(switches)) < 4


def test_a_node_without_device_object_gives_what_its_resources_allow() -> None:
    log = SmallLog()
    log.add_node(node("a", more=MORE))
    log.add_pod(asking("plain", {"nvidia.com/gpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert scheduler.state.pods["plain"].node == "a"
    assert _given(scheduler, "plain") == ()


UNSHARED = PCIE_LEVEL.replace("enablePCIeLevelExclusive: true", "gpuShareUnsupportedModels: [{vendor: v, model: T4}]")


def test_models_that_cannot_be_shared_and_providers_that_a_node_lacks_refuse_shares_only() -> None:
    log = SmallLog()
    labels = {keys.GPU_VENDOR: "v", keys.GPU_MODEL: "T4", keys.GPU_ISOLATION_PROVIDER: "HAMi-core"}
    for name, kept in (("t4", [*labels]), ("h20", [keys.GPU_VENDOR])):
        log.add_node(node(name, cpu="100", memory="1Ti", more=MORE, labels={key: labels[key] for key in kept}))
        _put(log, device(name, board()))
    share, isolated = {CORE: "10", RATIO: "10"}, {keys.GPU_ISOLATION_PROVIDER: "HAMi-core"}
    on_t4 = {"nodeSelector": {keys.GPU_MODEL: "T4"}}
    log.add_pod(asking("whole", {"nvidia.com/gpu": "8"}, **on_t4))
    log.add_pod(asking("share", share))
    log.add_pod(asking("isolated", share, labels=isolated))
    scheduler = Scheduler(log, UNSHARED)
    scheduler.run()
    assert {uid: scheduler.state.pods[uid].node for uid in ("whole", "share")} == {"whole": "t4", "share": "h20"}
    (failure, other) = _refusal(scheduler, "isolated").explanation.exclusions[0].reasons.items()
    assert {failure[0], other[0]} == {
        'model "T4" of vendor "v" does not support GPU Share',
        "HAMi-core isolation provider not found on the node",
    }


def _foreign(uid: str, minors: list[int], node_name: str = "a") -> Pod:
    amounts = {CORE: "100", RATIO: "100", "koordinator.sh/gpu-memory": "80Gi"}
    allocated = {"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}
    bound = asking(uid, {"nvidia.com/gpu": str(len(minors))}, nodeName=node_name)
    return with_metadata(bound, annotations={keys.DEVICE_ALLOCATED: json.dumps(allocated)})


@pytest.mark.parametrize("devices_first", [True, False])
def test_overlapping_allocations_of_others_are_kept_and_never_made_worse(*, devices_first: bool) -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="100", memory="1Ti", more=MORE))
    if devices_first:
        _put(log, device("a", [gpu(minor) for minor in range(4)]))
    log.add_pod(_foreign("x", [0, 1]))
    log.add_pod(_foreign("y", [1, 2]))
    if not devices_first:
        _put(log, device("a", [gpu(minor) for minor in range(4)]))
    scheduler = Scheduler(log)
    scheduler.run()
    before = violations(scheduler.state.assumed.ledgers.holders("a"))
    assert {each.subject for each in before} == {f"{CORE} of gpu 1", f"{RATIO} of gpu 1"}
    log.add_pod(asking("ours", {"nvidia.com/gpu": "1"}))
    log.add_pod(asking("none", {"nvidia.com/gpu": "1"}))
    scheduler.run()
    assert _minors(scheduler, "ours") == [3]
    assert not scheduler.state.pods["none"].node
    assert violations(scheduler.state.assumed.ledgers.holders("a")) == before
    log.remove_pod("x")
    scheduler.run(now=1000.0)
    assert _minors(scheduler, "none") == [0]


def test_two_schedulers_race_for_the_last_gpu_and_one_decides_anew() -> None:
    log = _cluster("a", "b", devices=[gpu(0)])
    log.add_pod(asking("p", {"nvidia.com/gpu": "1"}))
    log.add_pod(asking("q", {"nvidia.com/gpu": "1"}))
    log.add_pod(asking("r", {"nvidia.com/gpu": "1"}))
    one, two = Scheduler(log), Scheduler(log)
    for each in (one, two):
        each.follow()
        while each.decide() is not None:
            pass
        each.send()
    for each in (one, two, one, two):
        while each.in_flight:
            each.land()
        each.run()
    for each in (one, two):
        each.follow()
        placed = {uid: record.node for uid, record in each.state.pods.items() if record.node}
        assert sorted(placed.values()) == ["a", "b"]
        for name in ("a", "b"):
            assert violations(each.state.assumed.ledgers.holders(name)) == []
    assert one.conflicts + two.conflicts > 0


@pytest.mark.parametrize("is_on", [True, False])
def test_placements_have_the_annotations_of_device_plugins_if_the_gate_is_on(is_on: bool) -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="100", memory="1Ti", more=MORE, labels={keys.GPU_VENDOR: "cambricon"}))
    _put(log, device("a", board()))
    log.add_pod(asking("share", {RATIO: "30", CORE: "30"}))
    scheduler = Scheduler(log, gates=SchedulerGates(device_plugin_adaption=is_on))
    scheduler.run(now=5.0)
    events = [CATALOGUE.read(stored) for stored in log.events if stored.ref.kind == "pod"]
    placed = next(event for event in events if isinstance(event, PodPlaced))
    assert placed.annotations.get("CAMBRICON_DSMLU_PROFILE") == ("0_30_96" if is_on else None)
    assert placed.annotations.get("scheduling.koordinator.sh/bind-timestamp") == ("5000000000" if is_on else None)


def test_a_pod_with_resource_claims_of_another_scheduler_counts_and_its_devices_are_left_alone() -> None:
    log = _cluster("a")
    claims: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    log.add_pod(pod("claimed", {"cpu": "90"}, nodeName="a", **claims))
    log.add_pod(asking("own", {"nvidia.com/gpu": "8", "cpu": "10"}))
    log.add_pod(asking("late", {RATIO: "10", "cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert _minors(scheduler, "own") == list(range(8)), "claims say nothing about the devices of the Device object"
    assert "Insufficient cpu" in _refusal(scheduler, "late").message
    row = scheduler.state.nodes.row("a")
    assert row is not None
    node = _plugin(scheduler).states.devices_of(row)
    assert node is not None
    assert set(node.use.holders) == {"own"}


def test_plain_pods_do_not_meet_the_plugin() -> None:
    log = _cluster("a")
    scheduler = Scheduler(log)
    scheduler.follow()
    assert not _plugin(scheduler).concerns(pod("plain", {"cpu": "1"}))
    assert _plugin(scheduler).concerns(asking("gpu", {RATIO: "10"}))


def test_a_summary_lists_devices_with_their_pods() -> None:
    log = _cluster("a")
    log.add_pod(asking("share", {RATIO: "30", CORE: "30"}))
    scheduler = Scheduler(log)
    scheduler.run()
    pages = _plugin(scheduler).pages()
    found: Any = pages["nodeDeviceSummaries/{name}"]({"name": "a"})
    assert found["used"]["gpu"][RATIO] == 30
    assert found["free"]["gpu"][RATIO] == 770
    assert found["pods"]["share"] == [
        {
            "type": "gpu",
            "minor": 0,
            "resources": {RATIO: 30, CORE: 30, "koordinator.sh/gpu-memory": 24 << 30},
            "virtualFunctions": [],
        }
    ]
    assert pages["nodeDeviceSummaries"]({}) == {"a": found}


def test_hints_prefer_the_numa_nodes_that_give_the_same_gpus() -> None:
    log = _cluster("a")
    log.add_pod(_foreign("others", [4]))
    scheduler = Scheduler(log)
    scheduler.run()
    subject = scheduler.state.cluster.pod_classes.read(asking("two", {"nvidia.com/gpu": "2"})).subject
    plugin, row = _plugin(scheduler), scheduler.state.nodes.row("a")
    assert row is not None
    assert plugin.topology_hints(subject.pod_class, row) == {
        "gpu": (Hint(1, preferred=True), Hint(2, preferred=True, score=500), Hint(3, preferred=False, score=500))
    }
    five = scheduler.state.cluster.pod_classes.read(asking("five", {"nvidia.com/gpu": "5"})).subject
    assert plugin.refused_within(five.pod_class, row, 1) == "Insufficient GPU Devices"
    assert plugin.refused_within(five.pod_class, row, 3) is None


def test_a_gang_is_tried_with_the_devices_that_each_member_would_take() -> None:
    log = _cluster("a", devices=[gpu(0), gpu(1)])
    scheduler = Scheduler(log)
    scheduler.follow()
    row = scheduler.state.nodes.row("a")
    assert row is not None
    shares = [asking(f"m{index}", {RATIO: "60"}) for index in range(3)]
    for each in shares:
        log.add_pod(each)
    scheduler.follow()
    offers = NodeOffers(scheduler.state, scheduler.state.pods["m0"], Restriction(), 0.0)
    assert offers.slots(["m0", "m1", "m2"]) == {"a": 2}
    devices = _plugin(scheduler).states.devices_of(row)
    assert devices is not None
    assert devices.use.holders == {}


def test_shares_wait_for_the_device_object_of_a_node_that_came_first() -> None:
    log = SmallLog()
    scheduler = Scheduler(log)
    for index in range(5):
        log.add_pod(asking(f"p{index}", {"koordinator.sh/gpu.shared": "1", CORE: "40", RATIO: "40"}))
    scheduler.run()
    stated = {CORE: "200", RATIO: "200", "koordinator.sh/gpu-memory": "160Gi"}
    log.add_node(node("a", cpu="100", memory="1Ti", more=stated))
    scheduler.run(now=100.0)
    assert not any(record.node for record in scheduler.state.pods.values())
    log.add_pod(asking("p5", {CORE: "40", RATIO: "40"}))
    scheduler.run(now=100.0)
    assert "missing Device object" in _refusal(scheduler, "p5").message
    _put(log, device("a", [gpu(0), gpu(1)]))
    scheduler.run(now=200.0)
    placed = [uid for uid, record in scheduler.state.pods.items() if record.node]
    assert len(placed) == 4
    assert all(_given(scheduler, uid) for uid in placed)
    assert violations(scheduler.state.assumed.ledgers.holders("a")) == []


def test_cores_gpus_and_rdma_devices_come_from_one_numa_node() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_node(node("a", cpu="16", memory="64Gi", more=MORE))
    _put(log, device("a", board()))
    log.add_pod(_foreign("others", [1]))
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    annotations = asking("x", {}, hints=VF_HINT, joint=joint).metadata.annotations
    wanted = lsr_pod("job", 4, policy="SingleNUMANode", more={"nvidia.com/gpu": "4", RDMA: "1"})
    log.add_pod(with_metadata(wanted, annotations=annotations))
    scheduler = Scheduler(log)
    scheduler.run()
    holders = scheduler.state.assumed.ledgers.holders("a")
    assert _minors(scheduler, "job") == [4, 5, 6, 7]
    assert _minors(scheduler, "job", "rdma") == [3, 4]
    assert [zone.zone for zone in holders["job"].allocation.zones] == [1]
    assert holders["job"].allocation.cpuset == "8-11"
    six = lsr_pod("six", 2, policy="SingleNUMANode", more={"nvidia.com/gpu": "2"})
    log.add_pod(six)
    scheduler.run()
    assert _minors(scheduler, "six") == [2, 3]


UNALIGNED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: NodeNUMAResource
      - name: DeviceShare
  pluginConfig:
  - name: DeviceShare
    args:
      disableDeviceNUMATopologyAlignment: true
"""


@pytest.mark.parametrize("is_aligned", [True, False])
def test_devices_may_lie_beside_another_numa_node_if_their_alignment_is_off(*, is_aligned: bool) -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_node(node("a", cpu="16", memory="64Gi", more=MORE))
    _put(log, device("a", board()))
    log.add_pod(lsr_pod("cores", 8, policy="SingleNUMANode"))
    scheduler = Scheduler(log, UNALIGNED.replace("true", "false") if is_aligned else UNALIGNED)
    scheduler.run()
    (busy,) = scheduler.state.assumed.ledgers.holders("a")["cores"].allocation.zones
    # the CPUs of one zone are taken, and the GPUs of the other zone
    log.add_pod(_foreign("gpus", [0, 1, 2, 3] if busy.zone == 1 else [4, 5, 6, 7]))
    log.add_pod(lsr_pod("job", 4, policy="SingleNUMANode", more={"nvidia.com/gpu": "2"}))
    scheduler.run()
    if is_aligned:
        assert not scheduler.state.pods["job"].node
        assert "NUMA" in _refusal(scheduler, "job").message
        return
    (zone,) = scheduler.state.assumed.ledgers.holders("a")["job"].allocation.zones
    assert zone.zone == 1 - busy.zone
    assert [minor // 4 for minor in _minors(scheduler, "job")] == [busy.zone] * 2


@pytest.mark.parametrize("minors", [[0, 1, 2], [0], [1, 1]])
@pytest.mark.parametrize("policy", ["Honor", "Prefer"])
def test_a_malformed_partition_table_gives_no_pod_another_number_of_gpus(minors: list[int], policy: str) -> None:
    log = _cluster("a")
    table = {"2": [{"minors": minors}, {"minors": [4, 5]}]}
    _put(log, device("a", board(), table=table, labels={keys.GPU_PARTITION_POLICY: policy}))
    log.add_pod(asking("p", {"nvidia.com/gpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert _minors(scheduler, "p") == [4, 5]
    assert any("2 different minors" in warning for warning in scheduler.state.cluster.warnings)
