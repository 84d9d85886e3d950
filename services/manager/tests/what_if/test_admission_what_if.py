"""What was admitted is decided anew alike, and with other profiles or gates as they say."""

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import support.manager.hostile_objects as hostile
from koord_manager.domain.admission.context.profiles import ColocationProfile, read_profile
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.what_if.admission import AdmissionDecisions, AdmissionFate, AdmissionTried
from koord_manager.domain.what_if.admission_outcome import changes
from koord_manager.domain.what_if.run import ManagerWhatIf
from koordcore.bus.factory import Bus, memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import HEADER_BASED_ON, AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from koordcore.values.timestamps import rfc3339
from koordctl.access.folding import everything_kept
from support.manager.webhook_world import ALL_GATES, WebhookWorld, review_body, webhook_world
from support.mutations import mutated
from support.until import until

pytestmark = pytest.mark.slow

Json = dict[str, Any]
PREFIX = "quota.scheduling.koordinator.sh/"
QOS = "koordinator.sh/qosClass"
NAMESPACE: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
PRIORITY: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5000,
}
PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "be", "labels": {"config.koordinator.sh/controller-managed": "true"}},
    "spec": {"selector": {"matchLabels": {"class": "batch"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
}
CONFIG: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {"colocation-config": '{"enable": true}'},
}
RESERVATION: Json = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "labels": {"class": "batch"}},
    "spec": {
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}]}},
        "owners": [{"object": {"name": "x"}}],
    },
}


def pod(name: str, **labels: str) -> Json:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    container = {"name": "main", "image": "nginx", "resources": resources, "env": [{"name": "A", "value": "secret"}]}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def quota(name: str, maximum: str = "2") -> Json:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": {f"{PREFIX}is-parent": "false"}},
        "spec": {"max": {"cpu": maximum}, "min": {"cpu": 1}},
    }


def workload(name: str, replicas: int, **labels: str) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, **labels}}, "spec": pod("t")["spec"]},
        },
    }


def profile(labels_of_it: Json | None = None, **spec: Any) -> dict[str, ColocationProfile]:
    metadata = {"name": "be", "labels": labels_of_it or {}}
    return {"be": read_profile({**PROFILE, "metadata": metadata, "spec": {**PROFILE["spec"], **spec}})}


class Recording:
    """What a manager told, to be decided anew."""

    def __init__(self, facts: list[StoredEvent], decisions: list[StoredEvent]) -> None:
        self.facts = facts
        self.decisions = decisions

    def again(
        self,
        profiles: dict[str, ColocationProfile] | None = None,
        *,
        begin: int = 0,
        since: str = "",
        **gates: bool,
    ) -> AdmissionDecisions:
        tried = AdmissionTried(profiles=profiles, gates=gates)
        what_if = ManagerWhatIf(
            ManagerView(), admission_decisions=self.decisions, admitting=tried, decisions_since=since
        )
        for stored in self.facts[:begin]:
            what_if.before(stored)
        what_if.begin()
        for stored in self.facts[begin:]:
            what_if.see(stored)
        what_if.end()
        return what_if.admission


async def recorded(bus: Bus) -> Recording:
    """Everything, once the manager has ended: decisions are told a little later."""
    return Recording(await facts_of(bus), await everything_kept(bus.explanations))


async def facts_of(bus: Bus) -> list[StoredEvent]:
    head = await bus.events.head()
    return [stored async for batch in bus.events.history(0, head.last_seq) for stored in batch]


async def until_there_is(world: WebhookWorld, kind: str) -> None:
    async def is_there() -> bool:
        return kind in {one.type for one in await facts_of(world.bus)}

    await until(is_there)


async def mirrored(world: WebhookWorld, document: Json, uid: str) -> None:
    """What the gateway writes of a pod that came in."""
    now = rfc3339(world.shell.clock.now())
    found = pod_from_json(document)
    found.metadata.uid, found.metadata.creation_timestamp = uid, now
    ref = AggregateRef("podspec", uid)
    digest = hashlib.sha256(uid.encode()).hexdigest()
    position = (await world.bus.events.head()).last_seq
    origin = Origin(
        causation_id=f"gateway/{ref}/0/{digest}", correlation_id=uid, actor="g", occurred_at=now, based_on=position
    )
    await world.bus.events.append(CATALOGUE.seal([Draft(ref, PodSpecAdded(object=found), 0)], origin))

    async def is_folded() -> bool:
        return (await world.plain.get("/v1/state")).json()["position"] > position

    await until(is_folded)


def names(fates: Sequence[AdmissionFate]) -> list[str]:
    return sorted(f"{fate.resource}/{fate.name}" for fate in fates)


async def told_by_apply(world: WebhookWorld) -> None:
    bad = {**CONFIG, "data": {"colocation-config": '{"enable": 1}'}}
    await world.apply(NAMESPACE, PRIORITY, PROFILE, CONFIG, bad, quota("q"), RESERVATION)
    await world.apply(pod("changed", **{"class": "batch"}), pod("plain", app="x"))
    await world.apply(pod("refused", **{QOS: "BE", "app": "x"}), workload("jobs", 2, **{"class": "batch"}))
    await until_there_is(world, "WorkloadPodsCreated")


async def test_what_koord_apply_admitted_is_admitted_alike_from_any_beginning(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, ALL_GATES, bus=bus) as world:
        await told_by_apply(world)
    story = await recorded(bus)
    counted = 0
    for begin in range(len(story.facts) + 1):
        for profiles in (None, profile()):
            found = story.again(profiles, begin=begin)
            assert (found.fates, found.unexplained, found.not_reviewed) == ([], [], 0), begin
            assert found.tally.recorded == found.tally.rerun == found.tally.same
            counted = max(counted, found.tally.recorded)
    assert counted == 9, "three pods, two of a workload, a quota, a reservation, a ConfigMap taken and one refused"


async def test_another_profile_changes_refuses_and_lets_in_what_it_says(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, ALL_GATES, bus=bus) as world:
        await told_by_apply(world)
    story = await recorded(bus)

    without = story.again({})
    assert [fate.name for fate in without.fates if fate.source == "apply"] == ["r", "changed"]
    [changed] = [fate for fate in without.fates if fate.name == "changed"]
    assert (changed.recorded.allowed, changed.rerun.allowed) == (True, True)
    batch = {"kubernetes.io/batch-cpu": "1k"}
    assert {change.field: (change.recorded, change.rerun) for change in changed.changes} == {
        "metadata.annotations[node.koordinator.sh/extended-resource-spec]": (
            json.dumps({"containers": {"main": {"limits": batch, "requests": batch}}}, separators=(",", ":")),
            None,
        ),
        f"metadata.labels[{QOS}]": ("BE", None),
        "spec.containers[0].resources.limits.cpu": (None, "1"),
        "spec.containers[0].resources.limits[kubernetes.io/batch-cpu]": ("1k", None),
        "spec.containers[0].resources.requests.cpu": (None, "1"),
        "spec.containers[0].resources.requests[kubernetes.io/batch-cpu]": ("1k", None),
        "spec.priority": (5000, None),
        "spec.priorityClassName": ("koord-batch", None),
        "spec.preemptionPolicy": ("PreemptLowerPriority", None),
        "status.qosClass": ("BestEffort", "Burstable"),
    }
    assert len([fate for fate in without.fates if fate.source == "workload"]) == 2

    # BE pods need a batch priority: one is refused by a profile that gives the label alone, and let in by one more
    label_only = story.again(profile(priorityClassName=""))
    assert {fate.name: fate.rerun.allowed for fate in label_only.fates if fate.source == "apply"} == {
        "changed": False,
        "r": True,
    }
    wider = {fate.name: fate for fate in story.again(profile(selector={"matchLabels": {"app": "x"}})).fates}
    assert (wider["refused"].recorded.rules, wider["refused"].rerun.allowed) == (("be-priority",), True)
    assert wider["plain"].changes


async def test_other_gates_are_tried_over_those_that_were_told(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, ALL_GATES, bus=bus) as world:
        await told_by_apply(world)
    story = await recorded(bus)
    skipped = story.again(ColocationProfileSkipMutatingResources=True)
    fields = {change.field for fate in skipped.fates if fate.name == "changed" for change in fate.changes}
    assert "spec.containers[0].resources.requests.cpu" in fields
    assert f"metadata.labels[{QOS}]" not in fields
    assert skipped.unexplained == []
    assert names(story.again(PodValidatingWebhook=False).fates) == ["pods/refused"]


async def test_a_quota_is_evaluated_anew_where_its_gate_is_on(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, "--feature-gates=EnableQuotaAdmission=true", bus=bus) as world:
        await world.apply(NAMESPACE, quota("q", "2"))
        for name in ("a", "b", "c"):
            await world.apply(pod(name, **{f"{PREFIX}name": "q"}))
    story = await recorded(bus)
    same = story.again()
    assert (same.unexplained, same.tally.recorded) == ([], 4)
    assert same.tally.same == 4
    [fate] = story.again(EnableQuotaAdmission=False).fates
    assert (fate.name, fate.recorded.rules, fate.rerun.allowed) == ("c", ("quota-exceeded",), True)


async def reviewed(world: WebhookWorld, document: Json, uid: str) -> bool:
    """A pod on its whole way in: both webhooks, then the mirror."""
    changed = await world.review("/mutate-pod", document, uid=f"mutate-{uid}")  # a profile draws pods by this uid
    assert changed.object is not None
    judged = await world.review("/validate-pod", changed.object)
    if changed.allowed and judged.allowed:
        await mirrored(world, changed.object, uid)
    return judged.allowed


async def told_by_webhooks(world: WebhookWorld) -> None:
    await world.apply(NAMESPACE, PRIORITY, {**PROFILE, "spec": {**PROFILE["spec"], "probability": "50%"}})
    for number in range(8):
        assert await reviewed(world, pod(f"batch-{number}", **{"class": "batch"}), f"u-{number}")
    assert await reviewed(world, pod("plain", app="x"), "u-plain")
    assert not await reviewed(world, pod("refused", **{QOS: "BE", "app": "x"}), "u-refused")


async def test_what_the_webhooks_answered_is_answered_alike_and_otherwise_with_another_profile(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, bus=bus) as world:
        await told_by_webhooks(world)
    story = await recorded(bus)
    told = [CATALOGUE.read(one) for one in story.decisions]
    drawn = [one.name for one in told if isinstance(one, AdmissionDecided) and one.allowed]
    assert 0 < len(drawn) < 8, "half of them, by their requests' uids"

    same = story.again()
    assert (same.fates, same.unexplained, same.tally.not_retained) == ([], [], 0)
    assert same.tally.same == same.tally.recorded
    assert same.tally.recorded + same.not_reviewed == 8 + 2
    # a pod that was let in unchanged is drawn by its own uid: with luck the profile is put on it
    assert same.not_reviewed <= 8 - len(drawn)

    never = story.again(profile(probability=0))
    assert names(never.fates) == sorted(f"pods/{name}" for name in drawn)
    other = story.again(profile(selector={"matchLabels": {"app": "x"}}))
    assert {"pods/plain", "pods/refused"} <= set(names(other.fates))
    [refused] = [fate for fate in other.fates if fate.name == "refused"]
    assert (refused.recorded.rules, refused.rerun.allowed) == (("be-priority",), True)


async def test_a_pod_that_was_changed_and_then_refused_is_one_pod(tmp_path: Path) -> None:
    label_only = {**PROFILE, "spec": {**PROFILE["spec"], "priorityClassName": ""}}
    generated = pod("", **{"class": "batch"})
    del generated["metadata"]["name"]
    generated["metadata"]["generateName"] = "web-"
    bus = memory_bus()
    async with webhook_world(tmp_path, bus=bus) as world:
        await world.apply(NAMESPACE, PRIORITY, label_only)
        changed = await world.review("/mutate-pod", generated)
        assert changed.object is not None
        named = {**changed.object, "metadata": {**changed.object["metadata"], "name": "web-bd24c"}}
        assert not (await world.review("/validate-pod", named)).allowed
    story = await recorded(bus)
    same = story.again()
    assert (same.tally.recorded, same.tally.same, same.unexplained) == (2, 2, [])
    [fate] = story.again(profile()).fates
    assert (fate.recorded.allowed, fate.rerun.allowed) == (False, True)
    assert fate.rerun.steps[0] == "ClusterColocationProfile/be"


async def test_pods_that_nobody_was_asked_about_are_not_called_a_difference(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, bus=bus) as world:
        await world.apply(NAMESPACE, PRIORITY, PROFILE)
        await mirrored(world, pod("silent", **{"class": "batch"}), "u-silent")
    story = await recorded(bus)
    found = story.again({})
    assert (found.not_reviewed, found.fates, found.unexplained) == (1, [], [])


async def test_what_an_older_version_told_stands_and_is_counted(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, bus=bus) as world:
        await told_by_webhooks(world)
    story = await recorded(bus)
    bare = [old_version(stored) for stored in story.decisions]
    found = Recording(story.facts, bare).again({})
    assert (found.unexplained, found.fates) == ([], [])
    assert found.tally.not_retained == len(bare) > 1


def old_version(stored: StoredEvent) -> StoredEvent:
    body = json.loads(stored.body)
    for name in ("object", "old_object", "result", "webhook", "settings", "pending", "draws", "subresource"):
        body.pop(name, None)
    headers = {name: text for name, text in stored.headers.items() if name != HEADER_BASED_ON}
    return msgspec.structs.replace(stored, body=json.dumps(body).encode(), headers=headers)


async def test_pods_from_before_the_oldest_verdict_stand(tmp_path: Path) -> None:
    bus = memory_bus()
    async with webhook_world(tmp_path, bus=bus) as world:
        await told_by_webhooks(world)
    story = await recorded(bus)
    late = Recording(story.facts, []).again({}, since="9999-01-01T00:00:00.000000Z")
    assert (late.tally.not_retained, late.fates) == (9, [])


async def test_a_profile_on_waiting_pods_is_put_on_them_again(tmp_path: Path) -> None:
    flags = ("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-interval=50ms")
    bus = memory_bus()
    async with webhook_world(tmp_path, *flags, bus=bus) as world:
        await world.apply(NAMESPACE, PRIORITY, pod("old", **{"class": "batch"}))
        await world.apply({**PROFILE, "spec": {**PROFILE["spec"], "labels": {"a": "b"}}})
        await until_there_is(world, "PodSpecChanged")
    story = await recorded(bus)
    assert story.again().unexplained == []
    for managed, label in (({keys.CONTROLLER_MANAGED: "true"}, "c"), ({}, None)):
        [fate] = [one for one in story.again(profile(managed, labels={"a": "c"})).fates if one.source == "controller"]
        assert {change.field: (change.recorded, change.rerun) for change in fate.changes}["metadata.labels.a"] == (
            "b",
            label,
        )


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {}, ["a"]),
        ({"a": {"b.c": 1}}, {"a": {"b.c": 2}}, ["a[b.c]"]),
        ({"x": [{"n": 1}]}, {"x": [{"n": 1}, {"n": 2}]}, ["x[1].n"]),
        ({"x": [1]}, {"x": {"a": 1}}, ["x"]),
        (None, {"x": [{"n": 1}]}, ["x[0].n"]),
        ({"containers": [{"env": [1]}]}, {"containers": [{"env": [2]}]}, ["containers[0].env"]),
        (
            {},
            {"containers": [{"livenessProbe": {"httpGet": {"httpHeaders": [{"value": "secret"}]}}}]},
            ["containers[0].livenessProbe.httpGet.httpHeaders"],
        ),
        ({}, {"volumes": [{"csi": {"volumeAttributes": {"a": "secret"}}}]}, ["volumes[0].csi.volumeAttributes"]),
    ],
)
def test_the_fields_that_differ_are_named(before: Json | None, after: Json | None, fields: list[str]) -> None:
    found = changes(before, after)
    assert [change.field for change in found] == fields
    assert all("secret" not in (change.recorded, change.rerun) for change in found)


async def test_whatever_was_asked_is_answered_alike(tmp_path: Path) -> None:
    rng = random.Random(20261122)
    bus = memory_bus()
    async with webhook_world(tmp_path, ALL_GATES, bus=bus) as world:
        tree = hostile.QUOTA["metadata"]["labels"]
        parent = {**quota("all"), "metadata": {**quota("all")["metadata"], "labels": {**tree, f"{PREFIX}parent": ""}}}
        parent["metadata"]["labels"][f"{PREFIX}is-parent"] = "true"
        profile = {**PROFILE, "metadata": {"name": "p"}, "spec": {**hostile.PROFILE["spec"], "patch": None}}
        await world.apply(NAMESPACE, PRIORITY, profile, parent, hostile.CONFIG, hostile.NODE)
        # an accepted quota would be judged with for as long as it is not observed, which it never is here
        bases = [(path, base) for path, base in hostile.BASES if not path.endswith("quota")]
        for number in range(400):
            path, base = rng.choice(bases)
            document = base if number % 4 == 0 else mutated(rng, base)
            operation = rng.choice(("CREATE", "CREATE", "UPDATE", "DELETE"))
            old = None if operation == "CREATE" else rng.choice((base, mutated(rng, base)))
            given = None if operation == "DELETE" else document
            body = review_body(path, given, operation=operation, old=old)
            await world.tls.post(path, content=json.dumps(body).encode("utf-8", "surrogatepass"))
    found = (await recorded(bus)).again({})
    assert [(one.name, one.recorded[:4], one.rerun[:4]) for one in found.unexplained] == []
    assert found.tally.same > 40, "what has not the shape of its kind is not kept"
    assert found.fates
