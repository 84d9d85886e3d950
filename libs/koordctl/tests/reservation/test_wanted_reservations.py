"""`koord reserve` writes Reservations that a workload's pods may use, and that admission accepts."""

from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservations import reservation_from_json, reserve_pod
from koordcore.values.invalid import InvalidInput
from koordctl.objects.lint import Linter
from koordctl.reservation.reserve import Wanted, reservations_for

DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {
                "labels": {"app": "web", "tier": "front"},
                "annotations": {
                    "scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy":"FullPCPUs"}',
                    "other.example/note": "x",
                },
            },
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "containers": [
                    {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
                ],
            },
        },
    },
}


def wanted(number: int = 1, **amounts: str) -> Wanted:
    return Wanted("web", number, amounts, "30m")


def test_three_reservations_hold_the_amounts_and_are_for_the_pods_of_the_deployment() -> None:
    documents = list(reservations_for(DEPLOYMENT, wanted(3, cpu="8")))

    assert [each["metadata"]["name"] for each in documents] == ["web-1", "web-2", "web-3"]
    spec = documents[0]["spec"]
    assert spec["owners"] == [{"object": {"namespace": "shop"}, "labelSelector": {"matchLabels": {"app": "web"}}}]
    assert pod_requests(reserve_pod(reservation_from_json(documents[0]))) == {"cpu": 8000, "memory": 2 << 30}
    assert spec["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert list(spec["template"]["metadata"]["annotations"]) == ["scheduling.koordinator.sh/resource-spec"]
    assert all(not finding.violations for finding in Linter(Options()).judge(documents))


def test_without_amounts_the_reservation_holds_what_the_template_requests() -> None:
    (document,) = reservations_for(DEPLOYMENT, wanted())

    assert document["metadata"]["name"] == "web"
    assert pod_requests(reserve_pod(reservation_from_json(document))) == {"cpu": 1000, "memory": 2 << 30}


def test_a_resource_that_is_only_limited_is_reserved_too() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    template = {"spec": {"containers": [{"name": "main", "image": "nginx", "resources": resources}]}}
    workload = {**DEPLOYMENT, "spec": {"template": template, "selector": {"matchLabels": {"app": "web"}}}}

    cases: list[tuple[dict[str, str], int]] = [({}, 1000), ({"cpu": "4"}, 4000)]
    for amounts, cpu in cases:
        (document,) = reservations_for(workload, wanted(1, **amounts))
        assert pod_requests(reserve_pod(reservation_from_json(document))) == {"cpu": cpu, "nvidia.com/gpu": 1}
        assert not Linter(Options()).judge([document])[0].violations


def test_a_reservation_for_a_pod_is_for_this_pod_alone() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "db-0"}, "spec": {"containers": [{"name": "main"}]}}

    (document,) = reservations_for(pod, wanted(memory="1Gi"))

    assert document["spec"]["owners"] == [{"object": {"namespace": "default", "name": "db-0"}}]


def test_nothing_to_reserve_is_refused() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "db-0"}, "spec": {"containers": [{"name": "main"}]}}

    with pytest.raises(InvalidInput, match="--cpu or --memory"):
        list(reservations_for(pod, wanted()))
