"""What is read of an object for placement enters the log, and nothing else of it."""

from typing import Any

from koord_manager.domain.gateway.mirror import cleaned
from koord_manager.domain.gateway.resources import mirrored_resources

RESOURCES = {item.kind: item for item in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)}


def test_of_a_volume_only_what_ties_it_to_nodes_enters_the_log() -> None:
    affinity: dict[str, Any] = {"required": {"nodeSelectorTerms": [{"matchFields": []}]}}
    csi: dict[str, Any] = {"volumeHandle": "h", "nodeStageSecretRef": {"name": "s"}}
    found: dict[str, Any] = {
        "metadata": {"name": "disk", "labels": {"topology.kubernetes.io/zone": "a"}, "annotations": {"by": "csi"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity, "csi": csi},
        "status": {"phase": "Bound"},
    }
    assert cleaned(RESOURCES["PersistentVolume"], found) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity},
    }


def test_claims_come_before_the_pods_that_name_them() -> None:
    kinds = list(RESOURCES)
    assert kinds.index("PersistentVolume") < kinds.index("PersistentVolumeClaim") < kinds.index("Pod")
