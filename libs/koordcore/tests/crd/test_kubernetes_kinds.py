"""Kinds of Kubernetes itself that are kept for placement: read whole, judged only where they are read."""

import pytest
from koordcore.protocol.crd import accepted_kinds, find_accepted, resource_versions
from koordcore.protocol.manifests import InvalidManifest, read_manifest
from koordcore.protocol.manifests.reader import CustomObject
from koordcore.protocol.objects import Workload


def test_budget_keeps_every_field_and_its_namespace() -> None:
    spec = {
        "minAvailable": "50%",
        "selector": {"matchLabels": {"app": "web"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    document = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    found = read_manifest(document).object
    assert isinstance(found, CustomObject)
    assert found.metadata.namespace == "default"
    assert found.document["spec"] == spec


def test_volume_is_in_no_namespace() -> None:
    found = read_manifest(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}}
    ).object
    assert isinstance(found, CustomObject)
    assert found.metadata.namespace == ""


@pytest.mark.parametrize(
    ("kind", "version", "spec", "field"),
    [
        ("PodDisruptionBudget", "policy/v1", {"minAvailable": True}, "spec.minAvailable"),
        ("Service", "v1", {"selector": {"app": 1}}, "spec.selector.app"),
        ("StatefulSet", "apps/v1", {"replicas": 2}, "spec.selector"),
        ("PersistentVolumeClaim", "v1", {"accessModes": "all"}, "spec.accessModes"),
        ("PersistentVolume", "v1", {"claimRef": {"name": 1}}, "spec.claimRef.name"),
        ("CSINode", "storage.k8s.io/v1", {"drivers": [{"name": "d", "allocatable": {"count": -1}}]}, "count"),
    ],
)
def test_what_is_read_has_to_have_its_shape(kind: str, version: str, spec: object, field: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        read_manifest({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
    assert field in str(refused.value)


def test_they_are_no_custom_resources() -> None:
    assert find_accepted("v1", "Service") is not None
    assert "Service" not in {version.kind for version in resource_versions()}
    kinds = [version.kind for version in accepted_kinds() if version.stored]
    assert len(kinds) == len(set(kinds))


def test_selector_of_a_deployment_is_kept() -> None:
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    }
    workload = read_manifest(document).object
    assert isinstance(workload, Workload)
    assert workload.selector is not None
    assert workload.selector.match_labels == {"app": "web"}
