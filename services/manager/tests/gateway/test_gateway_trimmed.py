"""What is read of an object for placement enters the log, and nothing else of it."""

from typing import Any

from koord_manager.domain.gateway.mirror import cleaned
from koord_manager.domain.gateway.resources import mirrored_resources

RESOURCES = {item.kind: item for item in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)}


HANDLE: dict[str, Any] = {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "s"}}


def test_of_a_volume_only_what_decides_about_it_enters_the_log() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    found: dict[str, Any] = {
        "metadata": {
            "name": "disk",
            "generation": 2,
            "labels": {"topology.kubernetes.io/zone": "a"},
            "annotations": {"by": "csi"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "c", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "csi": HANDLE,
            "mountOptions": ["ro"],
        },
        "status": {"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"},
    }
    assert cleaned(RESOURCES["PersistentVolume"], found) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "n", "name": "c", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "csi": {"driver": "d"},
        },
        "status": {"phase": "Bound"},
    }


def test_of_a_claim_the_annotations_that_tell_of_its_binding_enter_the_log() -> None:
    annotations = {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n", "by": "me"}
    found: dict[str, Any] = {
        "metadata": {"namespace": "n", "name": "c", "uid": "u", "annotations": annotations},
        "spec": {
            "volumeName": "disk",
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": {"kind": "VolumeSnapshot", "name": "s"},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    assert cleaned(RESOURCES["PersistentVolumeClaim"], found) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "namespace": "n",
            "name": "c",
            "uid": "u",
            "annotations": {key: value for key, value in annotations.items() if key != "by"},
        },
        "spec": {"volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    }


def test_of_a_storage_class_the_parameters_stay_out_of_the_log() -> None:
    found: dict[str, Any] = {
        "metadata": {"name": "disks"},
        "provisioner": "d",
        "parameters": {"csi.storage.k8s.io/provisioner-secret-name": "s"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    assert cleaned(RESOURCES["StorageClass"], found) == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disks"},
        "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def test_claims_come_before_the_pods_that_name_them() -> None:
    kinds = list(RESOURCES)
    assert kinds.index("PersistentVolume") < kinds.index("PersistentVolumeClaim") < kinds.index("Pod")
