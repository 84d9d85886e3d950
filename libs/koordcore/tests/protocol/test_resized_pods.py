"""What a pod counts with while it is resized in place, in each state of the resize."""

import pytest
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.protocol.pod_resources import (
    pod_requests,
    pod_requests_nano,
    pod_requests_non_zero,
    resize_of,
    spec_requests,
)
from koordcore.protocol.resource_names import parse_replace_resources, rename_pod, replace_pod_resources

Json = dict[str, object]

DEFERRED: Json = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE: Json = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
IN_PROGRESS: Json = {"type": "PodResizeInProgress", "status": "True"}


def told(actual: Json | None, allocated: Json | None = None, name: str = "main") -> Json:
    resources = {} if actual is None else {"resources": {"requests": actual}}
    return {"name": name, **resources, **({} if allocated is None else {"allocatedResources": allocated})}


def pod(wanted: Json, status: Json, *conditions: Json, **spec: object) -> Pod:
    containers = [{"name": "main", "resources": {"requests": wanted}}]
    status = {"containerStatuses": [status], "conditions": list(conditions)}
    return pod_from_json(
        {"metadata": {"name": "p"}, "spec": {"nodeName": "a", "containers": containers, **spec}, "status": status}
    )


@pytest.mark.parametrize(
    ("wanted", "status", "conditions", "counted"),
    [
        # Nothing is told: a kubelet before 1.33, or a container that was not started yet.
        ("3", told(None), [], 3000),
        ("3", told(None, {"cpu": "1"}), [], 3000),
        # A resize up: asked for, deferred, granted, in force.
        ("3", told({"cpu": "1"}, {"cpu": "1"}), [], 3000),
        ("3", told({"cpu": "1"}, {"cpu": "1"}), [DEFERRED], 3000),
        ("3", told({"cpu": "1"}, {"cpu": "3"}), [IN_PROGRESS], 3000),
        ("3", told({"cpu": "3"}, {"cpu": "3"}), [], 3000),
        # A resize down: asked for, granted, in force.
        ("1", told({"cpu": "3"}, {"cpu": "3"}), [], 3000),
        ("1", told({"cpu": "3"}, {"cpu": "1"}), [IN_PROGRESS], 3000),
        ("1", told({"cpu": "1"}, {"cpu": "3"}), [IN_PROGRESS], 3000),
        ("1", told({"cpu": "1"}, {"cpu": "1"}), [], 1000),
        # What the node can never grant does not count; of two conditions the first decides.
        ("64", told({"cpu": "1"}, {"cpu": "1"}), [INFEASIBLE], 1000),
        ("64", told({"cpu": "1"}, {"cpu": "2"}), [INFEASIBLE], 2000),
        ("64", told({"cpu": "1"}), [INFEASIBLE], 1000),
        ("64", told(None, {"cpu": "1"}), [INFEASIBLE], 64_000),
        ("64", told({"cpu": "1"}), [DEFERRED, INFEASIBLE], 64_000),
    ],
)
def test_a_container_counts_with_the_most_it_may_use(
    wanted: str, status: Json, conditions: list[Json], counted: int
) -> None:
    found = pod({"cpu": wanted}, status, *conditions)
    assert pod_requests(found) == {"cpu": counted}
    assert pod_requests_non_zero(found)["cpu"] == counted
    assert pod_requests_nano(found) == {"cpu": int(wanted) * 10**9}  # admission judges the spec
    assert spec_requests(found) == {"cpu": int(wanted) * 1000}  # metrics show it, too


def test_each_resource_has_its_own_maximum_and_the_texts_are_compared_as_amounts() -> None:
    found = pod({"cpu": "1500m", "memory": "1Gi"}, told({"cpu": "1", "memory": "1100Mi"}, {"cpu": 2, "memory": "1G"}))
    assert pod_requests(found) == {"cpu": 2000, "memory": 1100 * 1024 * 1024}


def test_a_resource_that_only_the_kubelet_tells_counts() -> None:
    found = pod({"cpu": "1"}, told({"cpu": "1", "memory": "1Gi"}))
    assert pod_requests(found) == {"cpu": 1000, "memory": 1 << 30}
    assert pod_requests(pod({"cpu": "1", "x.com/y": "1"}, told({"cpu": "1"}), INFEASIBLE)) == {"cpu": 1000}


def test_a_pod_without_a_node_counts_with_its_spec() -> None:
    found = pod({"cpu": "1"}, told({"cpu": "3"}), nodeName="")
    assert pod_requests(found) == {"cpu": 1000}
    assert resize_of(found) is None


def test_renamed_resources_count_once() -> None:
    both: Json = {"cpu": "1", "koordinator.sh/batch-cpu": "500"}
    found = pod(both, told({**both, "cpu": "2"}, both))
    renamed = rename_pod(found)
    assert pod_requests(renamed) == {"cpu": 2000, "kubernetes.io/batch-cpu": 500}
    assert rename_pod(renamed) is renamed
    replaced = replace_pod_resources(renamed, parse_replace_resources("cpu:x.io/cpu, kubernetes.io/batch-cpu:"))
    assert pod_requests(replaced) == {"x.io/cpu": 2000}


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    def init(name: str, **more: object) -> Json:
        return {"name": name, "resources": {"requests": {"cpu": "1"}}, **more}

    found = pod(
        {"cpu": "1"},
        told({"cpu": "2"}, {"cpu": "1"}),
        initContainers=[init("log", restartPolicy="Always"), init("prepare")],
        overhead={"cpu": "100m"},
    )
    before = pod_requests(found)
    found.status.init_container_statuses = (
        pod({}, told({"cpu": "4"}, name="log")).status.container_statuses[0],
        pod({}, told({"cpu": "64"}, name="prepare")).status.container_statuses[0],
    )
    assert (before, pod_requests(found)) == ({"cpu": 3100}, {"cpu": 6100})


def test_maxima_are_taken_by_container_and_then_summed() -> None:
    # One container gives what the other gets: 1 + 3 before, 3 + 1 after, 3 + 3 meanwhile.
    second = {"name": "other", "resources": {"requests": {"cpu": "1"}}}
    found = pod({"cpu": "3"}, told({"cpu": "1"}))
    found.spec.containers = [*found.spec.containers, *pod_from_json({"spec": {"containers": [second]}}).spec.containers]
    other = pod({}, told({"cpu": "3"}, name="other")).status.container_statuses
    found.status.container_statuses = (*found.status.container_statuses, *other)
    assert pod_requests(found) == {"cpu": 6000}


def test_pod_level_requests_are_resized_too() -> None:
    found = pod({"cpu": "1"}, told({"cpu": "1"}), resources={"requests": {"cpu": "2", "memory": "1Gi"}})
    assert pod_requests(found) == {"cpu": 2000, "memory": 1 << 30}
    status = {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "3"}}
    found.status.resources = pod_from_json({"status": status}).status.resources
    found.status.allocated_resources = {"cpu": "3"}
    assert pod_requests(found) == {"cpu": 4000, "memory": 1 << 30}
    assert pod_requests_non_zero(found) == {"cpu": 4000, "memory": 1 << 30}
