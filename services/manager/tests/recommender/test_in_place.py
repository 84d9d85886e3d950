"""Mode InPlaceOrRecreate: which pods are resized, what the kubelet makes of it, and when a pod is replaced."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from koord_manager.domain.controllers.recommender.apply import replacement_drafts
from koord_manager.domain.controllers.recommender.targets import Wanted
from koord_manager.domain.gateway.pending_writes import RESIZE, PendingWrites
from koord_manager.domain.gateway.resizes import judge_resize, pending_resize, resize_draft, resize_request
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvictionRequested, PodResizeAnswered, PodResizeRequested
from koordcore.events.objects import PodSpecChanged
from koordcore.events.recommendation import ContainerRecommendation, RecommendationCondition, RecommendedAmounts
from koordcore.protocol.objects import PodCondition
from koordcore.protocol.recommendations import ContainerPolicy, Target, UpdateMode
from koordcore.state.aggregates import PodSpecState, RecommendationState
from koordcore.values.timestamps import rfc3339
from support.manager.world import GIB, ManagerWorld


def recommending(cpu_milli: int) -> RecommendationState:
    """That much CPU, 100 milli-cores more or less are acceptable; and 1 GiB."""
    target = RecommendedAmounts(cpu_milli, GIB)
    container = ContainerRecommendation(
        name="app",
        target=target,
        lower_bound=RecommendedAmounts(cpu_milli - 100, GIB // 2),
        upper_bound=RecommendedAmounts(cpu_milli + 100, 2 * GIB),
        uncapped_target=target,
    )
    provided = RecommendationCondition(type="RecommendationProvided", status="True")
    return RecommendationState(seq=1, target="Deployment/web", containers=[container], conditions=[provided])


STATE = recommending(500)


class Cluster(ManagerWorld):
    """Pods `p1` ... of a Deployment on one node, which request one core; 0.5 are recommended."""

    def __init__(self, pods: int = 2, mode: UpdateMode = UpdateMode.IN_PLACE_OR_RECREATE, **spec: Any) -> None:
        super().__init__()
        self.plain_node()
        target = Target("default", "Deployment/web", "Deployment", "web")
        self.wanted = Wanted("default=web", 1, "default", "web", "", target, mode, {}, "")
        self.state = STATE
        self.uids = [f"p{number}" for number in range(1, pods + 1)]
        for uid in self.uids:
            self.pod(uid, document(**spec), on="n")

    def decide(self, minutes: float = 1, *, can_resize: bool = True) -> Event | None:
        """What is requested after some minutes, as the log then has it."""
        self.pass_time(minutes * 60)
        specs = self.view.state.of_kind(PodSpecState)
        pods = [(uid, specs[uid]) for uid in self.uids]
        drafts = replacement_drafts(self.view, self.wanted, pods, self.now, self.state, can_resize=can_resize)
        return next(iter(self.take(drafts)), None)

    def answer(self, uid: str, status: int) -> None:
        resize = pending_resize(self.view, uid)
        assert resize is not None
        judged = judge_resize(resize, status, "said")
        assert judged is not None
        draft = resize_draft(self.view, resize, judged)
        assert draft is not None
        self.take([draft])
        assert pending_resize(self.view, uid) is None
        assert resize_draft(self.view, resize, judged) is None

    def change(self, uid: str, *conditions: PodCondition, cpu: str = "500m", memory: str = "1Gi") -> None:
        pod = self.view.state.of_kind(PodSpecState)[uid].object
        (container,) = pod.spec.containers
        replace = msgspec.structs.replace
        resources = replace(container.resources, requests={"cpu": cpu, "memory": memory})
        spec = replace(pod.spec, containers=[replace(container, resources=resources)])
        pod = replace(pod, spec=spec, status=replace(pod.status, conditions=list(conditions)))
        self.fact(AggregateRef("podspec", uid), PodSpecChanged(object=pod))

    def condition(self, kind: str, reason: str = "") -> PodCondition:
        return PodCondition(type=kind, status="True", reason=reason, last_transition_time=rfc3339(self.now))


def document(*, cpu: str = "1", qos: str = "LS", limits: dict[str, str] | None = None) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": limits or {}}
    return {
        "metadata": {"labels": {"koordinator.sh/qosClass": qos}},
        "spec": {"containers": [{"name": "app", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def test_one_pod_at_a_time_is_resized_and_none_is_evicted() -> None:
    cluster = Cluster()
    first = cluster.decide()
    assert isinstance(first, PodResizeRequested)
    (container,) = first.containers
    assert (container.name, container.requests, container.limits) == ("app", {"cpu": "500m", "memory": str(GIB)}, {})
    assert "requests 1000m of cpu, recommended are 400 to 600m" in first.message
    assert cluster.decide(600) is None, "the API server has not answered"
    cluster.answer("p1", 200)
    assert cluster.decide() is None, "the pod does not show it yet"
    cluster.change("p1", cluster.condition("PodResizeInProgress"))
    assert cluster.decide() is None, "the kubelet is at it"
    cluster.change("p1")
    second = cluster.decide()
    assert isinstance(second, PodResizeRequested)
    assert pending_resize(cluster.view, "p2") is not None
    cluster.answer("p2", 200)
    cluster.change("p2")
    assert cluster.decide(60) is None, "all have what is recommended"


def test_a_lone_pod_is_resized_but_never_evicted() -> None:
    cluster = Cluster(pods=1)
    assert isinstance(cluster.decide(), PodResizeRequested)
    cluster.answer("p1", 422)
    assert cluster.decide() is None
    assert isinstance(cluster.decide(12 * 60), PodResizeRequested), "it may be possible by now"


@pytest.mark.parametrize("pods", [1, 2])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("PodResizePending", "Infeasible"), ("PodResizePending", "Deferred"), ("PodResizeInProgress", "")],
)
def test_a_pod_that_the_kubelet_did_not_resize_is_resized_again_when_other_requests_are_recommended(
    kind: str, reason: str, pods: int
) -> None:
    cluster = Cluster(pods)
    cluster.decide()
    cluster.answer("p1", 200)
    for uid in cluster.uids[1:]:
        cluster.change(uid, cpu="300m")
    cluster.change("p1", cluster.condition(kind, reason))
    cluster.state = recommending(300)
    request = cluster.decide(61)
    assert isinstance(request, PodResizeRequested)
    assert request.containers[0].requests["cpu"] == "300m"
    cluster.answer("p1", 200)
    assert cluster.decide() is None, "the pod does not show it yet"
    cluster.change("p1", cluster.condition("PodResizePending", "Infeasible"), cpu="300m")
    assert isinstance(cluster.decide(), PodEvictionRequested if pods > 1 else type(None)), "the same is not requested"


@pytest.mark.parametrize(("status", "failure"), [(404, "NotFound"), (403, "Forbidden"), (422, "Invalid")])
def test_a_pod_whose_resize_is_refused_is_replaced(status: int, failure: str) -> None:
    cluster = Cluster()
    cluster.decide()
    cluster.answer("p1", status)
    eviction = cluster.decide()
    assert isinstance(eviction, PodEvictionRequested)
    assert eviction.message.endswith(f"; not in place: the API server refused it: {failure}")


@pytest.mark.parametrize("status", [0, 401, 409, 429, 500])
def test_an_answer_that_decides_nothing_is_asked_for_again(status: int) -> None:
    cluster = Cluster()
    cluster.decide()
    resize = pending_resize(cluster.view, "p1")
    assert resize is not None
    assert judge_resize(resize, status, "") is None


def test_a_resize_that_the_kubelet_cannot_carry_out_leads_to_an_eviction() -> None:
    cluster = Cluster()
    cluster.decide()
    cluster.answer("p1", 200)
    cluster.change("p1", cluster.condition("PodResizePending", "Infeasible"))
    eviction = cluster.decide()
    assert isinstance(eviction, PodEvictionRequested)
    assert eviction.message.endswith("not in place: it does not fit on the node")


@pytest.mark.parametrize(
    ("kind", "reason", "minutes", "words"),
    [
        ("PodResizePending", "Deferred", 5, "the kubelet has deferred it for 300 s"),
        ("PodResizeInProgress", "", 60, "it has taken more than 3600 s"),
    ],
)
def test_a_kubelet_that_takes_too_long_leads_to_an_eviction(kind: str, reason: str, minutes: int, words: str) -> None:
    cluster = Cluster()
    cluster.decide()
    cluster.answer("p1", 200)
    cluster.change("p1", cluster.condition(kind, reason))
    assert cluster.decide(minutes - 1) is None
    eviction = cluster.decide(1)
    assert isinstance(eviction, PodEvictionRequested)
    assert words in eviction.message


@pytest.mark.parametrize("qos", ["LSR", "LSE"])
def test_a_pod_that_owns_cpus_is_replaced_at_once(qos: str) -> None:
    eviction = Cluster(qos=qos, cpu="2").decide()
    assert isinstance(eviction, PodEvictionRequested)
    assert "the pod owns CPUs" in eviction.message


def test_a_resize_keeps_the_qos_class_of_the_pod() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    request = Cluster(limits=limits).decide()
    assert isinstance(request, PodResizeRequested)
    assert request.containers[0].limits == {"cpu": "500m", "memory": str(GIB)}, "in proportion, so it stays Guaranteed"
    fixed = Cluster(limits=limits)
    policy = ContainerPolicy(controlled_values="RequestsOnly")
    fixed.wanted = fixed.wanted._replace(policies={"*": policy})
    eviction = fixed.decide()
    assert isinstance(eviction, PodEvictionRequested)
    assert "its QoS class would change from Guaranteed to Burstable" in eviction.message


@pytest.mark.parametrize("mode", [UpdateMode.IN_PLACE_OR_RECREATE, UpdateMode.RECREATE])
@pytest.mark.parametrize("limit", ["300m", "0.3"])
def test_a_pod_whose_limit_keeps_it_below_the_bounds_is_left_alone(limit: str, mode: UpdateMode) -> None:
    cluster = Cluster(cpu=limit, limits={"cpu": limit}, mode=mode)
    cluster.wanted = cluster.wanted._replace(policies={"*": ContainerPolicy(controlled_values="RequestsOnly")})
    assert cluster.decide(13 * 60) is None


@pytest.mark.parametrize("cpu", ["0.2", "200m"])
def test_a_pod_is_resized_up_to_the_limit_that_stays(cpu: str) -> None:
    cluster = Cluster(pods=1, cpu=cpu, limits={"cpu": "0.3"})
    cluster.wanted = cluster.wanted._replace(policies={"*": ContainerPolicy(controlled_values="RequestsOnly")})
    request = cluster.decide()
    assert isinstance(request, PodResizeRequested)
    (container,) = request.containers
    assert (container.requests, container.limits) == ({"cpu": "300m", "memory": str(GIB)}, {"cpu": "0.3"})
    assert request.message == "container app requests 200m of cpu, recommended are 300 to 300m"


@pytest.mark.parametrize("qos", ["LSR", "LSE"])
def test_a_pod_with_whole_cores_is_not_replaced_for_a_fraction_of_one(qos: str) -> None:
    assert Cluster(qos=qos, cpu="1").decide(13 * 60) is None
    eviction = Cluster(qos=qos, cpu="2").decide()
    assert isinstance(eviction, PodEvictionRequested)
    assert "requests 2000m of cpu, recommended are 1000 to 1000m" in eviction.message


def test_without_a_gateway_and_in_other_modes_pods_are_replaced() -> None:
    assert isinstance(Cluster().decide(can_resize=False), PodEvictionRequested)
    assert isinstance(Cluster(mode=UpdateMode.RECREATE).decide(), PodEvictionRequested)
    assert Cluster(mode=UpdateMode.INITIAL).decide() is None


def test_the_request_names_the_uid_and_a_new_leader_sends_it_again() -> None:
    cluster = Cluster()
    event = cluster.decide()
    assert isinstance(event, PodResizeRequested)
    pending = PendingWrites()
    pending.note(cluster.view, [(AggregateRef("podspec", "p1"), event)])
    assert set(pending.queue.take(RESIZE)) == {"p1"}
    cluster.restart()
    pending = PendingWrites()
    pending.seed(cluster.view, cluster.now + timedelta(seconds=1))
    assert set(pending.queue.take(RESIZE)) == {"p1"}
    resize = pending_resize(cluster.view, "p1")
    assert resize is not None
    request = resize_request(resize)
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/default/pods/p1/resize")
    assert request.body == {
        "metadata": {"uid": "p1"},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m", "memory": str(GIB)}}}]},
    }
    late = PodResizeAnswered(request=resize.seq - 1)
    cluster.fact(AggregateRef("podspec", "p1"), late)
    assert pending_resize(cluster.view, "p1") is not None, "the answer to another request"
