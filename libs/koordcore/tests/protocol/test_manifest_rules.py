"""What an API server refuses is refused, with its field."""

import copy
from typing import Any

import pytest
from koordcore.protocol.manifests import InvalidManifest, read_manifest

Json = dict[str, Any]
SPREAD: Json = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
}
TERM: Json = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def refused(document: Json) -> list[str]:
    before = copy.deepcopy(document)
    try:
        read_manifest(document)
    except InvalidManifest as error:
        assert document == before
        return [violation.path for violation in error.violations]
    return []


def pod(**spec: Any) -> Json:
    containers = [{"name": "main", "image": "nginx"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def container(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "nginx", **fields}


def spread(**fields: Any) -> Json:
    return pod(topologySpreadConstraints=[{**SPREAD, **fields}])


def near(**fields: Any) -> Json:
    return pod(affinity={"podAffinity": {REQUIRED: [{**TERM, **fields}]}})


def on_nodes(*requirements: Json) -> Json:
    terms = [{"matchExpressions": list(requirements)}]
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def resources(requests: Json | None = None, limits: Json | None = None) -> Json:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


def labelled(document: Json) -> Json:
    document["metadata"]["labels"] = {"app": "a"}
    return document


def on_node(name: str) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def mounts(*mounted: Json) -> Json:
    return pod(containers=[container(volumeMounts=list(mounted))], volumes=[{"name": "a", "emptyDir": {}}])


def ports(*names: str) -> Json:
    listed = [{"containerPort": 80 + number, "name": name} for number, name in enumerate(names)]
    return pod(containers=[container(ports=listed)])


def owned(*kinds: str) -> Json:
    owners = [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": kind, "controller": True} for kind in kinds]
    document = pod()
    document["metadata"]["ownerReferences"] = owners
    return document


FIRST = "spec.containers[0]"
SPREADS = "spec.topologySpreadConstraints[0]"
NEAR = f"spec.affinity.podAffinity.{REQUIRED}[0]"
NODES = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
FIELDS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0]"
GATES = [{"name": "a"}]
CASES: list[tuple[Json, list[str]]] = [
    (spread(), []),
    (spread(maxSkew=0), [f"{SPREADS}.maxSkew"]),
    (spread(topologyKey=""), [f"{SPREADS}.topologyKey"]),
    (spread(topologyKey="a b"), [f"{SPREADS}.topologyKey"]),
    (spread(whenUnsatisfiable="Never"), [f"{SPREADS}.whenUnsatisfiable"]),
    (spread(minDomains=2), []),
    (spread(minDomains=0), [f"{SPREADS}.minDomains"]),
    (spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), [f"{SPREADS}.minDomains"]),
    (spread(nodeTaintsPolicy="Honor", nodeAffinityPolicy="Ignore"), []),
    (spread(nodeTaintsPolicy="honor"), [f"{SPREADS}.nodeTaintsPolicy"]),
    (spread(matchLabelKeys=["pod-template-hash"]), []),
    (spread(matchLabelKeys=["app"]), []),
    (labelled(spread(matchLabelKeys=["app"])), [f"{SPREADS}.matchLabelKeys"]),
    (labelled(near(matchLabelKeys=["app"])), [f"{NEAR}.matchLabelKeys"]),
    (labelled(near(mismatchLabelKeys=["app"])), []),
    (spread(maxSkew=None, whenUnsatisfiable=None), []),
    (spread(matchLabelKeys=["a b"]), [f"{SPREADS}.matchLabelKeys[0]"]),
    (spread(matchLabelKeys=["x"], labelSelector=None), [f"{SPREADS}.matchLabelKeys"]),
    (spread(labelSelector={"matchLabels": {"a b": "c"}}), [f"{SPREADS}.labelSelector.matchLabels[a b]"]),
    (pod(topologySpreadConstraints=[SPREAD, {**SPREAD, "maxSkew": 2}]), ["spec.topologySpreadConstraints[1]"]),
    (pod(topologySpreadConstraints=[SPREAD, {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]), []),
    (near(), []),
    (near(topologyKey=""), [f"{NEAR}.topologyKey"]),
    (near(namespaces=["A"]), [f"{NEAR}.namespaces[0]"]),
    (near(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "~"}]}), [f"{NEAR}.namespaceSelector"]),
    (near(labelSelector=None), []),
    (near(labelSelector=None, mismatchLabelKeys=["x"]), [f"{NEAR}.mismatchLabelKeys"]),
    (near(matchLabelKeys=["x"], mismatchLabelKeys=["x"]), [f"{NEAR}.matchLabelKeys"]),
    (
        pod(affinity={"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": TERM}]}}),
        [f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight"],
    ),
    (on_nodes({"key": "zone", "operator": "In", "values": ["a"]}), []),
    (on_nodes({"key": "zone", "operator": "In", "values": ["a b"]}), [f"{NODES}.values[0]"]),
    (on_nodes({"key": "zone", "operator": "Gt", "values": ["-1"]}), [f"{NODES}.values[0]"]),
    (on_node("n0"), []),
    (on_node("N_0"), [f"{FIELDS}.values[0]"]),
    (on_nodes({"key": "zone", "operator": "Is"}), [f"{NODES}.operator"]),
    (pod(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]), []),
    (pod(tolerations=[{"operator": "Exists", "tolerationSeconds": 5}]), ["spec.tolerations[0].effect"]),
    (pod(tolerations=[{"key": "a", "value": "b c"}]), ["spec.tolerations[0].value"]),
    (pod(schedulingGates=GATES), []),
    (pod(schedulingGates=GATES, nodeName="n"), ["spec.nodeName"]),
    (pod(schedulingGates=GATES * 2), ["spec.schedulingGates[1].name"]),
    (pod(schedulingGates=[{"name": "a b"}]), ["spec.schedulingGates[0].name"]),
    (pod(containers=[container(ports=[{"containerPort": 80, "hostPort": 81}])]), []),
    (
        pod(containers=[container(ports=[{"containerPort": 80, "hostPort": 81}])], hostNetwork=True),
        ["spec.containers[0].ports[0].hostPort"],
    ),
    (
        pod(initContainers=[container("i", ports=[{"containerPort": 80, "hostPort": 81}])], hostNetwork=True),
        ["spec.initContainers[0].ports[0].hostPort"],
    ),
    (
        pod(containers=[container(name, ports=[{"containerPort": 80, "hostPort": 81}]) for name in "ab"]),
        ["spec.containers[1].ports[0].hostPort"],
    ),
    (pod(initContainers=[container(name, ports=[{"containerPort": 80, "hostPort": 81}]) for name in "ab"]), []),
    (
        pod(containers=[container(ports=[{"containerPort": 80, "hostIP": "localhost"}])]),
        ["spec.containers[0].ports[0].hostIP"],
    ),
    (pod(containers=[container(restartPolicy="OnFailure")]), []),
    (pod(containers=[container(restartPolicy="Sometimes")]), ["spec.containers[0].restartPolicy"]),
    (
        pod(containers=[container(**resources({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}))]),
        ["spec.containers[0].resources"],
    ),
    (
        pod(containers=[container(**resources({"cpu": 1, "hugepages-2Mi": "3Mi"}, {"hugepages-2Mi": "3Mi"}))]),
        ["spec.containers[0].resources.requests[hugepages-2Mi]", "spec.containers[0].resources.limits[hugepages-2Mi]"],
    ),
    (pod(**resources({"cpu": "1"}, {"cpu": "2"})), []),
    (pod(**resources({"cpu": "2"}, {"cpu": "1"})), ["spec.resources.requests[cpu]"]),
    (pod(**resources({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})), ["spec.resources"]),
    (
        pod(containers=[container(**resources({"cpu": "2"}))], **resources({"cpu": "1"})),
        ["spec.resources.requests[cpu]"],
    ),
    (
        pod(containers=[container(**resources({"cpu": "x"}))], **resources({"cpu": "1"})),
        ["spec.containers[0].resources.requests[cpu]"],
    ),
    (
        pod(containers=[container(**resources({}, {"cpu": "2"}))], **resources({}, {"cpu": "1"})),
        ["spec.containers[0].resources.limits[cpu]"],
    ),
    (pod(volumes=[{"name": "a", "emptyDir": {}}, {"name": "a"}]), ["spec.volumes[1].name"]),
    (pod(volumes=[{"name": "A"}]), ["spec.volumes[0].name"]),
    (pod(volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]), ["spec.volumes[0]"]),
    (
        pod(volumes=[{"name": "a", "persistentVolumeClaim": {}}]),
        ["spec.volumes[0].persistentVolumeClaim.claimName"],
    ),
    (pod(restartPolicy="Never"), []),
    (pod(restartPolicy="Sometimes"), ["spec.restartPolicy"]),
    (pod(activeDeadlineSeconds=1), []),
    (pod(activeDeadlineSeconds=0), ["spec.activeDeadlineSeconds"]),
    (mounts({"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/b"}), []),
    (mounts({"name": "b", "mountPath": "/a"}), [f"{FIRST}.volumeMounts[0].name"]),
    (mounts(*[{"name": "a", "mountPath": "/a"}] * 2), [f"{FIRST}.volumeMounts[1].mountPath"]),
    (mounts({"name": "a"}), [f"{FIRST}.volumeMounts[0].mountPath"]),
    (mounts({"name": "a", "mountPath": ["/a"]}), [f"{FIRST}.volumeMounts[0].mountPath"]),
    (mounts({"name": ["a"], "mountPath": "/a"}), [f"{FIRST}.volumeMounts[0].name"]),
    (ports("web", "a-1", "x" * 15), []),
    *((ports(name), [f"{FIRST}.ports[0].name"]) for name in ("WEB", "80", "x" * 16, "a--b", "-a")),
    (ports("a", "a"), [f"{FIRST}.ports[1].name"]),
    (pod(containers=[container(**resources({"storage": 1}))]), [f"{FIRST}.resources.requests"]),
    (pod(overhead={"pods": 1}), ["spec.overhead"]),
    (
        pod(containers=[container(**resources({}, {"requests.example.com/gpu": 1}))]),
        [f"{FIRST}.resources.limits"],
    ),
    (owned("ReplicaSet"), []),
    (owned("ReplicaSet", "StatefulSet"), ["metadata.ownerReferences"]),
    (pod(resourceClaims=[{"name": "gpu"}, {"name": "gpu"}]), ["spec.resourceClaims[1].name"]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "fields"), CASES)
def test_a_pod_that_an_api_server_refuses_is_refused(document: Json, fields: list[str]) -> None:
    found = refused(document)

    assert len(found) == len(fields), found
    assert all(path.startswith(field) for path, field in zip(found, fields, strict=True)), found


def budget(**spec: Any) -> Json:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"minAvailable": 1}, []),
        ({"minAvailable": 0}, []),
        ({"maxUnavailable": "100%"}, []),
        ({"selector": {}}, []),
        ({"minAvailable": -1}, ["spec.minAvailable"]),
        ({"minAvailable": "half"}, ["spec.minAvailable"]),
        ({"maxUnavailable": "101%"}, ["spec.maxUnavailable"]),
        ({"maxUnavailable": "-1%"}, ["spec.maxUnavailable"]),
        ({"maxUnavailable": "3"}, ["spec.maxUnavailable"]),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec.maxUnavailable"]),
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, []),
        ({"unhealthyPodEvictionPolicy": "Always"}, ["spec.unhealthyPodEvictionPolicy"]),
        ({"selector": {"matchLabels": {"a b": "c"}}}, ["spec.selector.matchLabels[a b].key"]),
    ],
)
def test_a_budget_has_one_valid_bound(spec: Json, fields: list[str]) -> None:
    assert refused(budget(**spec)) == fields


@pytest.mark.parametrize(
    ("name", "value", "fields"),
    [
        ("mine", 1_000_000_000, []),
        ("mine", 1_000_000_001, ["value"]),
        ("system-node-critical", 2_000_001_000, []),
        ("system-node-critical", 5, ["metadata.name"]),
        ("system-mine", 5, ["metadata.name"]),
    ],
)
def test_names_of_the_system_are_reserved(name: str, value: int, fields: list[str]) -> None:
    named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}

    assert refused({**named, "value": value}) == fields


def test_a_deployment_selects_its_own_pods() -> None:
    def deployment(selector: Json) -> Json:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
        named = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
        return {**named, "spec": {"selector": selector, "template": template}}

    assert refused(deployment({"matchLabels": {"app": "web"}})) == []
    assert refused(deployment({"matchLabels": {"app": "other"}})) == ["spec.template.metadata.labels"]
    assert refused(deployment({})) == ["spec.selector"]
    assert refused(deployment({"matchExpressions": [{"key": "app", "operator": "In"}]})) == [
        "spec.selector.matchExpressions[0].values"
    ]


def test_taints_of_a_node_are_unique() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}

    assert refused({**node, "spec": {"taints": taints}}) == []
    assert refused({**node, "spec": {"taints": [*taints, {**taints[0], "value": "x"}]}}) == ["spec.taints[2]"]
