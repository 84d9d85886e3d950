"""A node shows at least the batch and mid resources that its unfinished pods request, whatever was computed since."""

from typing import Any

import msgspec
import pytest
from koord_manager.domain.controllers.desired_state import desired_node
from koord_manager.domain.gateway.node_writes import pending_status, wanted_resources
from koord_manager.domain.gateway.pending_writes import NODE, PendingWrites
from koordcore.events.envelope import AggregateRef, BasedOn, Event
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.objects import NodeSpecChanged, PodSpecChanged, PodSpecDeleted
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.state.aggregates import PodSpecState
from support.manager.world import BEGIN, GIB, ManagerWorld

Json = dict[str, Any]
STRATEGY: Json = {"enable": True}


def computed(cpu: int | None, memory: int | None, *, mid: int | None = None) -> NodeOvercommitComputed:
    return NodeOvercommitComputed(
        batch_cpu_milli=cpu,
        batch_memory_bytes=memory,
        mid_cpu_milli=mid,
        mid_memory_bytes=mid,
        reason="changed",
        based_on=BasedOn(),
    )


def batch_pod(cpu: str = "2000", memory: str = "1Gi", *, node: str = "", phase: str = "Running") -> Json:
    asked = {BATCH_CPU: cpu, BATCH_MEMORY: memory}
    container = {"name": "main", "image": "pause", "resources": {"requests": asked, "limits": asked}}
    labels = {"koordinator.sh/qosClass": "BE"}
    spec = {"containers": [container], "nodeName": node, "priority": 5500}
    return {"metadata": {"labels": labels}, "spec": spec, "status": {"phase": phase}}


def world(*events: NodeOvercommitComputed) -> ManagerWorld:
    made = ManagerWorld()
    made.plain_node()
    for event in events:
        made.fact(AggregateRef("nodepolicy", "n"), event)
    return made


def shown(made: ManagerWorld) -> Json:
    """What the node shows after the pending write, without cpu and memory."""
    node = made.view.node("n")
    assert node is not None
    request = pending_status(made.view, "n")
    allocatable = dict(node.status.allocatable)
    if request is not None:
        body: Any = request.body
        for name, amount in body["status"]["allocatable"].items():
            allocatable.pop(name, None)
            if amount is not None:
                allocatable[name] = amount
        status = msgspec.structs.replace(node.status, capacity=dict(allocatable), allocatable=dict(allocatable))
        made.fact(AggregateRef("nodespec", "n"), NodeSpecChanged(object=msgspec.structs.replace(node, status=status)))
        assert pending_status(made.view, "n") is None, "the write is done"
    return {name: amount for name, amount in allocatable.items() if name not in ("cpu", "memory")}


def test_less_is_computed_than_running_pods_request() -> None:
    made = world(computed(6000, 8 * GIB))
    made.pod("a", batch_pod("3000", "2Gi"), on="n")
    made.pod("b", batch_pod("1000", "1Gi", node="n"))  # bound by another scheduler

    made.fact(AggregateRef("nodepolicy", "n"), computed(500, 8 * GIB))

    assert shown(made) == {BATCH_CPU: "4000", BATCH_MEMORY: str(8 * GIB)}


def test_withdrawn_resources_stay_as_long_as_pods_request_them() -> None:
    """`kubernetes.io/batch-cpu` is no extended resource for a kubelet, so it also refuses a pod if it is absent."""
    made = world(computed(6000, 8 * GIB, mid=1000))
    made.pod("a", batch_pod("3000", "2Gi"), on="n")
    assert shown(made)[MID_CPU] == "1000"

    made.fact(AggregateRef("nodepolicy", "n"), computed(None, None))
    assert shown(made) == {BATCH_CPU: "3000", BATCH_MEMORY: str(2 * GIB)}

    made.delete_pod("a")
    assert shown(made) == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_promised_nothing(phase: str) -> None:
    made = world(computed(6000, 8 * GIB))
    made.pod("a", batch_pod("3000", node="n", phase=phase))
    made.fact(AggregateRef("nodepolicy", "n"), computed(0, 0))
    assert shown(made) == {BATCH_CPU: "0", BATCH_MEMORY: "0"}


def test_sidecars_and_overhead_of_mid_pods_count() -> None:
    made = world(computed(1000, GIB, mid=4000))
    asked: Json = {"requests": {MID_CPU: "1000"}}
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {MID_CPU: "500"}}}
    containers = [{"name": "main", "resources": asked}]
    spec = {"containers": containers, "initContainers": [sidecar], "overhead": {MID_CPU: "250"}, "priority": 7500}
    made.pod("a", {"spec": spec}, on="n")

    made.fact(AggregateRef("nodepolicy", "n"), computed(1000, GIB, mid=100))

    assert (shown(made)[MID_CPU], shown(made)[MID_MEMORY]) == ("1750", "100")


def test_without_a_computed_amount_nothing_is_promised() -> None:
    made = ManagerWorld()
    made.plain_node()
    made.pod("a", batch_pod(), on="n")
    assert pending_status(made.view, "n") is None


def test_a_device_is_never_raised() -> None:
    policy = world(computed(1, 1)).view.policy("n")
    assert policy is not None
    assert "koordinator.sh/gpu" not in wanted_resources(policy, {"koordinator.sh/gpu": 100})


def test_the_agent_goes_on_with_the_computed_amounts() -> None:
    """Else eviction by allocatable would see every request satisfied."""
    made = world(computed(6000, 8 * GIB))
    made.configure(colocation=STRATEGY)
    made.pod("a", batch_pod("3000", "2Gi"), on="n")
    made.fact(AggregateRef("nodepolicy", "n"), computed(500, None))
    assert shown(made)[BATCH_CPU] == "3000"

    desired = desired_node(made.view, "n", made.inputs().colocation)

    assert desired is not None
    assert desired.allocatable.get(BATCH_CPU) == 500
    assert BATCH_MEMORY not in desired.allocatable


def noted(made: ManagerWorld, pending: PendingWrites, ref: AggregateRef, event: Event) -> list[str]:
    """Folds a fact; the nodes whose write it made pending."""
    made.fact(ref, event)
    pending.note(made.view, [(ref, event)])
    pending.queue.begin(BEGIN.timestamp())
    taken = pending.queue.take(NODE, 10)
    for key in taken:
        pending.queue.forget(NODE, key)
    return list(taken)


def test_the_end_of_a_pod_makes_the_lower_amount_pending() -> None:
    made = world(computed(6000, 8 * GIB))
    made.pod("ours", batch_pod("3000", "2Gi"), on="n")
    theirs = made.pod("theirs", batch_pod("1000", "1Gi", node="n"))
    prod = made.pod("prod", {"spec": {"nodeName": "n", "containers": [{"name": "main"}]}})
    made.fact(AggregateRef("nodepolicy", "n"), computed(100, 8 * GIB))
    assert shown(made)[BATCH_CPU] == "4000"
    pending = PendingWrites()
    pending.seed(made.view, BEGIN)
    pending.queue.begin(BEGIN.timestamp())
    pending.queue.take(NODE, 10)
    pending.queue.forget(NODE, "n")

    def spec_of(uid: str) -> AggregateRef:
        return AggregateRef("podspec", uid)

    prod_changed = PodSpecChanged(object=msgspec.structs.replace(prod))
    assert noted(made, pending, spec_of("prod"), prod_changed) == []
    gone = PodSpecDeleted(namespace="default", name=theirs.metadata.name)
    assert noted(made, pending, spec_of("theirs"), gone) == ["n"]
    assert shown(made)[BATCH_CPU] == "3000"

    ours = made.view.state.of_kind(PodSpecState)["ours"].object
    ended = msgspec.structs.replace(ours, status=msgspec.structs.replace(ours.status, phase="Succeeded"))
    assert noted(made, pending, spec_of("ours"), PodSpecChanged(object=ended)) == ["n"]
    assert shown(made)[BATCH_CPU] == "100"
    assert noted(made, pending, AggregateRef("node", "n"), NodeResourcesReturned(pods=["ours"])) == []
