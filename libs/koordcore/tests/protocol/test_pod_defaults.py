"""Defaults that an API server sets in pods."""

import copy
from typing import Any

import pytest
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.qos import kube_qos

Json = dict[str, Any]


def pod(*containers: Json, init: list[Json] | None = None, **spec: Any) -> Json:
    document: Json = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": list(containers), **spec}}
    if init is not None:
        document["spec"]["initContainers"] = init
    return document


def container(requests: Json | None = None, limits: Json | None = None, **fields: Any) -> Json:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": "main", "image": "nginx", "resources": resources, **fields}


def requested(document: Json) -> dict[str, int]:
    return pod_requests(pod_from_json(with_pod_defaults(document)))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pod(container(limits={"nvidia.com/gpu": "1"})), {"nvidia.com/gpu": 1}),
        (pod(container(limits={"nvidia.com/gpu": 1})), {"nvidia.com/gpu": 1}),
        (pod(container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})), {"cpu": 1000, "memory": 1 << 30}),
        (pod(container({"cpu": "0"}, {"cpu": "2"})), {"cpu": 0}),
        (pod(container({"cpu": None}, {"cpu": "2"})), {"cpu": 2000}),
        (pod(container(None, None)), {}),
        (pod(container(limits={"cpu": "1"}), container(limits={"cpu": "2"})), {"cpu": 3000}),
        (pod(container(limits={"cpu": "1"}), init=[container(limits={"cpu": "4"})]), {"cpu": 4000}),
        (
            pod(container(limits={"cpu": "1"}), init=[container(limits={"cpu": "4"}, restartPolicy="Always")]),
            {"cpu": 5000},
        ),
        (pod(container(limits={"cpu": "1"}), overhead={"cpu": "500m"}), {"cpu": 1500}),
        (pod(container(), resources={"limits": {"cpu": "2", "memory": "1Gi"}}), {"cpu": 2000, "memory": 1 << 30}),
        (pod(container({"cpu": "1"}), resources={"limits": {"cpu": "2"}}), {"cpu": 1000}),
        (pod(container({"cpu": "1"}), resources={"limits": {"memory": "1Gi"}}), {"cpu": 1000, "memory": 1 << 30}),
        (pod(container({"cpu": "1"}), resources={"requests": {"memory": "1Gi"}}), {"cpu": 1000, "memory": 1 << 30}),
        (
            pod(container(limits={"hugepages-2Mi": "4Mi"}), resources={"limits": {"cpu": "2"}}),
            {"cpu": 2000, "hugepages-2Mi": 4 << 20},
        ),
        (
            pod(container(limits={"cpu": "1", "nvidia.com/gpu": "2"}), resources={"limits": {"cpu": "2"}}),
            {"cpu": 1000, "nvidia.com/gpu": 2},
        ),
    ],
)
def test_a_limit_without_a_request_is_requested(document: Json, expected: dict[str, int]) -> None:
    before = copy.deepcopy(document)

    assert requested(document) == expected
    assert document == before


def test_limits_of_the_pod_without_container_requests_make_it_guaranteed() -> None:
    document = pod(container(), resources={"limits": {"cpu": "2", "memory": "1Gi"}})

    assert kube_qos(pod_from_json(document)) == "Burstable"
    assert kube_qos(pod_from_json(with_pod_defaults(document))) == "Guaranteed"


def test_ports_of_a_pod_on_the_network_of_the_host_are_ports_of_the_host() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}, {"containerPort": 83, "hostPort": 0}, {}]
    document = pod(container(ports=ports), init=[container(ports=[{"containerPort": 99}])])

    assert with_pod_defaults(document) is document
    found = with_pod_defaults({**document, "spec": {**document["spec"], "hostNetwork": True}})["spec"]
    assert [port.get("hostPort") for port in found["containers"][0]["ports"]] == [80, 82, 83, None]
    assert found["initContainers"][0]["ports"] == [{"containerPort": 99, "hostPort": 99}]


COMPLETE: list[Json] = [
    pod(container({"cpu": "1"}, {"cpu": "1"})),
    pod(container({"cpu": "1"}), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),
    pod(container(), resources={}),
    pod(container(limits={}), hostNetwork=True),
    {"spec": None},
    {"spec": []},
    {},
    pod(container(), resources={"limits": {"cpu": "banana"}, "requests": {"cpu": "x"}}),
    {"spec": {"containers": "main", "initContainers": None, "hostNetwork": "yes", "resources": 3}},
    {"spec": {"containers": [1, None, {"resources": []}, {"resources": {"limits": ["cpu"]}}, {"ports": {}}]}},
]


@pytest.mark.parametrize("document", COMPLETE)
def test_a_pod_with_all_defaults_or_of_a_wrong_shape_is_returned_itself(document: Json) -> None:
    assert with_pod_defaults(document) is document


def test_defaults_are_set_once() -> None:
    document = pod(
        container(limits={"cpu": "1", "memory": "1Gi"}, ports=[{"containerPort": 80}]),
        init=[container({"memory": "2Gi"})],
        hostNetwork=True,
        resources={"limits": {"cpu": "2"}},
    )
    once = with_pod_defaults(document)

    assert with_pod_defaults(once) is once
    assert once["spec"]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "2Gi"}}
