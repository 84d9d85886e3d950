"""What the policies of k8s/base refuse the manager's token at a real API server, and what they leave to it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from koord_manager.domain.admission.concerned import Matched
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.webhooks import WEBHOOKS, reconciled
from koord_manager.domain.documents.object_changes import node_request
from koord_manager.shell.webhooks.certificates import WebhookEnvironment
from koordcore.protocol import keys
from koordcore.protocol.drains import DRAIN_NODE
from koordcore.protocol.objects import Taint
from koordcore.requests.objects import ChangeNode
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import rendered
from support.kubernetes.kubelets import api_client

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
NODE = "/api/v1/nodes/limited"
VOLUME = "/api/v1/persistentvolumes/limited"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/limited"
SECRETS = "/api/v1/namespaces/koordinator-system/secrets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/"
MUTATING = f"{CONFIGURATIONS}mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"
VALIDATING = f"{CONFIGURATIONS}validatingwebhookconfigurations/koordinator-validating-webhook-configuration"
MERGE = "application/merge-patch+json"
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
RESERVED = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "limited"}
CA = b"-----BEGIN CERTIFICATE-----\n"


def sent(plane: ControlPlane, method: str, path: str, body: Any = None) -> str:
    """Return why the manager may not do this; "" if it may. The API server changes nothing."""
    kind = MERGE if method == "PATCH" else "application/json"
    with api_client(plane, plane.token("koord-manager")) as client:
        content = None if body is None else json.dumps(body)
        answer = client.request(method, path, content=content, headers={"Content-Type": kind}, params={"dryRun": "All"})
    return "" if answer.is_success else answer.text


def read(plane: ControlPlane, path: str) -> Json:
    with api_client(plane, plane.token("koord-manager")) as client:
        return client.get(path).json()


@pytest.fixture(scope="module")
def limited(plane: ControlPlane) -> Iterator[None]:
    """A node of the control plane, a volume, and a claim."""
    labels = {"node-role.kubernetes.io/control-plane": ""}
    spec = {"taints": [CONTROL_PLANE], "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}
    plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "limited", "labels": labels}, "spec": spec})
    kept: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "limited"}
    volume = {**kept, "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Retain"}
    plane.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "limited"}, "spec": volume})
    wanted: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "other"}
    wanted["resources"] = {"requests": {"storage": "1Gi"}}
    meta = {"name": "limited", "namespace": "default"}
    plane.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": wanted})
    yield
    for kind in ("node", "persistentvolumeclaim", "persistentvolume"):
        plane.kubectl("delete", kind, "limited", "--wait=false")


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (NODE, {"spec": {"taints": []}}),
        (NODE, {"spec": {"taints": [{**CONTROL_PLANE, "effect": "PreferNoSchedule"}]}}),
        (NODE, {"spec": {"taints": [CONTROL_PLANE, {"key": "a", "effect": "NoExecute"}]}}),
        (NODE, {"spec": {"providerID": "aws://1"}}),
        (NODE, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}}),
        (NODE, {"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}}),
        (NODE, {"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.1"}}}),
        (NODE, {"metadata": {"finalizers": ["example.com/for-ever"]}}),
        (f"{NODE}/status", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
        (f"{NODE}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        (f"{NODE}/status", {"metadata": {"labels": {"kubernetes.io/hostname": "b"}}}),
        (VOLUME, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
        (VOLUME, {"spec": {"claimRef": RESERVED, "mountOptions": ["exec"]}}),
        (VOLUME, {"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "x"}}}),
        (VOLUME, {"metadata": {"labels": {"a": "b"}}}),
        (VOLUME, {"metadata": {"finalizers": []}}),
        (CLAIM, {"spec": {"volumeName": "x"}}),
        (CLAIM, {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "x"}}}),
        (CLAIM, {"metadata": {"finalizers": []}}),
    ],
)
def test_the_manager_changes_nothing_else_of_nodes_volumes_and_claims(
    plane: ControlPlane, limited: None, path: str, patch: Json
) -> None:
    refusal = sent(plane, "PATCH", path, patch)

    assert "ValidatingAdmissionPolicy" in refusal
    assert "koord-manager changes" in refusal


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (NODE, {"metadata": {"labels": {"node.koordinator.sh/gpu-model": "a", "closed-by-drain": "yes"}}}),
        (NODE, {"metadata": {"annotations": {"node.koordinator.sh/slo-health": "{}", "hami.io/mutex.lock": "x"}}}),
        (f"{NODE}/status", {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1"}}}),
        (
            VOLUME,
            {
                "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": RESERVED},
            },
        ),
        (CLAIM, {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "limited"}}}),
    ],
)
def test_the_manager_makes_its_own_changes_of_nodes_volumes_and_claims(
    plane: ControlPlane, limited: None, path: str, patch: Json
) -> None:
    assert sent(plane, "PATCH", path, patch) == ""


def test_a_drain_closes_and_opens_a_node(plane: ControlPlane, limited: None) -> None:
    ours = Taint(key=DRAIN_NODE, effect="NoSchedule", value="d")
    with api_client(plane, plane.token("koord-manager")) as client:
        for change in (
            ChangeNode(name="limited", unschedulable=True, labels={"closed": "yes"}, taints=[ours]),
            ChangeNode(name="limited", unschedulable=False, labels={"closed": None}, removed_taints=[ours]),
        ):
            request = node_request(change, read(plane, NODE))
            answer = client.patch(NODE, content=json.dumps(request.body), headers={"Content-Type": MERGE})
            assert answer.is_success, answer.text


def test_a_volume_that_is_reserved_goes_to_no_other_claim(plane: ControlPlane) -> None:
    spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "limited"}
    spec |= {"hostPath": {"path": "/x"}, "claimRef": {**RESERVED, "name": "absent"}}
    plane.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "reserved"}, "spec": spec})
    path = VOLUME.replace("limited", "reserved")

    for wanted in ({"namespace": "kube-system"}, {"name": "other"}):
        refusal = sent(plane, "PATCH", path, {"spec": {"claimRef": wanted}})
        assert "koord-manager reserves no volume" in refusal
    assert "koord-manager reserves no volume" in sent(plane, "PATCH", path, {"spec": {"claimRef": None}})
    assert sent(plane, "PATCH", path, {"spec": {"claimRef": {"uid": "u"}}}) == ""
    plane.kubectl("delete", "persistentvolume", "reserved", "--wait=false")


def test_the_manager_deletes_no_pod_of_a_system_priority(plane: ControlPlane) -> None:
    refusals: dict[str, str] = {}
    for name, priority in (("critical", "system-cluster-critical"), ("usual", "")):
        spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "pause"}]}
        spec |= {"priorityClassName": priority} if priority else {}
        meta = {"name": name, "namespace": "kube-system"}
        plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        refusals[name] = sent(plane, "DELETE", f"/api/v1/namespaces/kube-system/pods/{name}")
        plane.kubectl("delete", "pod", name, "-n", "kube-system", "--force", "--grace-period=0")

    assert "koord-manager deletes no pod" in refusals["critical"]
    assert refusals["usual"] == ""


def test_the_manager_resizes_no_pod_of_a_system_priority(plane: ControlPlane) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    # what a kubelet writes that can resize; without it, the API server refuses every resize
    told: Json = {"name": "main", "ready": True, "restartCount": 0, "image": "pause", "imageID": "i"}
    told |= {"state": {"running": {}}, "resources": resources}
    status: Json = {"phase": "Running", "containerStatuses": [told]}
    tiny = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    wanted = {"spec": {"containers": [{"name": "main", "image": "pause", "resources": tiny}]}}
    refusals: dict[str, str] = {}
    for name, priority in (("critical", "system-node-critical"), ("usual", "")):
        spec: Json = {"nodeName": "none", "containers": [{"name": "main", "image": "pause", "resources": resources}]}
        spec |= {"priorityClassName": priority} if priority else {}
        meta = {"name": name, "namespace": "kube-system"}
        plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        at = ("pod", name, "-n", "kube-system")
        plane.kubectl("patch", *at, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        refusals[name] = sent(plane, "PATCH", f"/api/v1/namespaces/kube-system/pods/{name}/resize", wanted)
        plane.kubectl("delete", *at, "--force", "--grace-period=0")

    assert "koord-manager resizes no pod" in refusals["critical"]
    assert refusals["usual"] == ""


def test_the_manager_makes_no_secret_that_the_api_server_fills_with_a_token(plane: ControlPlane) -> None:
    def secret(name: str, kind: str) -> Json:
        meta = {"name": name, "annotations": {"kubernetes.io/service-account.name": "koord-keys"}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind}

    plane.ask("delete", "secret", "koordinator-webhook-certs", "-n", "koordinator-system")
    token = sent(plane, "POST", SECRETS, secret("koordinator-webhook-certs", "kubernetes.io/service-account-token"))

    assert "koord-manager keeps its certificate" in token
    assert "koord-manager keeps its certificate" in sent(plane, "POST", SECRETS, secret("other", "Opaque"))
    assert sent(plane, "POST", SECRETS, secret("koordinator-webhook-certs", "Opaque")) == ""


def shipped(plane: ControlPlane) -> None:
    for path in (MUTATING, VALIDATING):
        plane.ask("delete", path.split("/")[-2], path.split("/")[-1])
    plane.apply(*(item for item in rendered() if item["kind"].endswith("WebhookConfiguration")))


OF_SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets", "pods"]}


def edited(entry: Json, at: str) -> Json:
    """Return an entry as somebody would like it who wants to see or change more."""
    service = entry["clientConfig"]["service"]
    match at:
        case "url":
            return {**entry, "clientConfig": {"url": "https://example.com:36999/"}}
        case "service":
            return {**entry, "clientConfig": {"service": {**service, "namespace": "kube-system"}}}
        case "rules":
            return {**entry, "rules": [*entry["rules"], OF_SECRETS]}
        case "namespaces":
            return {name: value for name, value in entry.items() if name != "namespaceSelector"}
        case "objects":
            return {name: value for name, value in entry.items() if name != "objectSelector"}
        case "name":
            return {**entry, "name": "mnode.koordinator.sh", "rules": [{**OF_SECRETS, "operations": ["CREATE"]}]}
        case _:
            return {**entry, "failurePolicy": "Ignore", "matchConditions": []}


CONFIGURED = ("url", "service", "rules", "namespaces", "objects", "name", "conditions")


@pytest.mark.parametrize(
    ("at", "is_new"), [*((at, False) for at in CONFIGURED), *((at, True) for at in CONFIGURED if at != "conditions")]
)
def test_the_manager_sends_nobody_else_anything_and_asks_for_nothing_more(
    plane: ControlPlane, at: str, is_new: bool
) -> None:
    """`is_new`: whether the entry was not in the configuration before."""
    shipped(plane)
    entries: list[Json] = read(plane, MUTATING)["webhooks"]
    if is_new:
        configuration = next(item for item in rendered() if item["kind"] == "MutatingWebhookConfiguration")
        plane.apply({**configuration, "webhooks": configuration["webhooks"][3:]})
    number = 2 if at == "objects" else 0  # mpod-update, mpod-create
    changed = [edited(entry, at) if place == number else entry for place, entry in enumerate(entries)]

    refusal = sent(plane, "PUT", MUTATING, {**read(plane, MUTATING), "webhooks": changed})

    assert "ValidatingAdmissionPolicy 'koord-manager-webhooks'" in refusal


def test_the_manager_writes_its_authority_the_matched_pods_and_the_entries_of_gates(plane: ControlPlane) -> None:
    every = Options(gates=dict.fromkeys({gate for webhook in WEBHOOKS for gate in webhook.gates}, True))
    none = Options(gates=dict.fromkeys({gate for webhook in WEBHOOKS for gate in webhook.gates}, False))
    address = WebhookEnvironment().address
    matched = Matched('object.metadata.name == "a"', 'object.metadata.name == "b"')
    shipped(plane)

    for options in (Options(), every, none, every):
        for path in (MUTATING, VALIDATING):
            present = read(plane, path)
            wanted = reconciled(present, options, address, CA, matched)
            assert wanted is not None
            assert sent(plane, "PUT", path, wanted) == ""
            with api_client(plane, plane.token("koord-manager")) as client:
                assert client.put(path, json=wanted).is_success
    shipped(plane)


def listed(policy: str, variable: str) -> Any:
    """Return the value of a variable of a shipped policy; CEL and YAML write it alike."""
    found = next(
        item
        for item in rendered()
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"] == policy
    )
    return next(yaml.safe_load(v["expression"]) for v in found["spec"]["variables"] if v["name"] == variable)


def test_the_policies_list_what_the_source_writes() -> None:
    source = {
        webhook.name: [",".join(webhook.operations), f"{webhook.group}/{webhook.resource}"] for webhook in WEBHOOKS
    }
    source |= {f"{name}-matched": source[name] for name in ("mpod-create", "vpod")}

    assert listed("koord-manager-webhooks", "entries") == source
    assert listed("koord-manager-nodes", "own") == [
        "koordinator.sh/",
        keys.HAMI_MUTEX_LOCK,
        keys.CAMBRICON_DSMLU_LOCK,
    ]
