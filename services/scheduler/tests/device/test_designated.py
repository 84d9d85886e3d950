"""A pod whose scheduling hint asks for it gets exactly the CPUs, zones and devices that its annotations name."""

import json
from typing import Any

import pytest
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import Allocation
from support.hardware import device_document, topology_document
from support.scheduler.devices import CORE, RATIO
from support.scheduler.numa import lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, with_metadata

MORE = {CORE: "400", RATIO: "400", "koordinator.sh/gpu-memory": "320Gi", "koordinator.sh/rdma": "200"}
SHARE = {CORE: "50", RATIO: "50"}
GPU_2 = {"gpu": [{"minor": 2, "resources": SHARE}]}


def world() -> tuple[SmallLog, Scheduler]:
    """One node of two zones with 4 cores of 2 CPUs, and 4 GPUs with two RDMA adapters."""
    log = SmallLog()
    for name in ("n1", "n2"):
        log.add_node(node(name, cpu="16", memory="128Gi", more=MORE))
        say = {"devices": device_document(name, gpus=4), "noderesourcetopologies": topology_document(name, cores=4)}
        for plural, document in say.items():
            put(log, plural, name, document)
    return log, Scheduler(log)


def put(log: SmallLog, plural: str, name: str, document: Any) -> None:
    from koordcore.events.objects import CustomObjectObserved, custom_ref

    ref = custom_ref(plural, "", name)
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def designating(pod: Pod, *, cpus: str = "", zones: Any = None, devices: Any = None, hint: Any = None) -> Pod:
    """The pod with what other annotations of an allocation name, asked for on node n1."""
    plugins: dict[str, Any] = {}
    annotations: dict[str, str] = {}
    if cpus or zones:
        plugins["NodeNUMAResource"] = {}
        annotations[keys.RESOURCE_STATUS] = json.dumps({"cpuset": cpus, "numaNodeResources": zones or []})
    if devices is not None:
        plugins["DeviceShare"] = {}
        annotations[keys.DEVICE_ALLOCATED] = json.dumps(devices)
    written = {"nodeNames": ["n1"], "extensions": plugins} if hint is None else hint
    return with_metadata(pod, annotations={**annotations, keys.SCHEDULING_HINT: json.dumps(written)})


def given(log: SmallLog, scheduler: Scheduler, pod: Pod) -> Allocation | str:
    """What the pod gets on n1, or why it gets nothing."""
    log.add_pod(pod)
    scheduler.run()
    holder = scheduler.state.assumed.ledgers.holders("n1").get(pod.metadata.uid)
    if holder is not None:
        return holder.allocation
    return " ".join(str(each.event) for each in scheduler.explanations if each.uid == pod.metadata.uid)


def test_a_pod_gets_the_cpus_and_devices_that_it_designates() -> None:
    log, scheduler = world()
    found = given(log, scheduler, designating(lsr_pod("p", 2, more=SHARE), cpus="4,12", devices=GPU_2))

    assert isinstance(found, Allocation), found
    assert found.cpuset == "4,12"
    assert [(each.type, each.minor, bool(each.id)) for each in found.devices] == [("gpu", 2, True)]


def test_a_hint_without_the_name_of_the_plugin_designates_nothing() -> None:
    log, scheduler = world()
    pod = designating(lsr_pod("p", 2, more=SHARE), cpus="4,12", devices=GPU_2, hint={"nodeNames": ["n1"]})
    found = given(log, scheduler, pod)

    assert isinstance(found, Allocation), found
    assert (found.cpuset, found.devices[0].minor) == ("0,8", 0), "what the scheduler itself prefers"


def test_a_zone_is_designated_under_a_topology_policy_and_the_device_must_lie_in_it() -> None:
    log, scheduler = world()
    zone = [{"node": 1, "resources": {"cpu": "2", "memory": "1Gi"}}]
    pod = lsr_pod("p", 2, memory="1Gi", policy="SingleNUMANode", more=SHARE)
    found = given(log, scheduler, designating(pod, cpus="6,14", zones=zone, devices=GPU_2))
    assert isinstance(found, Allocation), found
    assert (found.cpuset, [each.zone for each in found.zones], found.devices[0].minor) == ("6,14", [1], 2)

    other = lsr_pod("q", 2, memory="1Gi", policy="SingleNUMANode", more=SHARE)
    gpu_0 = {"gpu": [{"minor": 0, "resources": SHARE}]}
    refused = given(log, scheduler, designating(other, cpus="7,15", zones=zone, devices=gpu_0))
    assert "designated gpu 0 is not free" in str(refused)


@pytest.mark.parametrize(
    ("cpus", "devices", "reason"),
    [
        ("0,8", None, "designated CPUs 0,8 are not free"),
        ("0,9", None, "designated CPUs 0 are not free"),
        ("4", None, "designated CPUs 4: the pod binds 2 on the node"),
        ("4,6", None, "insufficient CPUs to satisfy required cpu bind policy FullPCPUs"),
        ("40,41", None, "designated CPUs 40-41 are not free"),
        ("4,12", {"gpu": [{"minor": 9, "resources": SHARE}]}, "designated gpu 9 is not on the node, or unhealthy"),
        (
            "4,12",
            {"gpu": [{"minor": 2, "resources": {CORE: "40", RATIO: "50"}}]},
            "have 40 of 50 koordinator.sh/gpu-core",
        ),
        ("4,12", {"gpu": [{"minor": 0, "resources": SHARE}]}, "designated gpu 0 is not free"),
        ("4-", None, keys.RESOURCE_STATUS),
    ],
)
def test_what_a_node_cannot_give_is_refused_with_the_reason(cpus: str, devices: Any, reason: str) -> None:
    log, scheduler = world()
    first = designating(
        lsr_pod("first", 2, more={CORE: "80", RATIO: "80"}),
        cpus="0,8",
        devices={"gpu": [{"minor": 0, "resources": {CORE: "80", RATIO: "80"}}]},
    )
    assert isinstance(given(log, scheduler, first), Allocation)
    more = {} if devices is None else SHARE
    pod = designating(lsr_pod("p", 2, required="FullPCPUs", more=more), cpus=cpus, devices=devices)

    assert reason in str(given(log, scheduler, pod))


def test_a_refused_pod_gets_what_it_designates_when_the_holder_leaves() -> None:
    log, scheduler = world()
    assert isinstance(given(log, scheduler, designating(lsr_pod("first", 2), cpus="4,12")), Allocation)
    assert "not free" in str(given(log, scheduler, designating(lsr_pod("p", 2), cpus="4,12")))

    log.remove_pod("first")
    scheduler.run(1_000.0)  # the pod is released
    scheduler.run(2_000.0)

    holder = scheduler.state.assumed.ledgers.holders("n1")["p"]
    assert holder.allocation.cpuset == "4,12"
