"""Pods of groups of Kubernetes' own Workload API are not placed, and their users are told."""

from typing import Any

import pytest
from koord_manager.domain.documents.warnings import document_warnings

GROUP = {"schedulingGroup": {"podGroupName": "g"}}
TEXT = (
    ".schedulingGroup: groups of the Workload API are not supported; name the gang by the label "
    "pod-group.scheduling.sigs.k8s.io and a PodGroup instead; the scheduler does not place the pod"
)


def document(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    containers = {"containers": [{"name": "main", "image": "x"}]}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "p"}, "spec": {**containers, **spec}}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {**containers, "restartPolicy": "Never", **spec}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "j"}, "spec": {"template": template}}


@pytest.mark.parametrize(("kind", "at"), [("Pod", "spec"), ("Job", "spec.template.spec")])
def test_scheduling_group_is_told(kind: str, at: str) -> None:
    assert document_warnings(document(kind, GROUP)) == (at + TEXT,)
    assert document_warnings(document(kind, {})) == ()


def test_pods_that_also_name_a_gang_are_not_told() -> None:
    of_both = document("Pod", GROUP)
    of_both["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
    assert document_warnings(of_both) == ()
