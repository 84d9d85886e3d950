"""What applying and deleting a document decides."""

import json
from typing import Any

import msgspec
import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.standalone.workload_replicas import reconcile_workload
from koord_manager.domain.documents.admitting import pod_document
from koord_manager.domain.documents.apply import Target, decide_delete
from koordcore.events.envelope import AggregateRef, BasedOn, Draft
from koordcore.events.objects import ConfigRejected, NodeSpecAdded, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState
from support.histories.objects import node, pod
from support.histories.recording import Recorder, stored
from support.manager.applying import NOW, Cluster

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "a secret copy"}
spec:
  priorityClassName: koord-prod
  containers:
  - name: main
    image: nginx
    env: [{name: PASSWORD, value: secret}]
    resources: {requests: {cpu: 500m, memory: 1Gi}}
"""
PRIORITY = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: koord-prod}
value: 9000
"""


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.apply(PRIORITY)
    return cluster


def test_a_new_pod_enters_the_log_admitted_and_without_secrets(cluster: Cluster) -> None:
    assert cluster.apply(POD) == "created"

    event = cluster.last[0].event
    assert isinstance(event, PodSpecAdded)
    assert event.object.spec.priority == 9000
    assert event.object.status.qos_class == "Burstable"
    assert event.object.metadata.namespace == "default"
    sealed = stored(99, cluster.last[0])
    assert b"secret" not in sealed.body


def test_applying_the_same_again_changes_nothing(cluster: Cluster) -> None:
    cluster.apply(POD)

    assert cluster.apply(POD) == "unchanged"
    assert cluster.last == []


def test_a_changed_label_is_a_change_and_a_changed_request_is_refused(cluster: Cluster) -> None:
    cluster.apply(POD)

    assert cluster.apply(POD.replace("name: web", "name: web\n  labels: {tier: front}")) == "configured"
    assert isinstance(cluster.last[0].event, PodSpecChanged)
    assert "spec.containers[main].resources.requests.cpu: must" in cluster.refusal(POD.replace("500m", "600m"))


def test_gates_are_removed_one_by_one_and_the_pod_becomes_stricter_meanwhile(cluster: Cluster) -> None:
    def gated(*names: str, **spec: Any) -> str:
        containers = [{"name": "main", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}]
        gates = [{"name": name} for name in names]
        spec = {"containers": containers, "schedulingGates": gates, **spec}
        return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": spec})

    cluster.apply(gated("kueue.x-k8s.io/admission", "quota"))
    assert cluster.apply(gated("quota", nodeSelector={"zone": "a"})) == "configured"
    assert "spec.schedulingGates: must be some of" in cluster.refusal(gated("quota", "new", nodeSelector={"zone": "a"}))
    assert cluster.apply(gated(nodeSelector={"zone": "a"})) == "configured"
    assert cluster.pod("gated").spec.scheduling_gates == []
    assert "spec.nodeSelector.disk: must be" in cluster.refusal(gated(nodeSelector={"zone": "a", "disk": "ssd"}))


def shown(cluster: Cluster, node: str) -> dict[str, Any]:
    """The pod as `koord get` shows it once it is placed."""
    found = cluster.view.pod("default", "web")
    assert found is not None
    uid, state = found
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn())
    placed = PodPlaced(
        namespace="default", name="web", node=node, attempt=1, queued_at="", requests={}, explanation=explanation
    )
    cluster.fold([Draft(AggregateRef("pod", uid), placed, 0)])
    document = pod_document(state.object)
    return {**document, "spec": {**document["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def test_a_placed_pod_is_unchanged_when_it_is_applied_as_it_is_shown(cluster: Cluster) -> None:
    cluster.apply(POD)
    document = shown(cluster, "node-a")

    assert cluster.apply(json.dumps(document)) == "unchanged"
    assert cluster.apply(POD) == "unchanged"
    document["metadata"]["labels"] = {"tier": "front"}
    assert cluster.apply(json.dumps(document)) == "configured"
    event = cluster.last[0].event
    assert isinstance(event, PodSpecChanged)
    assert event.object.spec.node_name == ""
    assert cluster.apply(json.dumps(document)) == "unchanged"
    document["spec"]["nodeName"] = "node-b"
    assert cluster.refusal(json.dumps(document)).startswith("spec.nodeName: must be unchanged ('node-a')")


def test_a_pod_that_admission_changed_is_unchanged_when_it_is_applied_as_it_is_shown(cluster: Cluster) -> None:
    cluster.apply(
        "{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: p}, "
        "spec: {selector: {matchLabels: {app: web}}, labelSuffixes: {app: '-0'}}}"
    )
    written = POD.replace("name: web", "name: web\n  labels: {app: web}")
    cluster.apply(written)
    document = shown(cluster, "node-a")

    assert document["metadata"]["labels"] == {"app": "web-0"}
    assert cluster.apply(json.dumps(document)) == "unchanged"
    document["metadata"]["labels"]["tier"] = "front"
    assert cluster.apply(json.dumps(document)) == "configured"
    assert cluster.apply(json.dumps(document)) == "unchanged"
    assert cluster.apply(written) == "configured"
    found = cluster.view.pod("default", "web")
    assert found is not None
    assert found[1].object.metadata.labels == {"app": "web-0"}


def test_an_unknown_priority_class_is_refused_with_its_name(cluster: Cluster) -> None:
    text = cluster.refusal(POD.replace("koord-prod", "gold"))

    assert text == "spec.priorityClassName: must be the name of an existing PriorityClass, got 'gold'"


def test_batch_resources_need_qos_best_effort(cluster: Cluster) -> None:
    batch = POD.replace("cpu: 500m, memory: 1Gi", "kubernetes.io/batch-cpu: 500")

    assert "batch-needs-be" in cluster.refusal(batch)


def test_a_bad_slo_config_is_recorded_as_rejected_and_the_good_one_stays(cluster: Cluster) -> None:
    config = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true}'
"""
    assert cluster.apply(config) == "created"
    assert cluster.apply(config.replace("true", '"yes"')) == "rejected"

    event = cluster.last[0].event
    assert isinstance(event, ConfigRejected)
    assert "enable" in event.reasons["colocation-config"]
    state = cluster.view.config("koordinator-system", "slo-controller-config")
    assert state is not None
    assert state.object is not None
    assert state.object.data["colocation-config"] == '{"enable": true}'


def test_a_node_manifest_without_status_keeps_what_the_node_reported(cluster: Cluster) -> None:
    full = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: 4, memory: 8Gi}}}"
    cluster.apply(full)

    assert (
        cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {unschedulable: true}}") == "configured"
    )
    seen = cluster.view.node("n1")
    assert seen is not None
    assert seen.spec.unschedulable
    assert seen.status.allocatable == {"cpu": 4, "memory": "8Gi"}


def test_deleting_names_what_exists_and_nothing_else(cluster: Cluster) -> None:
    cluster.apply(POD)

    drafts = decide_delete(cluster.view, Target("Pod", "default", "web"))
    assert drafts is not None
    assert drafts[0].event == PodSpecDeleted(namespace="default", name="web")
    assert decide_delete(cluster.view, Target("Pod", "other", "web")) is None


def test_of_two_pods_with_one_name_none_stays(cluster: Cluster) -> None:
    """A manager that was paused may create a pod long after its successor has created it for the repeated request."""
    cluster.apply(POD)
    (first,) = cluster.view.all_named("Pod", "default", "web")
    late = msgspec.structs.replace(cluster.view.state.of_kind(PodSpecState)[first].object)
    cluster.fold([Draft(AggregateRef("podspec", "late"), PodSpecAdded(object=late), 0)])

    drafts = decide_delete(cluster.view, Target("Pod", "default", "web"))
    assert drafts is not None
    assert {draft.ref.id for draft in drafts} == {first, "late"}
    cluster.fold(drafts[:1])
    assert cluster.view.pod("default", "web") is not None
    cluster.fold(decide_delete(cluster.view, Target("Pod", "default", "web")) or [])
    assert cluster.view.pod("default", "web") is None


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx, resources: {requests: {cpu: 1}}}]}
"""


def names(cluster: Cluster) -> set[str]:
    return {spec.object.metadata.name for spec in cluster.view.state.of_kind(PodSpecState).values()}


def reconcile(cluster: Cluster) -> int:
    uids = cluster.workloads()
    groups = [group for uid in uids for group in reconcile_workload(cluster.view, uid, now=NOW, limit=100)]
    cluster.fold([draft for group in groups for draft in group])
    return sum(draft.ref.kind == "podspec" for group in groups for draft in group)


def test_a_deployment_gets_its_pods_replaces_lost_ones_and_follows_its_number(cluster: Cluster) -> None:
    cluster.apply(DEPLOYMENT)
    assert reconcile(cluster) == 3
    assert reconcile(cluster) == 0
    first = names(cluster)

    lost = min(first)
    cluster.fold(decide_delete(cluster.view, Target("Pod", "default", lost)) or [])
    assert reconcile(cluster) == 1
    assert names(cluster) == first

    cluster.apply(DEPLOYMENT.replace("replicas: 3", "replicas: 1"))
    assert reconcile(cluster) == 2
    assert len(names(cluster)) == 1

    cluster.fold(decide_delete(cluster.view, Target("Deployment", "default", "web")) or [])
    assert reconcile(cluster) == 1
    assert names(cluster) == set()


def test_pods_of_a_deleted_workload_go_also_after_a_restart_from_a_snapshot(cluster: Cluster) -> None:
    cluster.apply(DEPLOYMENT)
    reconcile(cluster)
    owner = "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: j, controller: true}]"
    cluster.apply(POD.replace("  name: web", f"  name: j-x7k2p\n  {owner}"))
    cluster.fold(decide_delete(cluster.view, Target("Deployment", "default", "web")) or [])

    cluster.view = ManagerView(ClusterState.restore(b"".join(cluster.view.state.snapshot())))
    assert reconcile(cluster) == 3
    assert names(cluster) == {"j-x7k2p"}


def test_two_leaders_that_see_the_same_workload_give_its_pods_the_same_uids(cluster: Cluster) -> None:
    cluster.apply(DEPLOYMENT)
    (uid,) = cluster.workloads()
    (early,) = reconcile_workload(cluster.view, uid, now=NOW, limit=100)
    cluster.apply(POD.replace("name: web", "name: other"))
    (late,) = reconcile_workload(cluster.view, uid, now=NOW, limit=100)

    assert [draft.ref for draft in early] == [draft.ref for draft in late]
    assert early[-1].expected_last == late[-1].expected_last  # the log takes one of them


def test_a_pod_that_comes_again_under_its_name_has_a_new_uid(cluster: Cluster) -> None:
    cluster.apply(DEPLOYMENT)
    reconcile(cluster)
    first = set(cluster.view.state.of_kind(PodSpecState))

    for name in names(cluster):
        cluster.fold(decide_delete(cluster.view, Target("Pod", "default", name)) or [])
    reconcile(cluster)

    assert not first & set(cluster.view.state.of_kind(PodSpecState))


def test_a_changed_template_replaces_a_deployments_pods(cluster: Cluster) -> None:
    cluster.apply(DEPLOYMENT)
    reconcile(cluster)
    before = names(cluster)

    cluster.apply(DEPLOYMENT.replace("cpu: 1", "cpu: 2"))
    reconcile(cluster)

    assert len(names(cluster)) == 3
    assert not names(cluster) & before


def test_a_template_that_no_pod_could_pass_is_refused_at_once(cluster: Cluster) -> None:
    text = cluster.refusal(DEPLOYMENT.replace("spec: {containers", "spec: {priorityClassName: gold, containers"))

    assert text.startswith("spec.template.spec.priorityClassName: must be")


def test_a_view_restored_from_a_snapshot_finds_the_same_objects() -> None:
    log = Recorder()
    log.write("nodespec", "node-a", NodeSpecAdded(object=node("node-a")))
    log.write("podspec", "uid-1", PodSpecAdded(object=pod(1)))

    view = ManagerView(log.state)

    assert view.pod("default", "pod-1") is not None
    assert view.nodes() == ["node-a"]


def test_nulls_in_a_pod_count_as_absent(cluster: Cluster) -> None:
    text = POD.replace("annotations: {", "annotations: {gone: null, ").replace(
        "name: web", "name: nulls\n  labels: null"
    )

    assert cluster.apply(text) == "created"
    assert cluster.apply(text) == "unchanged"
