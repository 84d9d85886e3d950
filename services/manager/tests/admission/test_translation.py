"""cpu and memory of a pod become batch or mid resources (manager spec, 8.3)."""

from typing import Any

from koord_manager.domain.admission.colocation_profile import translate


def pod(priority: int, resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "resources": resources}]
    return {"metadata": {"name": "p"}, "spec": {"priority": priority, "containers": containers, **spec}}


def resources_of(translated: dict[str, Any]) -> dict[str, Any]:
    return translated["spec"]["containers"][0]["resources"]


def test_an_extended_amount_is_overwritten_and_a_limit_is_also_the_request() -> None:
    given = pod(5500, {"requests": {"cpu": "1", "kubernetes.io/batch-cpu": "7"}, "limits": {"memory": "1Gi"}})
    assert translate(given)
    assert resources_of(given) == {
        "requests": {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"},
        "limits": {"kubernetes.io/batch-memory": "1Gi"},
    }


def test_a_translated_pod_is_not_translated_again() -> None:
    given = pod(7500, {"requests": {"cpu": "100500u"}}, overhead={"cpu": "1"})
    assert translate(given)
    assert resources_of(given)["requests"] == {"kubernetes.io/mid-cpu": "101"}
    assert given["spec"]["overhead"] == {"kubernetes.io/mid-cpu": "1k"}
    assert not translate(given)


def test_a_batch_limit_of_a_mid_pod_is_no_mid_request() -> None:
    given = pod(7500, {"limits": {"kubernetes.io/batch-cpu": "1"}})
    assert not translate(given)
    assert resources_of(given) == {"limits": {"kubernetes.io/batch-cpu": "1"}}
