"""The pods of manifests that `koord fit` asks about."""

from typing import Any

import pytest
from koordcore.values.invalid import InvalidInput
from koordctl.fit import planned_pods

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}


def controller(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {"template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("document", "replicas"),
    [
        (controller("Deployment"), 1),
        (controller("Deployment", replicas=3), 3),
        (controller("ReplicaSet", replicas=0), 0),
        (controller("StatefulSet", replicas=2), 2),
        (controller("Job", parallelism=4, completions=9), 4),
    ],
)
def test_controller_gives_its_template_and_number_of_pods(document: dict[str, Any], replicas: int) -> None:
    found = planned_pods(document)
    assert found is not None
    assert (found.title, found.replicas) == (f"{document['kind'].lower()}/web", replicas)
    assert found.pod["spec"] == TEMPLATE["spec"]
    metadata = found.pod["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("web", "default", {"app": "web"})
    assert metadata["ownerReferences"][0]["kind"] == document["kind"]


def test_selector_of_a_controller_is_kept() -> None:
    found = planned_pods(controller("Deployment", selector={"matchLabels": {"app": "web"}}))
    assert found is not None
    assert found.workload is not None
    assert found.workload.selector is not None
    assert found.workload.selector.match_labels == {"app": "web"}


def test_pod_loses_its_uid() -> None:
    found = planned_pods({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "x"}, "spec": {}})
    assert found is not None
    assert found.workload is None
    assert found.pod["metadata"] == {"name": "p", "namespace": "n"}


def test_other_kinds_have_no_pods() -> None:
    assert planned_pods({"kind": "PodGroup", "metadata": {"name": "g"}}) is None
    assert planned_pods({}) is None


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "must be an object with apiVersion and kind, got []"),
        ({"kind": "Pod"}, "metadata.name: must be a name, got ''"),
        ({"kind": "Pod", "metadata": []}, "metadata: must be an object, got []"),
        ({"kind": "Job", "metadata": {"name": "j"}}, "spec: must be an object, got None"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {}}, "spec.template: must be an object, got None"),
        (controller("Deployment", replicas=-1), "spec.replicas: must be a number of pods, 0 or more, got -1"),
        (controller("Job", parallelism=True), "spec.parallelism: must be a number of pods, 0 or more, got True"),
    ],
)
def test_invalid_document_is_refused_with_field_rule_and_value(document: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        planned_pods(document)
    assert refused.value.sentence() == sentence
