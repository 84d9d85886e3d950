"""A pod's classes, its requests, and what admission says about it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.protocol.pod_admission import Rule, validate_pod
from koordcore.protocol.pod_resources import pod_limits, pod_requests, pod_requests_non_zero
from koordcore.protocol.priority import (
    PriorityBand,
    band_of_value,
    installed_priority_classes,
    priority_class,
    priority_class_raw,
    priority_value,
)
from koordcore.protocol.qos import KubeQos, QosClass, kube_qos, qos, qos_raw
from koordcore.values.invalid import InvalidInput

Json = dict[str, object]


def container(requests: Json | None = None, limits: Json | None = None, **more: object) -> Json:
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


def pod(*containers: Json, labels: dict[str, str] | None = None, **spec: object) -> Pod:
    metadata = {"name": "p", "labels": labels}
    return pod_from_json({"metadata": metadata, "spec": {"containers": list(containers), **spec}})


def rules(new: Pod, old: Pod | None = None, **options: bool) -> list[str]:
    return [str(violation.rule) for violation in validate_pod(new, old, **options)]


# --- classes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("the_pod", "expected"),
    [
        (pod(), KubeQos.BEST_EFFORT),
        (pod(container({"cpu": "0"}, {"memory": "0"})), KubeQos.BEST_EFFORT),
        (pod(container({"cpu": "-1"})), KubeQos.BEST_EFFORT),
        (pod(container({"nvidia.com/gpu": "1"})), KubeQos.BEST_EFFORT),
        (pod(container(None, {"cpu": "1", "memory": "1Gi"})), KubeQos.BURSTABLE),
        (pod(container({"cpu": "1", "memory": "1024Mi"}, {"cpu": "1000m", "memory": "1Gi"})), KubeQos.GUARANTEED),
        (pod(container({"cpu": 1, "memory": 1}, {"cpu": "1", "memory": "1"})), KubeQos.GUARANTEED),
        (
            pod(
                container({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}),
                initContainers=[container({"cpu": "1"})],
            ),
            KubeQos.BURSTABLE,
        ),
        (
            pod(
                container({"cpu": "1"}),
                resources={"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}},
            ),
            KubeQos.GUARANTEED,
        ),
        (pod(container({"cpu": "1"}), resources={}), KubeQos.BEST_EFFORT),
    ],
)
def test_kubernetes_class(the_pod: Pod, expected: KubeQos) -> None:
    assert kube_qos(the_pod) == expected


@pytest.mark.parametrize("text", ["lsr", "LSR ", "", "Guaranteed"])
def test_qos_label_is_exact(text: str) -> None:
    assert qos_raw(pod(labels={keys.QOS_CLASS: text})) is None
    assert qos(pod(labels={keys.QOS_CLASS: text})) is QosClass.BE


def test_bands_include_both_ends_and_nothing_between() -> None:
    found = {
        value: band_of_value(value)
        for value in (2999, 3000, 3999, 4000, 5000, 5999, 6999, 7000, 7999, 8000, 9000, 9999, 10000)
    }
    assert [value for value, band in found.items() if band is None] == [2999, 4000, 6999, 8000, 10000]
    assert [item.value for item in installed_priority_classes()] == [9000, 7000, 5000, 3000]


def test_present_but_empty_class_label_hides_the_number() -> None:
    hidden = pod(labels={keys.PRIORITY_CLASS: ""}, priority=5500)
    assert priority_class_raw(hidden) is None
    assert priority_class(hidden) is PriorityBand.BATCH  # by QoS: nothing requested is BE
    assert priority_value(hidden) == 5500


def test_every_pod_ends_with_a_class_and_no_pod_has_value_zero() -> None:
    for name in (*QosClass, "x"):
        assert priority_class(pod(labels={keys.QOS_CLASS: name})) in PriorityBand
    assert priority_value(None) == 0
    assert priority_value(pod(priority=-1)) == -1


# --- requests ------------------------------------------------------------------------------------------------------


def test_request_is_the_larger_of_running_and_starting() -> None:
    starting = pod(container({"cpu": "1"}), initContainers=[container({"cpu": "3"})], overhead={"cpu": "100m"})
    assert pod_requests(starting) == {"cpu": 3100}


def test_sidecars_count_with_what_starts_after_them() -> None:
    sidecar = container({"cpu": "1"}, restartPolicy="Always")
    assert pod_requests(pod(container({"cpu": "2"}), initContainers=[sidecar, container({"cpu": "3"})])) == {
        "cpu": 4000
    }
    assert pod_requests(pod(container({"cpu": "2"}), initContainers=[container({"cpu": "3"}), sidecar])) == {
        "cpu": 3000
    }
    assert pod_requests(pod(initContainers=[sidecar, sidecar])) == {"cpu": 2000}


def test_pod_level_resources_replace_native_ones_only() -> None:
    wide = pod(
        container({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}),
        resources={"requests": {"cpu": "4", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "9"}},
        overhead={"cpu": "1"},
    )
    assert pod_requests(wide) == {"cpu": 5000, "memory": 2**30, "nvidia.com/gpu": 1, "hugepages-2Mi": 4 * 2**20}


def test_overhead_adds_to_limits_only_where_there_is_one() -> None:
    assert pod_limits(pod(container({}, {"cpu": "1"}), overhead={"cpu": "1", "memory": "1Gi"})) == {"cpu": 2000}


def test_non_zero_request_fills_only_what_is_absent() -> None:
    assert pod_requests_non_zero(pod(container(), container({"cpu": "0"}))) == {"cpu": 100, "memory": 2 * 209715200}
    assert pod_requests(pod(container(), container())) == {}


@pytest.mark.parametrize(
    ("requests", "overhead", "non_zero"),
    [
        ({"cpu": "4"}, {}, {"cpu": 4000, "memory": 3 * 209715200}),
        ({"cpu": "4", "memory": "0"}, {}, {"cpu": 4000, "memory": 0}),
        ({"memory": "2Gi"}, {"cpu": "50m"}, {"cpu": 50, "memory": 2**31}),
        ({"hugepages-2Mi": "4Mi"}, {"memory": "1"}, {"cpu": 300, "memory": 1, "hugepages-2Mi": 4 * 2**20}),
        ({"nvidia.com/gpu": "1"}, {}, {"cpu": 300, "memory": 3 * 209715200}),
    ],
)
def test_pod_level_requests_leave_defaults_only_for_what_the_whole_pod_lacks(
    requests: dict[str, str], overhead: dict[str, str], non_zero: dict[str, int]
) -> None:
    sidecar = container(restartPolicy="Always")
    own = pod(container(), container(), initContainers=[sidecar], resources={"requests": requests}, overhead=overhead)
    assert pod_requests_non_zero(own) == non_zero


def test_many_small_requests_are_rounded_once() -> None:
    assert pod_requests(pod(*[container({"cpu": "100500u"})] * 4)) == {"cpu": 402}


def test_batch_cpu_is_counted_in_whole_units() -> None:
    assert pod_requests(pod(container({"kubernetes.io/batch-cpu": "1k"}))) == {"kubernetes.io/batch-cpu": 1000}


def test_malformed_request_names_the_resource() -> None:
    with pytest.raises(InvalidInput, match=r"resources\[cpu\]"):
        pod_requests(pod(container({"cpu": "1C"})))


@given(
    st.lists(st.integers(0, 10**6), max_size=6), st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=6)
)
def test_request_bounds(running: list[int], starting: list[tuple[int, bool]]) -> None:
    inits = [
        container({"cpu": f"{amount}m"}, restartPolicy="Always" if sidecar else "") for amount, sidecar in starting
    ]
    total = pod_requests(pod(*[container({"cpu": f"{amount}m"}) for amount in running], initContainers=inits))
    sidecars = sum(amount for amount, sidecar in starting if sidecar)
    cpu = total.get("cpu", 0)
    assert cpu >= sum(running) + sidecars
    assert cpu >= max((amount for amount, _ in starting), default=0)
    assert cpu <= sum(running) + sum(amount for amount, _ in starting)


# --- admission -----------------------------------------------------------------------------------------------------

NUMBER = {"prod": 9500, "mid": 7500, "batch": 5500, "free": 3500, "none": None}
FORBIDDEN = {("LSR", band) for band in ("mid", "batch", "free", "none")} | {("BE", "prod"), ("BE", "none")}


@pytest.mark.parametrize(
    ("name", "band"), list(itertools.product(["LSE", "LSR", "LS", "BE", "SYSTEM", "none"], NUMBER))
)
def test_combination(name: str, band: str) -> None:
    judged = pod(container({"cpu": "1"}), labels={keys.QOS_CLASS: name}, priority=NUMBER[band])
    assert (Rule.FORBIDDEN_COMBINATION in rules(judged)) == ((name, band) in FORBIDDEN)


def test_every_violation_is_reported_sorted() -> None:
    old = pod(labels={keys.QOS_CLASS: "LS", keys.SUB_PRIORITY: "1"}, priority=9500)
    new = pod(
        container({"cpu": "1500m", "kubernetes.io/batch-memory": "1"}), labels={keys.QOS_CLASS: "LSR"}, priority=5500
    )
    new.metadata.annotations = {keys.RESERVE_POD: "false"}
    expected = sorted(set(Rule) - {Rule.CPU_REQUIRED})
    assert rules(new, old) == expected
    assert rules(new, old, skip_validating_priority=True) == [x for x in expected if x != Rule.IMMUTABLE_SUB_PRIORITY]


def test_limits_without_requests_are_not_batch_requests() -> None:
    assert rules(pod(container(None, {"kubernetes.io/batch-cpu": "1k"}), priority=5500)) == []


def test_batch_request_of_an_init_container_counts() -> None:
    assert rules(pod(initContainers=[container({"kubernetes.io/batch-cpu": "1"})])) == [Rule.BATCH_REQUIRES_BE]


def test_class_label_and_number_of_the_same_class_may_be_exchanged() -> None:
    by_label = pod(labels={keys.PRIORITY_CLASS: "koord-batch", keys.SUB_PRIORITY: ""})
    by_number = pod(priority=5100)
    assert rules(by_number, by_label) == []
    assert rules(pod(priority=7100), by_label) == [Rule.IMMUTABLE_PRIORITY_CLASS]


@pytest.mark.parametrize("name", ["LSR", "LSE"])
def test_whole_cores_are_judged_on_the_pod_total_with_overhead(name: str) -> None:
    labels = {keys.QOS_CLASS: name}
    assert rules(pod(container({"cpu": "900m"}), labels=labels, priority=9000, overhead={"cpu": "100m"})) == []
    assert rules(pod(container({"cpu": "0"}), labels=labels, priority=9000)) == [Rule.CPU_REQUIRED]
