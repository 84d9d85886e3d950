"""Pods of documents get what an API server would set in them, before admission and after it."""

import copy
import json
from typing import Any, cast

import msgspec
import pytest
from koord_manager.domain.controllers.standalone.workload_replicas import reconcile_workload
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded, custom_ref
from koordcore.protocol.manifests import shape_manifest
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservations import reservation_from_json, reserve_pod
from support.manager.applying import NOW, Cluster

Json = dict[str, Any]
HEAD = {"apiVersion": "v1", "kind": "Pod"}
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def container(resources: Json | None = None, **fields: Any) -> Json:
    return {"name": "main", "image": "nginx", "resources": resources or {}, **fields}


def pod(name: str, resources: Json | None = None, /, labels: Json | None = None, **spec: Any) -> str:
    metadata = {"name": name, "labels": labels or {}}
    spec = {"containers": [container(resources)], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def priority_class(name: str, value: int, *, default: bool) -> str:
    named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return json.dumps({**named, "value": value, "globalDefault": default, "preemptionPolicy": "Never"})


def reservation(resources: Json) -> str:
    spec = {"template": {"spec": {"containers": [container(resources)]}}, "owners": [{"object": {"name": "web"}}]}
    named = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"}}
    return json.dumps({**named, "spec": {**spec, "ttl": "1h"}})


def store_without_defaults(cluster: Cluster, written: str) -> None:
    """Store a pod as earlier versions did."""
    old = cast("Pod", shape_manifest(json.loads(written)).object)
    old.metadata.namespace, old.metadata.uid, old.metadata.creation_timestamp = "default", "earlier", NOW
    old.spec.scheduler_name, old.status.phase = "koord-scheduler", "Pending"
    cluster.fold([Draft(AggregateRef("podspec", "earlier"), PodSpecAdded(object=old), 0)])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_pod_requests_what_it_limits_and_is_unchanged_when_it_is_applied_again(cluster: Cluster) -> None:
    written = pod("web", {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 1}})

    assert cluster.apply(written) == "created"
    assert pod_requests(cluster.pod("web")) == {"cpu": 2000, "memory": 1 << 30, "nvidia.com/gpu": 1}
    assert cluster.pod("web").status.qos_class == "Guaranteed"
    assert cluster.apply(written) == "unchanged"
    assert "spec.containers[main].resources" in cluster.refusal(written.replace('"2"', '"3"'))


@pytest.mark.parametrize(
    "written",
    [
        pod("web", GPU),
        pod("web", initContainers=[container(GPU) | {"name": "init"}]),
        pod("web", {"requests": {"cpu": "1"}}, resources={"limits": {"cpu": "2"}}),
        pod("web", containers=[container(ports=[{"containerPort": 80}])], hostNetwork=True),
    ],
)
def test_a_pod_that_was_stored_without_defaults_stays_so(cluster: Cluster, written: str) -> None:
    store_without_defaults(cluster, written)
    before = msgspec.json.encode(cluster.pod("web").spec)

    assert cluster.apply(written) == "unchanged"
    assert cluster.apply(json.dumps(msgspec.to_builtins(cluster.pod("web")) | HEAD)) == "unchanged"
    assert cluster.apply(written.replace('"nginx"', '"nginx:2"')) == "configured"
    assert msgspec.json.encode(cluster.pod("web").spec) == before.replace(b'"nginx"', b'"nginx:2"')


def test_the_limits_of_a_pod_that_was_stored_without_defaults_do_not_change(cluster: Cluster) -> None:
    store_without_defaults(cluster, pod("web", GPU))

    assert "spec.containers[main].resources" in cluster.refusal(pod("web", {"limits": {"nvidia.com/gpu": "2"}}))


def test_pods_of_a_workload_request_what_its_template_limits(cluster: Cluster) -> None:
    document = json.loads(pod("web", GPU))
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    cluster.apply(json.dumps({**deployment, "spec": {"replicas": 1, "template": {"spec": document["spec"]}}}))
    (uid,) = cluster.workloads()
    steps = reconcile_workload(cluster.view, uid, now=NOW, limit=1)

    created = steps[0][0].event
    assert isinstance(created, PodSpecAdded)
    assert pod_requests(created.object) == {"nvidia.com/gpu": 1}


def test_pods_of_a_workload_have_its_spread_constraints_also_with_values_that_are_defaults(cluster: Cluster) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    document = json.loads(pod("web", topologySpreadConstraints=[spread]))
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    written = json.dumps({**deployment, "spec": {"replicas": 1, "template": {"spec": document["spec"]}}})

    assert cluster.apply(written) == "created"
    (uid,) = cluster.workloads()
    [[created, *_]] = reconcile_workload(cluster.view, uid, now=NOW, limit=1)
    assert isinstance(created.event, PodSpecAdded)
    [constraint] = created.event.object.spec.topology_spread_constraints
    assert (constraint.max_skew, constraint.when_unsatisfiable) == (1, "DoNotSchedule")
    cluster.fold([created])
    assert cluster.apply(json.dumps({**HEAD, **msgspec.to_builtins(created.event.object)})) == "unchanged"


def test_admission_sees_the_requests_that_follow_from_limits(cluster: Cluster) -> None:
    lsr = {"koordinator.sh/qosClass": "LSR"}
    batch = {"limits": {"kubernetes.io/batch-cpu": "1k"}}
    cluster.apply(priority_class("koord-prod", 9000, default=False))

    assert cluster.apply(pod("web", {"limits": {"cpu": "2"}}, lsr, priorityClassName="koord-prod")) == "created"
    assert "batch-needs-be" in cluster.refusal(pod("batch", batch))


def test_what_admission_limits_is_requested_too(cluster: Cluster) -> None:
    patch = {"spec": {"containers": [container(GPU)]}}
    profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "patch": patch}
    cluster.apply(json.dumps({**profile, "metadata": {"name": "p"}, "spec": spec}))
    cluster.apply(pod("web", labels={"app": "web"}))

    assert pod_requests(cluster.pod("web")) == {"nvidia.com/gpu": 1}


def test_a_reservation_reserves_what_its_template_limits(cluster: Cluster) -> None:
    def reserved() -> dict[str, int]:
        return pod_requests(reserve_pod(reservation_from_json(cluster.custom("reservations", "r"))))

    assert cluster.apply(reservation(GPU)) == "created"
    assert reserved() == {"nvidia.com/gpu": 1}
    assert cluster.apply(reservation(GPU)) == "unchanged"
    assert cluster.apply(reservation({"limits": {"nvidia.com/gpu": "2", "cpu": "1"}})) == "configured"
    assert reserved() == {"nvidia.com/gpu": 2, "cpu": 1000}


def test_a_reservation_that_was_stored_without_defaults_stays_so_until_its_template_changes(cluster: Cluster) -> None:
    cluster.apply(reservation(GPU))
    earlier = copy.deepcopy(cluster.custom("reservations", "r"))
    del earlier["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    cluster.fold([Draft(custom_ref("reservations", "", "r"), CustomObjectObserved(object=earlier), 1)])

    assert cluster.apply(reservation(GPU)) == "unchanged"
    assert cluster.apply(reservation(GPU).replace('"1h"', '"2h"')) == "configured"
    assert cluster.custom("reservations", "r")["spec"]["template"] == earlier["spec"]["template"]
    assert cluster.apply(reservation({"limits": {"nvidia.com/gpu": "2"}})) == "configured"
    assert pod_requests(reserve_pod(reservation_from_json(cluster.custom("reservations", "r")))) == {
        "nvidia.com/gpu": 2
    }


def test_the_template_of_a_migration_gets_the_defaults(cluster: Cluster) -> None:
    named = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": {"name": "j"}}
    template = json.loads(reservation(GPU))
    spec = {"podRef": {"namespace": "default", "name": "web"}, "reservationOptions": {"template": template}}
    cluster.apply(json.dumps({**named, "spec": spec}))

    stored = cluster.custom("podmigrationjobs", "j")["spec"]["reservationOptions"]["template"]
    assert pod_requests(reserve_pod(reservation_from_json(stored))) == {"nvidia.com/gpu": 1}


def test_a_pod_on_the_network_of_the_host_takes_ports_of_the_host(cluster: Cluster) -> None:
    cluster.apply(pod("web", containers=[container(ports=[{"containerPort": 80}])], hostNetwork=True))

    assert cluster.pod("web").spec.containers[0].ports[0].host_port == 80


def test_a_pod_without_a_class_has_the_default_class(cluster: Cluster) -> None:
    cluster.apply(pod("early"))
    cluster.apply(priority_class("standard", 100, default=True))
    cluster.apply(pod("late"))

    late = cluster.pod("late").spec
    assert (late.priority_class_name, late.priority, late.preemption_policy) == ("standard", 100, "Never")
    assert cluster.pod("early").spec.priority is None
    assert (cluster.apply(pod("early")), cluster.apply(pod("late"))) == ("unchanged", "unchanged")
    assert cluster.refusal(pod("other", priority=5)).startswith("spec.priority: must be absent or 100")


def test_a_pod_keeps_the_class_that_was_the_default_when_it_was_created(cluster: Cluster) -> None:
    cluster.apply(priority_class("standard", 100, default=True))
    cluster.apply(pod("web"))
    cluster.apply(priority_class("standard", 100, default=False))
    cluster.apply(priority_class("better", 200, default=True))

    assert cluster.apply(pod("web", labels={"tier": "front"})) == "configured"
    assert cluster.pod("web").spec.priority == 100
    assert "spec.priorityClassName: must be unchanged" in cluster.refusal(pod("web", priorityClassName="better"))


def test_a_namespace_has_its_name_as_a_label(cluster: Cluster) -> None:
    written = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"a": "b"}}})

    assert (cluster.apply(written), cluster.apply(written)) == ("created", "unchanged")
    labels = cluster.view.admission.namespace_labels("team")
    assert labels == {"a": "b", "kubernetes.io/metadata.name": "team"}


def test_a_cluster_has_one_default_class(cluster: Cluster) -> None:
    cluster.apply(priority_class("standard", 100, default=True))
    cluster.apply(priority_class("other", 200, default=False))

    assert cluster.refusal(priority_class("other", 200, default=True)).startswith("globalDefault: must be false")
    assert cluster.apply(priority_class("standard", 100, default=True)) == "unchanged"
