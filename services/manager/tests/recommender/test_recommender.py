"""From reports to recommendations: who is looked at, what is said, what is carried out, what a restart knows."""

import json
from typing import Any

import msgspec
import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.mutating import mutate_pod
from koord_manager.domain.admission.request import Operation
from koord_manager.domain.controllers.recommender import controller as rounds
from koord_manager.domain.controllers.recommender.apply import apply_to_new_pod
from koord_manager.domain.controllers.recommender.book import ModelKey, RecommenderBook
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.recommender.model import ContainerModel
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS
from koord_manager.domain.controllers.recommender.targets import Targets
from koord_manager.domain.gateway.published_status import bounds_text, recommendation_status
from koordcore.events.gateway import PodEvictionRequested, PodResizeRequested
from koordcore.events.objects import CustomObjectDeleted, custom_ref
from koordcore.events.observation import ContainerUsage, Usage
from koordcore.events.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.protocol import keys
from koordcore.protocol.objects import OwnerReference, Pod
from koordcore.state.aggregates import RecommendationState
from koordcore.values.timestamps import rfc3339
from support.manager.world import GIB, ManagerWorld, usage_of

HOUR = 3600
DAY = 24 * HOUR
DEPLOYMENT = {"type": "workload", "workload": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}


def recommendation(target: dict[str, Any] = DEPLOYMENT, *, mode: str = "", policy: str = "") -> dict[str, Any]:
    annotations = {
        key: value
        for key, value in (
            ("analysis.koordinator.sh/update-mode", mode),
            ("analysis.koordinator.sh/resource-policy", policy),
        )
        if value
    }
    return {
        "apiVersion": "analysis.koordinator.sh/v1alpha1",
        "kind": "Recommendation",
        "metadata": {"namespace": "default", "name": "web", "annotations": annotations},
        "spec": {"target": target},
    }


def pod(
    *, cpu: str = "1", memory: str = "1Gi", owner: str = "", qos: str = "LS", limits: dict[str, str] | None = None
) -> dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "name": "web-abc", "uid": owner, "controller": True}] if owner else []
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": limits or {}}
    return {
        "metadata": {"labels": {"app": "web", "koordinator.sh/qosClass": qos}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "app", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }


class Cluster(ManagerWorld):
    """A Deployment `web` with two pods on one node."""

    def __init__(self) -> None:
        super().__init__()
        self.plain_node()
        self.workload("Deployment", "web", uid="d")
        above = OwnerReference(kind="Deployment", name="web", uid="d", controller=True)
        self.workload("ReplicaSet", "web-abc", uid="rs", owners=[above])
        self.pods = [self.pod(uid, pod(owner="rs"), on="n") for uid in ("p1", "p2")]
        self.rounds = RecommenderController()

    def live(self, minutes: int, cpu_milli: int = 500, memory_bytes: int = GIB) -> list[Any]:
        """That many minutes with a report in each; what was said in them."""
        said: list[Any] = []
        for _ in range(minutes):
            self.pass_time(60)
            samples = [usage_of(pod, cpu_milli, memory_bytes) for pod in self.pods]
            report = self.report(cpu_milli=2 * cpu_milli, pods=samples)
            self.rounds.book.observe(self.view, self.view.obs_position, "n", report)
            said.extend(self.take(self.rounds.drafts(self.view, self.now)))
        return said

    @property
    def state(self) -> RecommendationState:
        return self.view.state.of_kind(RecommendationState)["default=web"]

    def conditions(self) -> dict[str, str]:
        return {condition.type: condition.status for condition in self.state.conditions}


@pytest.fixture(name="cluster")
def _cluster() -> Cluster:
    cluster = Cluster()
    cluster.custom("recommendations", recommendation())
    return cluster


def test_a_workload_target_learns_from_pods_behind_its_replica_set(cluster: Cluster) -> None:
    first = cluster.live(1)[0]
    assert isinstance(first, RecommendationComputed)
    assert (first.cause, first.target, first.pods) == ("first", "Deployment/web", 2)
    (container,) = first.containers
    assert container.name == "app"
    assert container.samples == 2
    assert container.target.cpu_milli >= 500
    assert container.percentiles["target"].cpu_cores >= 0.5
    assert cluster.conditions() == {"RecommendationProvided": "True", "LowConfidence": "True"}

    cluster.live(13 * 60)
    assert cluster.conditions()["LowConfidence"] == "True", "two pods give a day's samples in half a day, not a day"
    cluster.live(12 * 60)
    assert cluster.conditions() == {"RecommendationProvided": "True", "LowConfidence": "False"}


def mirrored(kind: str, name: str, uid: str, above: dict[str, Any]) -> dict[str, Any]:
    meta = {"namespace": "default", "name": name, "uid": uid, "ownerReferences": [{**above, "controller": True}]}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": {}}


@pytest.mark.parametrize(
    ("kind", "plural", "above"), [("ReplicaSet", "replicasets", "Deployment"), ("Job", "jobs", "CronJob")]
)
def test_a_workload_target_is_reached_through_owners_that_the_api_server_has(
    kind: str, plural: str, above: str
) -> None:
    world, targets = ManagerWorld(), Targets()
    target = {"type": "workload", "workload": {"kind": above, "name": "web", "apiVersion": "v1"}}
    world.custom("recommendations", recommendation(target))
    document = pod(owner="o")
    document["metadata"]["ownerReferences"][0].update(kind=kind, name="made-up")
    world.pod("p", document)
    targets.refresh(world.view)
    assert targets.of_pod(world.view, "p") == ()

    # the owner is seen after its pod; another object of its name is not the owner
    owner = {"kind": above, "name": "web", "uid": "w"}
    world.custom(plural, mirrored(kind, "made-up", "another", owner))
    assert targets.of_pod(world.view, "p") == ()
    world.custom(plural, mirrored(kind, "made-up", "o", owner))
    assert [wanted.name for wanted in targets.of_pod(world.view, "p")] == ["web"]
    world.custom(plural, mirrored(kind, "made-up", "o", {**owner, "name": "other"}))
    assert targets.of_pod(world.view, "p") == ()


def test_equal_amounts_are_said_again_only_every_ten_minutes(cluster: Cluster) -> None:
    cluster.live(26 * 60)
    said = cluster.live(60)
    assert {event.cause for event in said} == {"refreshed"}
    assert len(said) == 6


def test_a_deployment_whose_replica_set_is_not_known_is_found_by_its_template_hash() -> None:
    cluster = Cluster()
    cluster.custom("recommendations", recommendation())
    stranger = pod(owner="nobody-knows")
    stranger["metadata"]["labels"]["pod-template-hash"] = "abc"
    cluster.pods.append(cluster.pod("p3", stranger, on="n"))
    (first, *_) = cluster.live(1)
    assert first.pods == 3


def test_a_selector_target_looks_at_the_pods_of_its_namespace() -> None:
    cluster = Cluster()
    cluster.custom(
        "recommendations", recommendation({"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}})
    )
    (first, *_) = cluster.live(1)
    assert (first.target, first.pods, len(first.containers)) == ("pods app=web", 2, 1)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"type": "workload"}, "spec.target.workload"),
        ({"type": "workload", "workload": {"kind": "Deployment"}}, "spec.target.workload.name"),
        ({"type": "podSelector"}, "spec.target.podSelector"),
        ({"type": "podSelector", "podSelector": {}}, "spec.target.podSelector"),
        ({"type": "magic"}, "spec.target.type"),
    ],
)
def test_a_target_that_says_nothing_is_a_condition_that_names_the_field(target: dict[str, Any], field: str) -> None:
    cluster = Cluster()
    cluster.custom("recommendations", recommendation(target))
    cluster.live(2)
    assert cluster.conditions() == {"RecommendationProvided": "False", "ConfigUnsupported": "True"}
    assert field in cluster.state.conditions[1].message


def test_no_pods_is_said_and_what_was_learned_survives_them(cluster: Cluster) -> None:
    cluster.live(60)
    before = cluster.state.containers
    for gone in cluster.pods:
        cluster.delete_pod(gone.metadata.uid)
    cluster.pods = []
    cluster.live(2)
    assert cluster.conditions()["NoObjectsMatched"] == "True"
    assert [container.target for container in cluster.state.containers] == [container.target for container in before]
    cluster.pass_time(9 * 24 * HOUR)
    cluster.live(2)
    assert cluster.state.containers == []


def test_a_deleted_recommendation_is_dropped_once(cluster: Cluster) -> None:
    cluster.live(1)
    ref = custom_ref("recommendations", "default", "web")
    cluster.fact(ref, CustomObjectDeleted(kind="Recommendation", namespace="default", name="web"))
    said = cluster.live(3)
    assert [type(event) for event in said] == [RecommendationDropped]


def test_the_policy_caps_what_is_recommended_and_shows_what_it_would_have_been(cluster: Cluster) -> None:
    policy = '{"*": {"maxAllowed": {"cpu": "100m"}, "minAllowed": {"memory": "4Gi"}}}'
    cluster.custom("recommendations", recommendation(policy=policy))
    cluster.live(5)
    (container,) = cluster.state.containers
    assert (container.target.cpu_milli, container.target.memory_bytes) == (100, 4 * GIB)
    assert container.uncapped_target.cpu_milli > 500


def test_a_maximum_of_zero_is_none(cluster: Cluster) -> None:
    cluster.custom("recommendations", recommendation(policy='{"*": {"maxAllowed": {"cpu": "0", "memory": "0"}}}'))
    cluster.live(5)
    (container,) = cluster.state.containers
    assert container.target == container.uncapped_target
    assert container.target.cpu_milli > 500


def test_a_container_that_the_policy_leaves_alone_gets_no_recommendation(cluster: Cluster) -> None:
    cluster.custom("recommendations", recommendation(policy='{"app": {"mode": "Off"}}'))
    cluster.live(5)
    assert cluster.state.containers == []


def test_a_kill_for_memory_raises_what_is_recommended(cluster: Cluster) -> None:
    cluster.live(60)
    calm = cluster.state.containers[0].target.memory_bytes
    cluster.pass_time(60)
    sample = usage_of(cluster.pods[0], 500, GIB)
    killed = ContainerUsage(name="app", usage=Usage(500, GIB), oom_killed_at=cluster.report().updated_at)
    sample = msgspec.structs.replace(sample, containers=[killed])
    report = cluster.report(pods=[sample])
    for position in (1, 2):  # told twice, counted once
        cluster.rounds.book.observe(cluster.view, cluster.view.obs_position + position, "n", report)
    model = cluster.rounds.book.models_of("default", "Deployment/web")["app"]
    assert model.instances["p1/app"].oom_peak == pytest.approx(1.2 * GIB, abs=1)
    cluster.take(cluster.rounds.drafts(cluster.view, cluster.now))
    assert cluster.state.containers[0].target.memory_bytes > calm


def test_a_kill_counts_although_the_sample_after_it_begins_the_next_day() -> None:
    model = ContainerModel.empty(DEFAULT_SETTINGS)
    for at in (0, DAY - 60, DAY + 30):
        model.add_memory("p1/app", GIB, at)
    assert not model.add_oom("p1/app", 29, requested_bytes=GIB)
    assert model.add_oom("p1/app", DAY - 30, requested_bytes=GIB)
    assert model.memory.percentile(0.95) > 1.2 * GIB


def test_a_kill_that_is_told_with_the_first_usage_is_a_kill_at_that_usage(cluster: Cluster) -> None:
    cluster.pass_time(60)
    killed = ContainerUsage(name="app", usage=Usage(500, 3 * GIB), oom_killed_at=cluster.report().updated_at)
    sample = msgspec.structs.replace(usage_of(cluster.pods[0], 500, 3 * GIB), containers=[killed])
    cluster.pass_time(20)
    cluster.rounds.book.observe(cluster.view, 1, "n", cluster.report(pods=[sample]))
    model = cluster.rounds.book.models_of("default", "Deployment/web")["app"]
    assert model.instances["p1/app"].oom_peak == pytest.approx(1.2 * 3 * GIB, abs=1)


@pytest.mark.parametrize(("written", "as_much_as"), [("2", "2"), ("much", "0")])
def test_samples_of_a_start_with_a_boost_weigh_as_much_as_later_ones(written: str, as_much_as: str) -> None:
    boosted = pod(cpu="6", owner="rs")
    amounts = {"app": {"boosted": "6000m", "request": written}}
    boosted["metadata"]["annotations"] = {"analysis.koordinator.sh/startup-boost": json.dumps(amounts)}
    weights: list[object] = []
    for document in (boosted, pod(cpu=as_much_as, owner="rs")):
        cluster = Cluster()
        cluster.custom("recommendations", recommendation())
        cluster.pods = [cluster.pod("p3", document, on="n")]
        cluster.live(3)
        weights.append(cluster.rounds.book.models_of("default", "Deployment/web")["app"].cpu.weights)
    assert weights[0] == weights[1]


def test_a_resource_without_samples_has_no_target_and_is_left_alone(cluster: Cluster) -> None:
    cluster.custom("recommendations", recommendation(mode="Recreate"))
    said = cluster.live(25 * 60, cpu_milli=1000, memory_bytes=0)
    (container,) = cluster.state.containers
    assert cluster.conditions() == {"RecommendationProvided": "True", "LowConfidence": "False"}
    assert container.target.cpu_milli > 1000
    assert [
        each.memory_bytes
        for each in (container.target, container.lower_bound, container.upper_bound, container.uncapped_target)
    ] == [0, 0, 0, 0]
    resources = recommendation_status(cluster.state)["podStatus"]["containerStatuses"][0]["resources"]
    assert resources == {"cpu": f"{container.target.cpu_milli}m"}
    assert "memory" not in bounds_text(cluster.state.containers)
    assert "memory" not in str([event for event in said if isinstance(event, PodEvictionRequested)])
    new = pod(memory="4Gi", owner="rs")
    new["metadata"]["namespace"] = "default"
    assert apply_to_new_pod(cluster.view, Targets(), new, "default", tells_usage=True) == "web"
    requests = new["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": f"{container.target.cpu_milli}m", "memory": "4Gi"}
    assert keys.RECOMMENDED_USAGE not in new["metadata"].get("annotations", {})


def test_a_kill_before_any_sample_raises_memory_and_is_no_sample(cluster: Cluster) -> None:
    cluster.live(60)
    before = cluster.rounds.book.models_of("default", "Deployment/web")["app"]
    samples, peak = before.count, before.memory.percentile(1.0)
    cluster.pass_time(60)
    killed = ContainerUsage(name="app", usage=Usage(), oom_killed_at=cluster.report().updated_at)
    several = msgspec.structs.replace(usage_of(cluster.pods[0], 500, GIB), containers=[killed])
    cluster.rounds.book.observe(cluster.view, cluster.view.obs_position + 1, "n", cluster.report(pods=[several]))
    model = cluster.rounds.book.models_of("default", "Deployment/web")["app"]
    assert (model.count, model.memory.percentile(1.0) > peak) == (samples, True)


def test_a_kill_of_the_only_container_of_a_pod_raises_its_memory(cluster: Cluster) -> None:
    cluster.live(1)
    cluster.pass_time(60)
    usage = usage_of(cluster.pods[0], 500, GIB)
    killed = msgspec.structs.replace(usage, oom_killed_at=cluster.report().updated_at)
    cluster.rounds.book.observe(cluster.view, cluster.view.obs_position + 1, "n", cluster.report(pods=[killed]))
    model = cluster.rounds.book.models_of("default", "Deployment/web")["app"]
    assert model.instances["p1/app"].oom_peak == pytest.approx(1.2 * GIB, abs=1)


def test_a_checkpoint_and_the_reports_since_give_the_same_book(cluster: Cluster) -> None:
    cluster.live(90)
    checkpoint = cluster.rounds.book.checkpoint()
    cluster.live(45, cpu_milli=900)

    restarted = Cluster()
    restarted.custom("recommendations", recommendation())
    restarted.rounds.book.restore(checkpoint)
    restarted.pass_time(90 * 60)
    restarted.live(45, cpu_milli=900)
    assert restarted.rounds.book.models == cluster.rounds.book.models


@pytest.mark.parametrize(
    ("changed", "kept"), [({"oom_bump_up_ratio": 2.0}, False), ({"safety_margin_fraction": 0.4}, True)]
)
def test_a_checkpoint_is_forgotten_as_a_change_of_settings_forgets(
    cluster: Cluster, changed: dict[str, float], kept: bool
) -> None:
    cluster.live(90)
    settings = msgspec.structs.replace(DEFAULT_SETTINGS, **changed)
    restarted = RecommenderBook(settings)
    restarted.restore(cluster.rounds.book.checkpoint())
    cluster.rounds.book.use(settings)
    assert restarted.models == cluster.rounds.book.models
    assert restarted.position == cluster.rounds.book.position
    assert (bool(restarted.models), bool(restarted.position)) == (kept, kept)


def confident(mode: str, policy: str = "") -> Cluster:
    """Two days of 500 milli-cores and 1 GiB."""
    cluster = Cluster()
    cluster.custom("recommendations", recommendation(mode=mode, policy=policy))
    model = ContainerModel.empty(DEFAULT_SETTINGS)
    begin = cluster.now.timestamp() - 2 * 24 * HOUR
    for minute in range(2 * 24 * 60):
        model.add_cpu("old/app", 0.5, begin + 60 * minute, requested_cores=1)
        model.add_memory("old/app", GIB, begin + 60 * minute)
    cluster.rounds.book.targets.refresh(cluster.view)
    cluster.rounds.book.models[ModelKey("default", "Deployment/web", "app")] = model
    cluster.take(cluster.rounds.drafts(cluster.view, cluster.now))
    assert cluster.conditions()["LowConfidence"] == "False"
    return cluster


def created(cluster: Cluster, document: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    step = apply_to_new_pod(cluster.view, cluster.rounds.book.targets, document, "default")
    return step, document["spec"]["containers"][0]["resources"]


def test_in_mode_initial_a_new_pod_gets_the_target_and_its_limits_follow() -> None:
    cluster = confident("Initial")
    step, resources = created(cluster, pod(owner="rs", cpu="2", limits={"cpu": "4"}))
    target = cluster.state.containers[0].target
    assert step == "web"
    assert resources["requests"] == {"cpu": f"{target.cpu_milli}m", "memory": str(target.memory_bytes)}
    assert resources["limits"] == {"cpu": f"{2 * target.cpu_milli}m"}


def test_the_scheduler_is_told_in_every_mode_what_a_new_pod_is_expected_to_use_if_that_is_wanted() -> None:
    cluster = confident("Off")
    targets, target = cluster.rounds.book.targets, cluster.state.containers[0].target
    silent, told, own = pod(owner="rs"), pod(owner="rs"), pod(owner="rs")
    own["metadata"]["annotations"] = {keys.RECOMMENDED_USAGE: "{}"}
    assert apply_to_new_pod(cluster.view, targets, silent, "default") is None
    assert apply_to_new_pod(cluster.view, targets, told, "default", tells_usage=True) == "web"
    assert apply_to_new_pod(cluster.view, targets, own, "default", tells_usage=True) is None
    expected = {"cpu": f"{target.cpu_milli}m", "memory": str(target.memory_bytes)}
    assert json.loads(told["metadata"]["annotations"][keys.RECOMMENDED_USAGE]) == expected
    assert told["spec"] == silent["spec"]
    assert own["metadata"]["annotations"] == {keys.RECOMMENDED_USAGE: "{}"}


def test_admission_takes_it_as_one_of_its_steps_and_keeps_it_when_the_fold_is_loaded_anew() -> None:
    cluster = confident("Initial")
    targets = cluster.rounds.book.targets
    cluster.view.recommend_with(lambda document, ns: apply_to_new_pod(cluster.view, targets, document, ns))
    cluster.view.load(cluster.view.state)
    submitted = pod(owner="rs")
    mutated, steps = mutate_pod(Operation.CREATE, submitted, "default", cluster.view.admission, Options(), lambda _: 0)
    assert steps[0] == "Recommendation/web"
    assert mutated["spec"]["containers"][0]["resources"]["requests"]["cpu"] != "1"
    assert submitted["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


def test_with_requests_only_limits_stay_and_are_never_exceeded() -> None:
    cluster = confident("Initial", policy='{"app": {"controlledValues": "RequestsOnly"}}')
    _, resources = created(cluster, pod(owner="rs", limits={"cpu": "100m"}))
    assert resources["requests"]["cpu"] == "100m"
    assert resources["limits"] == {"cpu": "100m"}


def test_exclusive_cpus_are_rounded_up_to_whole_cores() -> None:
    _, resources = created(confident("Initial"), pod(owner="rs", qos="LSR"))
    assert resources["requests"]["cpu"] == "1000m"


@pytest.mark.parametrize(("qos", "boosts", "factor"), [("LS", True, 3), ("LS", False, 1), ("LSR", True, None)])
def test_a_new_pod_is_boosted_on_top_of_what_is_recommended(qos: str, boosts: bool, factor: int | None) -> None:
    cluster = confident("Initial", policy='{"app": {"startupBoost": {"cpu": {"factor": 3}}}}')
    new = pod(owner="rs", qos=qos)
    assert apply_to_new_pod(cluster.view, Targets(), new, "default", boosts=boosts) == "web"
    target = cluster.state.containers[0].target.cpu_milli
    expected = f"{factor * target}m" if factor else "1000m"
    assert new["spec"]["containers"][0]["resources"]["requests"]["cpu"] == expected
    assert ("analysis.koordinator.sh/startup-boost" in new["metadata"].get("annotations", {})) == (factor == 3)


def test_a_boost_never_changes_the_qos_class() -> None:
    policy = {"startupBoost": {"cpu": {"factor": 3}}, "controlledValues": "RequestsOnly"}
    cluster = confident("Initial", policy=json.dumps({"app": policy}))
    target = cluster.state.containers[0].target
    limits = {"cpu": f"{2 * target.cpu_milli}m", "memory": str(target.memory_bytes)}
    lone = pod(owner="rs", limits=limits)
    assert apply_to_new_pod(cluster.view, Targets(), lone, "default", boosts=True) == "web"
    assert lone["spec"]["containers"][0]["resources"]["requests"]["cpu"] == f"{target.cpu_milli}m"
    assert "analysis.koordinator.sh/startup-boost" not in lone["metadata"].get("annotations", {})
    joined = pod(owner="rs", limits=limits)
    joined["spec"]["containers"].append({"name": "other", "image": "i"})
    assert apply_to_new_pod(cluster.view, Targets(), joined, "default", boosts=True) == "web"
    assert joined["spec"]["containers"][0]["resources"]["requests"]["cpu"] == limits["cpu"]


@pytest.mark.parametrize("mode", ["", "Off"])
def test_in_mode_off_nothing_is_applied(mode: str) -> None:
    step, resources = created(confident(mode), pod(owner="rs"))
    assert step is None
    assert resources["requests"]["cpu"] == "1"


def test_batch_pods_and_short_histories_are_left_alone() -> None:
    step, _ = created(confident("Initial"), pod(owner="rs", qos="BE"))
    assert step is None
    young = Cluster()
    young.custom("recommendations", recommendation(mode="Initial"))
    young.live(10)
    step, _ = created(young, pod(owner="rs"))
    assert step is None


def evictions(said: list[Any]) -> list[PodEvictionRequested]:
    return [event for event in said if isinstance(event, PodEvictionRequested)]


def test_in_mode_recreate_one_pod_at_a_time_is_evicted_with_the_reason() -> None:
    cluster = confident("Recreate")
    for uid in ("p1", "p2"):
        cluster.pod(uid, pod(owner="rs", cpu="30"), on="n")
    (eviction,) = evictions(cluster.live(1))
    assert (eviction.name, eviction.method, eviction.initiator) == ("p1", "evict", "recommender")
    assert "requests 30000m of cpu" in eviction.message
    assert evictions(cluster.live(30)) == [], "the first is still under way"


@pytest.mark.parametrize(("modes", "count"), [(("Initial", "Recreate"), 0), (("Off", "Recreate"), 1)])
def test_only_the_oldest_recommendation_whose_mode_is_not_off_changes_a_pod(modes: tuple[str, str], count: int) -> None:
    cluster = confident("Off")
    for name, mode in zip(("a", "b"), modes, strict=True):
        other = recommendation(mode=mode)
        other["metadata"]["name"] = name
        cluster.custom("recommendations", other)
    for uid in ("p1", "p2"):
        cluster.pod(uid, pod(owner="rs", cpu="30"), on="n")
    assert len(evictions(cluster.live(2))) == count
    recommended = cluster.view.state.of_kind(RecommendationState)
    assert all(recommended[f"default={name}"].containers for name in ("a", "b"))


def test_a_boost_is_ended_by_the_recommendation_that_gave_it() -> None:
    cluster = confident("Initial", policy='{"app": {"startupBoost": {"cpu": {"factor": 3, "durationSeconds": 600}}}}')
    younger = recommendation(mode="Initial")
    younger["metadata"]["name"] = "younger"
    cluster.custom("recommendations", younger)
    cluster.rounds.can_resize = True
    new = pod(owner="rs")
    assert apply_to_new_pod(cluster.view, Targets(), new, "default", boosts=True) == "web"
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(cluster.now)}
    cluster.pod("p3", {**new, "status": {"phase": "Running", "conditions": [ready]}}, on="n")

    def resizes(minutes: int) -> int:
        return sum(isinstance(event, PodResizeRequested) for event in cluster.live(minutes))

    assert resizes(9) == 0
    assert resizes(2) == 1


def test_a_pod_close_to_the_target_is_left_for_half_a_day_and_a_lone_one_for_ever() -> None:
    cluster = confident("Auto")
    target = cluster.state.containers[0].target
    near = pod(owner="rs", cpu=f"{int(target.cpu_milli * 1.2)}m", memory=str(target.memory_bytes))
    for uid in ("p1", "p2"):
        cluster.pod(uid, near, on="n")
    assert evictions(cluster.live(5)) == []
    cluster.pass_time(12 * HOUR)
    (eviction,) = evictions(cluster.live(1))
    assert "20 % in sum" in eviction.message

    lone = confident("Auto")
    lone.delete_pod("p2")
    lone.pods.pop()
    lone.pod("p1", pod(owner="rs", cpu="30"), on="n")
    assert evictions(lone.live(5)) == []


def test_many_pods_are_matched_in_parts_and_judged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MATCHED_AT_ONCE", 1)
    cluster = Cluster()
    cluster.custom("recommendations", recommendation())
    assert cluster.rounds.drafts(cluster.view, cluster.now) == []
    assert cluster.rounds.is_due(cluster.now), "the round is not over"
    (draft,) = cluster.rounds.drafts(cluster.view, cluster.now)
    assert isinstance(draft.event, RecommendationComputed)
    assert draft.event.pods == 2
    assert not cluster.rounds.is_due(cluster.now)


def test_a_pod_of_another_owner_is_none_of_its_business(cluster: Cluster) -> None:
    other: Pod = cluster.pod("x", pod(owner="someone-else"), on="n")
    cluster.pods = [other]
    cluster.live(3)
    assert cluster.state.containers == []


def test_a_report_about_a_pod_of_another_node_teaches_nothing(cluster: Cluster) -> None:
    cluster.live(5)
    learned = cluster.rounds.book.samples
    report = cluster.report(pods=[usage_of(each, 1_000_000, 1000 * GIB) for each in cluster.pods])
    cluster.rounds.book.observe(cluster.view, cluster.view.obs_position + 1, "n2", report)
    assert cluster.rounds.book.samples == learned


def test_a_report_about_a_pod_that_waits_teaches_nothing(cluster: Cluster) -> None:
    waiting = cluster.pod("p3", pod(owner="rs"))
    report = cluster.report(pods=[usage_of(waiting, 1_000_000, GIB)])
    cluster.rounds.book.observe(cluster.view, cluster.view.obs_position + 1, "n", report)
    assert cluster.rounds.book.samples == 0
