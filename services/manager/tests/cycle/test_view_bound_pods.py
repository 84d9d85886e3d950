"""Pods that others bound count on their node like ours, for as long as they live."""

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import WORKLOAD
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.protocol.objects import OwnerReference, Pod
from support.histories.actions import Action
from support.histories.history import history
from support.histories.objects import node, pod
from support.histories.recording import Recorder


def bound(number: int, where: str, phase: str = "Running") -> Pod:
    found = pod(number)
    found.spec.node_name = where
    found.status.phase = phase
    return found


def folded(log: Recorder) -> ManagerView:
    view = ManagerView()
    for stored in log.events:
        view.fold(stored)
    return view


def on(view: ManagerView, token: str) -> list[str]:
    return sorted(pod.metadata.name for pod, _ in view.pods_with_facts(token))


def test_a_pod_that_another_scheduler_bound_is_on_its_node_until_it_ends() -> None:
    log = Recorder()
    log.write("nodespec", "node-a", NodeSpecAdded(object=node("node-a")))
    log.write("podspec", "uid-1", PodSpecAdded(object=bound(1, "node-a")))
    log.write("podspec", "uid-2", PodSpecAdded(object=bound(2, "node-a")))
    assert on(folded(log), "node-a") == ["pod-1", "pod-2"]

    log.write("podspec", "uid-1", PodSpecChanged(object=bound(1, "node-a", "Succeeded")))
    log.write("podspec", "uid-2", PodSpecDeleted(namespace="default", name="pod-2"))
    assert on(folded(log), "node-a") == []


def test_a_view_from_a_snapshot_knows_the_same_pods() -> None:
    log = Recorder()
    log.write("podspec", "uid-1", PodSpecAdded(object=bound(1, "node-a")))
    view = folded(log)

    assert on(ManagerView(view.state), "node-a") == on(view, "node-a") == ["pod-1"]


def test_a_placed_pod_counts_once_when_it_is_bound() -> None:
    view = ManagerView()
    events = history([Action("add-node", 0, 1), Action("add-pod", 0, 1), Action("place", 0, 0)])
    for stored in events:
        view.fold(stored)

    assert on(view, "node-a") == ["pod-0"]


def test_a_pod_of_an_owner_that_is_no_workload_here_leaves_its_siblings_alone() -> None:
    log = Recorder()
    for number in (1, 2):
        replica = pod(number)
        replica.metadata.owner_references = [
            OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-1", controller=True)
        ]
        log.write("podspec", f"uid-{number}", PodSpecAdded(object=replica))
    log.write("podspec", "uid-1", PodSpecDeleted(namespace="default", name="pod-1"))

    assert folded(log).queue.take(WORKLOAD) == []
