"""What enters the log of the resources that kubelets tell in the status of pods."""

import pytest
from koord_manager.domain.gateway.mirror import Seen, cleaned, next_draft
from koord_manager.domain.gateway.resources import PODS
from koord_manager.shell.gateway.reading import read_pod
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.values import codec
from support.manager.world import ManagerWorld

Json = dict[str, object]


def document(
    wanted: Json, actual: Json | None, allocated: Json | None = None, *conditions: Json, limits: Json | None = None
) -> Json:
    resources = {"requests": wanted, "limits": limits or {}}
    status: Json = {"name": "main", "allocatedResources": allocated}
    if actual is not None:
        status["resources"] = {"requests": actual, "limits": limits or {}}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"nodeName": "a", "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running", "containerStatuses": [status], "conditions": list(conditions)},
    }


def stored(of: Json) -> Pod:
    found = pod_from_json(of)
    in_log = cleaned(PODS, pod_from_json(of))
    assert isinstance(in_log, Pod)
    assert in_log == read_pod(codec.encode(of))
    assert pod_requests(in_log) == pod_requests(found)
    return in_log


@pytest.mark.parametrize(
    ("wanted", "actual", "allocated"),
    [
        ({"cpu": "1"}, None, None),
        ({"cpu": "1"}, {"cpu": "1"}, {"cpu": "1"}),
        ({"cpu": "1"}, {"cpu": "1"}, None),
        ({"cpu": "1"}, {"cpu": "1000m"}, {"cpu": "1"}),
        ({"cpu": "1"}, {"cpu": "998m"}, {"cpu": "1"}),  # as the kernel rounds it
        ({"cpu": "3"}, {"cpu": "1"}, {"cpu": "1"}),  # a resize up counts with its spec
        ({"cpu": "1"}, None, {"cpu": "3"}),
    ],
)
def test_what_counts_as_the_spec_is_left_out(wanted: Json, actual: Json | None, allocated: Json | None) -> None:
    assert stored(document(wanted, actual, allocated)) == stored(document(wanted, None))


def test_what_counts_otherwise_is_kept_without_limits() -> None:
    in_log = stored(document({"cpu": "1"}, {"cpu": "3"}, {"cpu": "1"}, limits={"cpu": "4"}))
    [status] = in_log.status.container_statuses
    assert status.resources is not None
    assert (status.resources.requests, status.resources.limits) == ({"cpu": "3"}, {})
    assert status.allocated_resources == {"cpu": "1"}
    infeasible: Json = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert pod_requests(stored(document({"cpu": "64"}, {"cpu": "1"}, {"cpu": "1"}, infeasible))) == {"cpu": 1000}


def test_each_step_of_a_resize_down_is_a_fact_and_nothing_else_is() -> None:
    world = ManagerWorld()
    steps: list[tuple[Json, int]] = [
        (document({"cpu": "3"}, {"cpu": "3"}, {"cpu": "3"}), 3000),
        (document({"cpu": "1"}, {"cpu": "3"}, {"cpu": "3"}), 3000),
        (document({"cpu": "1"}, {"cpu": "3"}, {"cpu": "1"}), 3000),
        (document({"cpu": "1"}, {"cpu": "1"}, {"cpu": "1"}), 1000),
    ]
    for step, counted in steps:
        seen = Seen(PODS, cleaned(PODS, pod_from_json(step)))
        draft = next_draft(world.view, seen)
        assert draft is not None
        assert isinstance(draft.event, PodSpecAdded | PodSpecChanged)
        assert pod_requests(draft.event.object) == {"cpu": counted}
        world.fact(draft.ref, draft.event)
        assert next_draft(world.view, seen) is None
