"""More CPU while a pod starts: at admission, until it is ready for long enough, and when it is taken back."""

import json
from datetime import timedelta
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options, changed_settings, options_from
from koord_manager.domain.controllers.recommender.apply import replacement_drafts
from koord_manager.domain.controllers.recommender.startup_boost import boost, boost_annotation, boosted_containers
from koord_manager.domain.controllers.recommender.targets import Wanted
from koord_manager.settings import ManagerSettings, admission_options
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodResizeAnswered, PodResizeRequested
from koordcore.events.objects import PodSpecChanged
from koordcore.protocol.objects import PodCondition, pod_from_json
from koordcore.protocol.recommendations import RESOURCE_POLICY, Target, UpdateMode, resource_policies
from koordcore.state.aggregates import PodSpecState
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339
from msgspec.structs import replace
from support.manager.world import ManagerWorld

TWICE = {"type": "Factor", "factor": 2, "durationSeconds": 120}


def policies(boost: dict[str, Any], **policy: Any) -> dict[str, Any]:
    written = {"app": {"startupBoost": {"cpu": boost}, **policy}}
    return resource_policies({RESOURCE_POLICY: json.dumps(written)})


def resources(requests: str, limits: str = "") -> dict[str, Any]:
    return {"requests": {"cpu": requests, "memory": "1Gi"}, **({"limits": {"cpu": limits}} if limits else {})}


@pytest.mark.parametrize(
    ("wanted", "policy", "before", "after"),
    [
        (TWICE, {}, ("500m", ""), ("1000m", "")),
        (TWICE, {}, ("500m", "1"), ("1000m", "2000m")),
        (TWICE, {"controlledValues": "RequestsOnly"}, ("500m", "750m"), ("750m", "750m")),
        ({"type": "Quantity", "quantity": "1500m"}, {}, ("500m", ""), ("2000m", "")),
    ],
)
def test_cpu_of_a_new_pod_is_raised(
    wanted: dict[str, Any], policy: dict[str, Any], before: tuple[str, str], after: tuple[str, str]
) -> None:
    container = {"name": "app", "resources": resources(*before)}
    raised = boost(container, policies(wanted, **policy)["app"])
    assert raised is not None
    assert (raised.boosted, raised.request) == (after[0], before[0])
    assert container["resources"] == resources(*after)
    document = {"metadata": {"annotations": boost_annotation({"app": raised})}, "spec": {"containers": [container]}}
    assert boosted_containers(pod_from_json(document)) == {"app": raised}


@pytest.mark.parametrize(
    ("wanted", "before"),
    [({"type": "Factor", "factor": 1}, "1"), ({"type": "Quantity"}, "1"), (TWICE, "0"), (TWICE, "much")],
)
def test_a_boost_of_nothing_changes_nothing(wanted: dict[str, Any], before: str) -> None:
    container = {"name": "app", "resources": resources(before)}
    assert boost(container, policies(wanted)["app"]) is None
    assert container["resources"] == resources(before)
    assert boost_annotation({}) == {}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"type": "Twice"}, "app.startupBoost.cpu.type"),
        ({"factor": 0}, "app.startupBoost.cpu.factor"),
        ({"type": "Quantity", "quantity": "-1"}, "app.startupBoost.cpu.quantity"),
        ({"durationSeconds": -1}, "app.startupBoost.cpu.durationSeconds"),
    ],
)
def test_a_boost_that_cannot_work_is_refused_by_its_field(wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        policies(wanted)


class Cluster(ManagerWorld):
    """Two pods that request one core while they start, and half a core then."""

    def __init__(self, mode: UpdateMode = UpdateMode.INITIAL) -> None:
        super().__init__()
        self.plain_node()
        target = Target("default", "Deployment/web", "Deployment", "web")
        self.wanted = Wanted("default=web", 1, "default", "web", "", target, mode, policies(TWICE), "")
        for uid in ("p1", "p2"):
            container = {"name": "app", "resources": resources("500m")}
            raised = boost(container, self.wanted.policies["app"])
            assert raised is not None
            meta = {"annotations": boost_annotation({"app": raised})}
            document = {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running"}}
            self.pod(uid, document, on="n")

    def drafts(self, *, can_resize: bool = True) -> list[Draft]:
        pods = list(self.view.state.of_kind(PodSpecState).items())
        return replacement_drafts(self.view, self.wanted, pods, self.now, None, can_resize=can_resize)

    def ready(self, uid: str, *, seconds_ago: int, cpu: str = "1000m") -> None:
        pod = self.view.state.of_kind(PodSpecState)[uid].object
        since = rfc3339(self.now - timedelta(seconds=seconds_ago))
        condition = PodCondition(type="Ready", status="True", last_transition_time=since)
        (container,) = pod.spec.containers
        container = replace(container, resources=replace(container.resources, requests={"cpu": cpu, "memory": "1Gi"}))
        pod = replace(
            pod, spec=replace(pod.spec, containers=[container]), status=replace(pod.status, conditions=[condition])
        )
        self.fact(AggregateRef("podspec", uid), PodSpecChanged(object=pod))


@pytest.mark.parametrize("mode", [UpdateMode.INITIAL, UpdateMode.RECREATE, UpdateMode.IN_PLACE_OR_RECREATE])
def test_the_boost_ends_in_place_when_the_pod_was_ready_for_long_enough(mode: UpdateMode) -> None:
    cluster = Cluster(mode)
    assert cluster.drafts() == [], "the pods are not ready"
    cluster.ready("p1", seconds_ago=119)
    assert cluster.drafts() == []
    cluster.ready("p1", seconds_ago=120)
    cluster.ready("p2", seconds_ago=500)
    assert cluster.drafts(can_resize=False) == []
    requests = cluster.take(cluster.drafts())
    assert len(requests) == 2
    for request in requests:
        assert isinstance(request, PodResizeRequested)
        (container,) = request.containers
        assert (container.requests, container.limits, request.message) == ({"cpu": "500m"}, {}, "the pod has started")
    assert cluster.drafts() == [], "requested once"
    specs = cluster.view.state.of_kind(PodSpecState)
    for uid in ("p1", "p2"):
        resize = specs[uid].resize
        assert resize is not None
        cluster.fact(AggregateRef("podspec", uid), PodResizeAnswered(request=resize.seq))
        cluster.ready(uid, seconds_ago=500, cpu="500m")
    assert boosted_containers(specs["p1"].object) == {}
    assert cluster.drafts() == []


def test_mode_off_and_the_flag_leave_pods_alone() -> None:
    cluster = Cluster(UpdateMode.OFF)
    cluster.ready("p1", seconds_ago=500)
    assert cluster.drafts() == []
    on = admission_options(ManagerSettings.load(["--startup-boost", "--gateway"], {}))
    assert on.startup_boost
    assert options_from(changed_settings(on)).startup_boost, "a decision can be repeated"
    assert not admission_options(ManagerSettings.load(["--startup-boost"], {})).startup_boost
    assert not Options().startup_boost
