"""`koord apply` through the same chain as the webhooks: what is changed, refused and counted, and dry runs."""

import asyncio
import json
from pathlib import Path
from typing import Any

from koord_manager.shell.intake import Intake, Result, Work
from koordcore.bus.read.log_size import LogRoom
from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordctl.access.folding import everything_kept
from support.manager.webhook_world import WebhookWorld, webhook_world
from support.until import until

Json = dict[str, Any]
PREFIX = "quota.scheduling.koordinator.sh/"
PRIORITY: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5000,
}
PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "be"},
    "spec": {"selector": {"matchLabels": {"class": "batch"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
}


def pod(name: str, *, cpu: str = "1", **labels: str) -> Json:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "nginx", "resources": resources}]},
    }


def quota(name: str, *, parent: str = "", is_parent: bool = False, maximum: str = "2") -> Json:
    labels = {f"{PREFIX}parent": parent, f"{PREFIX}is-parent": str(is_parent).lower()}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"max": {"cpu": maximum}, "min": {"cpu": 1}},
    }


async def position(world: WebhookWorld) -> int:
    return (await world.plain.get("/v1/state")).json()["position"]


async def stored(world: WebhookWorld, kind: str, name: str) -> Json:
    return (await world.plain.get(f"/v1/objects/{kind}/{name}")).json()


async def test_a_pod_is_stored_as_admission_made_it_and_applied_again_it_is_unchanged(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await world.apply(PRIORITY, PROFILE)
        (first,) = await world.apply(pod("a", **{"class": "batch"}))
        (again,) = await world.apply(pod("a", **{"class": "batch"}))

        assert (first["action"], again["action"]) == ("created", "unchanged")
        kept = await stored(world, "pods", "a")
        assert kept["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
        assert kept["spec"]["priority"] == 5000
        assert kept["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}
        head = await world.bus.explanations.head()
        assert head.last_seq == 1  # what admission changed was told once


async def test_one_request_makes_one_default_class(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        classes = [{**PRIORITY, "metadata": {"name": name}, "globalDefault": True} for name in ("a", "b")]
        body = json.dumps({"kind": "List", "items": classes})
        results = (await world.plain.post("/v1/apply", content=body)).json()["results"]

        assert [result["action"] for result in results] == ["created", "refused"]
        assert results[1]["errors"][0]["field"] == "globalDefault"


async def test_a_dry_run_answers_and_changes_nothing(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await world.apply(PRIORITY, PROFILE)
        before = await position(world)
        bad = pod("b", **{"koordinator.sh/qosClass": "BE"})
        body = json.dumps({"kind": "List", "items": [pod("a", **{"class": "batch"}), bad, quota("q")]})
        answer = await world.plain.post("/v1/apply?dryRun=All", content=body)

        results = answer.json()["results"]
        assert [result["action"] for result in results] == ["created", "refused", "created"]
        assert results[0]["object"]["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
        assert results[2]["object"]["kind"] == "ElasticQuota"
        assert await position(world) == before
        assert (await world.bus.explanations.head()).last_seq == 0
        assert (await world.plain.get("/v1/objects/pods/a")).status_code == 404
        assert (await world.plain.post("/v1/apply?dryRun=yes", content=body)).status_code == 400


async def test_a_quota_with_children_is_not_deleted(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        created = await world.apply(quota("all", is_parent=True), quota("leaf", parent="all"))
        assert [result["action"] for result in created] == ["created", "created"]

        target = {"kind": "ElasticQuota", "namespace": "default"}
        refused = await world.plain.post("/v1/delete", content=json.dumps({**target, "name": "all"}))
        assert refused.status_code == 422
        assert refused.json()["results"][0]["errors"][0]["rule"] == "within rule delete-has-children"

        for name in ("leaf", "all"):
            gone = await world.plain.post("/v1/delete", content=json.dumps({**target, "name": name}))
            assert gone.json()["results"][0]["action"] == "deleted"
        assert (await world.plain.get("/v1/objects/elasticquotas")).json()["items"] == []


async def test_pods_of_one_request_are_counted_one_after_the_other(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, "--feature-gates=EnableQuotaAdmission=true") as world:
        await world.apply(quota("team"))
        items = [pod(f"p{number}", **{f"{PREFIX}name": "team"}) for number in range(3)]
        answer = await world.plain.post("/v1/apply", content=json.dumps({"kind": "List", "items": items}))

        results = answer.json()["results"]
        assert [result["action"] for result in results] == ["created", "created", "refused"]
        assert results[2]["errors"][0]["value"].startswith(
            "exceeded quota: default/team, requested: cpu=1, used: cpu=2"
        )
        account = (await stored(world, "elasticquotas", "team"))["metadata"]["annotations"][f"{PREFIX}child-request"]
        assert json.loads(account) == {"cpu": "2"}


async def test_the_pods_of_a_workload_are_admitted_like_all_others_within_their_quota(tmp_path: Path) -> None:
    labels = {"class": "batch", f"{PREFIX}name": "team"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"metadata": {"labels": labels}, "spec": pod("ignored")["spec"]}},
    }
    batch = quota("team")
    batch["spec"] = {"max": {"kubernetes.io/batch-cpu": 2000}, "min": {}}
    async with webhook_world(tmp_path, "--feature-gates=EnableQuotaAdmission=true", "--control-interval=20ms") as world:
        assert [result["action"] for result in await world.apply(PRIORITY, PROFILE, batch, deployment)] == [
            "created"
        ] * 4

        async def pods() -> list[Json]:
            return (await world.plain.get("/v1/objects/pods")).json()["items"]

        async def there_are(count: int) -> bool:
            return len(await pods()) == count

        await until(lambda: there_are(2))
        assert {item["metadata"]["labels"]["koordinator.sh/qosClass"] for item in await pods()} == {"BE"}

        # the third waits for room
        batch["spec"]["max"]["kubernetes.io/batch-cpu"] = 3000
        await world.apply(batch)
        await until(lambda: there_are(3))
        account = (await stored(world, "elasticquotas", "team"))["metadata"]["annotations"][f"{PREFIX}child-request"]
        assert json.loads(account) == {"kubernetes.io/batch-cpu": "3k"}


async def test_custom_resources_are_found_by_every_name_that_kubectl_knows(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await world.apply(PROFILE, quota("q"))

        for name in ("ElasticQuota", "elasticquotas", "elasticquota"):
            assert len((await world.plain.get(f"/v1/objects/{name}")).json()["items"]) == 1
        assert (await stored(world, "clustercolocationprofiles", "be"))["spec"]["qosClass"] == "BE"
        assert (await world.plain.get("/v1/objects/elasticquotas?namespace=other")).json()["items"] == []
        assert (await world.plain.get("/v1/objects/widgets")).status_code == 400


async def test_an_intake_refuses_pods_while_the_log_is_short_of_room() -> None:
    room = LogRoom(used=90, limit=100)
    intake = Intake(room=room)
    (refused,) = await intake.submit([pod("p")], "r")
    assert (refused.action, refused.kind, refused.name) == ("failed", "Pod", "p")
    assert "the log has used 90% of its 100 bytes" in refused.errors[0].rule
    asked = asyncio.create_task(intake.submit([quota("q")], "r"))
    (work,) = await intake.take(10)
    work.done.set_result(Result("created"))
    assert [result.action for result in await asked] == ["created"]
    room.used = 89
    asked = asyncio.create_task(intake.submit([pod("p")], "r"))
    (work,) = await intake.take(10)
    work.done.set_result(Result("created"))
    assert [result.action for result in await asked] == ["created"]


async def test_a_closed_intake_gives_what_is_queued_and_refuses_the_rest() -> None:
    intake = Intake(limit=2)
    asked = asyncio.create_task(intake.submit([pod(f"p{number}") for number in range(4)], "r"))
    await asyncio.sleep(0)
    await intake.close()

    answered: list[Work] = []
    while works := await intake.take(10):
        for work in works:
            work.done.set_result(Result("created"))
        answered += works

    results = await asked
    assert len(results) == 4
    assert {result.action for result in results} == {"created", "failed"}
    assert sum(result.action == "created" for result in results) == len(answered) >= 2
    assert [result.action for result in await intake.submit([pod("late")], "r")] == ["failed"]


async def records(world: WebhookWorld) -> list[RequestAudited]:
    kept = await everything_kept(world.bus.audit)
    return [event for stored in kept if isinstance(event := CATALOGUE.read(stored), RequestAudited)]


async def test_a_document_with_a_long_name_hides_nothing_from_the_audit(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        items = [pod("x" * 2_000_000), pod("hidden")]
        results = await world.apply(json.dumps({"kind": "List", "items": items}))
        assert [result["action"] for result in results] == ["refused", "created"]
        (record,) = await records(world)
        assert record.objects[0] == "Pod default/hidden: created"
        assert record.objects[1].startswith("Pod default/xxx")
        assert "2,000,000 letters, sha256 " in record.objects[1]
        assert len(record.objects[1]) < 512


async def test_refused_documents_do_not_crowd_a_stored_one_out_of_the_audit(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        items = [*(pod(f"no name {number}") for number in range(30)), pod("hidden")]
        await world.apply(json.dumps({"kind": "List", "items": items}))
        (record,) = await records(world)
        assert record.objects[0] == "Pod default/hidden: created"
        assert (len(record.objects), record.objects[-1]) == (21, "and 11 more")
