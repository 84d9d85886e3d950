"""Claims that wait for the first consumer on a real API server, with its persistent volume and ephemeral controllers.

Local volumes are bound for real. For volumes that are made, the test stands in for the provisioner of a CSI driver: it
reacts to the annotation selected-node.
"""

from typing import Any

import pytest
from koordcore.protocol.storage import SELECTED_NODE
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document
from support.kubernetes.volumes import HOST, claim, local_volume, storage_class, user_of

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]

DRIVER = "disks.example.com"
NODES = ("volumes-1", "volumes-2")


def pod(name: str, *claims: str, **spec: Any) -> Json:
    """A pod of our scheduler on one of the nodes of this test."""
    among = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(NODES)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [among]}}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "schedulerName": "koord-scheduler",
            "affinity": {"nodeAffinity": required},
            "containers": [container],
            **(user_of(*claims) if claims else {}),
            **spec,
        },
    }


def claim_of(plane: ControlPlane, name: str) -> Json:
    """A claim as the API server has it."""
    return plane.get("pvc", name, "-n", "default")


def selected(plane: ControlPlane, name: str) -> str:
    """The node for which the volume of a claim is to be made; "" for none."""
    items = plane.get("pvc", "-n", "default")["items"]
    found = (item["metadata"] for item in items if item["metadata"]["name"] == name)
    return next((meta.get("annotations", {}).get(SELECTED_NODE, "") for meta in found), "")


def provision(plane: ControlPlane, name: str) -> None:
    """Make the volume of a claim for its selected node, as an external provisioner does."""
    found = claim_of(plane, name)
    meta = found["metadata"]
    made = local_volume(f"pvc-{meta['uid']}", meta["annotations"][SELECTED_NODE], of="disks")
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": DRIVER}
    del made["spec"]["local"]
    made["spec"] |= {
        "csi": {"driver": DRIVER, "volumeHandle": meta["uid"]},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": name,
            "uid": meta["uid"],
        },
    }
    plane.apply(made)


def messages(plane: ControlPlane, name: str) -> str:
    """The messages of the events about a pod."""
    items = plane.get("events", "-n", "default", "--field-selector", f"involvedObject.name={name}")["items"]
    return "\n".join(item["message"] for item in items)


async def begin(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, *(node_document(name, labels={HOST: name}) for name in NODES))
    plane.apply(storage_class(), storage_class("disks", DRIVER))
    await installed.start_both()


async def test_pods_go_to_the_nodes_of_local_volumes_and_their_claims_are_bound_first(
    plane: ControlPlane, installed: Installation
) -> None:
    await begin(plane, installed)
    plane.apply(local_volume("disk", "volumes-2"), local_volume("larger", "volumes-1", size="5Gi"))
    plane.apply(claim("small"), claim("large", size="2Gi"), claim("none"))
    await installed.until(
        lambda: {plane.get("pv", name)["status"]["phase"] for name in ("disk", "larger")} == {"Available"},
        "the controller has seen the volumes",
    )
    plane.apply(pod("of-large", "large"), pod("of-small", "small"), pod("without", "none"))

    def bound() -> dict[str, str]:
        return installed.bound_pods()

    await installed.until(lambda: {"of-large", "of-small"} <= bound().keys(), "the pods are bound")
    assert (bound()["of-large"], bound()["of-small"]) == ("volumes-1", "volumes-2")
    assert [claim_of(plane, name)["spec"]["volumeName"] for name in ("large", "small")] == ["larger", "disk"]
    # The controller of volumes writes the phase after the volume.
    await installed.until(
        lambda: {claim_of(plane, name)["status"]["phase"] for name in ("large", "small")} == {"Bound"},
        "the claims are bound",
    )
    await installed.until(
        lambda: "node(s) didn't find available persistent volumes to bind" in messages(plane, "without"),
        "the pod without a volume knows why",
    )
    assert claim_of(plane, "none")["status"]["phase"] == "Pending"

    plane.apply(local_volume("late", "volumes-1"))
    await installed.until(lambda: bound().get("without") == "volumes-1", "a new volume helps")


async def test_volume_is_made_for_the_node_that_was_selected_again_after_it_was_given_back(
    plane: ControlPlane, installed: Installation
) -> None:
    await begin(plane, installed)
    plane.apply(claim("made", of="disks"))
    plane.apply(pod("of-made", "made"))
    await installed.until(lambda: selected(plane, "made") in NODES, "a node is selected")
    assert "of-made" not in installed.bound_pods()
    await installed.until(
        lambda: claim_of(plane, "made")["metadata"]["annotations"].get("volume.kubernetes.io/storage-provisioner"),
        "the controller has asked the provisioner",
    )

    plane.kubectl("annotate", "pvc", "made", "-n", "default", f"{SELECTED_NODE}-")
    await installed.until(
        lambda: 'binding volumes: provisioning failed for PVC "made"' in messages(plane, "of-made"),
        "the pod lost its node",
    )
    await installed.until(lambda: selected(plane, "made") in NODES, "a node is selected again")
    provision(plane, "made")
    await installed.until(lambda: "of-made" in installed.bound_pods(), "the pod is bound")
    assert installed.bound_pods()["of-made"] == selected(plane, "made")


async def test_pod_with_an_ephemeral_volume_gets_a_claim_of_its_own(
    plane: ControlPlane, installed: Installation
) -> None:
    await begin(plane, installed)
    template = {"spec": claim("x", of="disks")["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    plane.apply(pod("working", volumes=volumes))
    await installed.until(lambda: selected(plane, "working-scratch") in NODES, "a node is selected")
    provision(plane, "working-scratch")
    await installed.until(lambda: "working" in installed.bound_pods(), "the pod is bound")


async def test_volume_that_is_still_attached_occupies_a_place_of_its_node(
    plane: ControlPlane, installed: Installation
) -> None:
    """The manager is ready when these objects are in the log, so the pod comes after them."""
    driver = {"name": DRIVER, "nodeID": "volumes-1", "allocatable": {"count": 1}}
    storage: Json = {"apiVersion": "storage.k8s.io/v1"}
    old = local_volume("old", "volumes-1", of="nobody")
    del old["spec"]["local"]
    old["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": "old"}
    attached = {"attacher": DRIVER, "nodeName": "volumes-1", "source": {"persistentVolumeName": "old"}}
    plane.apply(
        {**storage, "kind": "CSINode", "metadata": {"name": "volumes-1"}, "spec": {"drivers": [driver]}},
        {**storage, "kind": "VolumeAttachment", "metadata": {"name": "of-old"}, "spec": attached},
        old,
    )
    await begin(plane, installed)
    plane.apply(claim("next", of="disks"), pod("of-next", "next", nodeSelector={HOST: "volumes-1"}))
    await installed.until(
        lambda: "node(s) exceed max volume count" in messages(plane, "of-next"), "the pod knows why it waits"
    )

    plane.kubectl("delete", "volumeattachment", "of-old")
    await installed.until(lambda: selected(plane, "next") == "volumes-1", "the place is free")
    plane.kubectl("delete", "pod/of-next", "pvc/next", "-n", "default", "--grace-period=1")
    plane.kubectl("delete", "csinode/volumes-1", "pv/old")


async def test_pod_waits_for_a_claim_that_binds_at_once(plane: ControlPlane, installed: Installation) -> None:
    await begin(plane, installed)
    plane.apply({**storage_class("at-once"), "volumeBindingMode": "Immediate"}, claim("early", of="at-once"))
    plane.apply(pod("of-early", "early"))
    await installed.until(
        lambda: "pod has unbound immediate PersistentVolumeClaims" in messages(plane, "of-early"),
        "the pod knows why it waits",
    )
    plane.apply(local_volume("early", "volumes-2", of="at-once"))
    await installed.until(lambda: installed.bound_pods().get("of-early") == "volumes-2", "the pod is bound")
