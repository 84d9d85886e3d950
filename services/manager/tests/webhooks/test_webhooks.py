"""The webhooks as an API server meets them: over TLS, AdmissionReview in and out."""

import json
import ssl
from pathlib import Path

import httpx
import pytest
from koord_manager.domain.admission.webhooks import WEBHOOKS
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from prometheus_client import CollectorRegistry
from support.manager.webhook_world import ALL_GATES, Json, WebhookWorld, review_body, tls_client, webhook_world

pytestmark = pytest.mark.slow

PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "colocation-profile-example"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "selector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "schedulerName": "koord-scheduler",
        "labels": {"koordinator.sh/mutated": "true"},
        "annotations": {"koordinator.sh/intercepted": "true"},
        "patch": {"spec": {"terminationGracePeriodSeconds": 30}, "metadata": {"labels": {"drop": None}}},
    },
}
NAMESPACE: Json = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "labels": {"koordinator.sh/enable-colocation": "true"}},
}
BATCH: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5000,
}


def pod(name: str = "p", **labels: str) -> Json:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"drop": "me", **labels}},
        "spec": {
            "containers": [{"name": "main", "image": "nginx", "resources": resources, "env": [{"name": "A"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }


COLOCATED = pod(**{"koordinator.sh/enable-colocation": "true"})


async def prepared(world: WebhookWorld) -> None:
    results = await world.apply(BATCH, NAMESPACE, PROFILE)
    assert [result["action"] for result in results] == ["created"] * 3


async def test_a_profile_makes_a_best_effort_pod_and_leaves_every_other_field_alone(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await prepared(world)
        answer = await world.review("/mutate-pod", COLOCATED)

        assert answer.allowed
        assert answer.object is not None
        labels = answer.object["metadata"]["labels"]
        assert labels["koordinator.sh/qosClass"] == "BE"
        assert labels["koordinator.sh/priority"] == "1000"
        assert "drop" not in labels
        assert answer.object["spec"]["terminationGracePeriodSeconds"] == 30
        assert answer.object["spec"]["priority"] == 5000
        container = answer.object["spec"]["containers"][0]
        assert container["resources"]["limits"] == {
            "kubernetes.io/batch-cpu": "1k",
            "kubernetes.io/batch-memory": "1Gi",
        }
        assert container["env"] == [{"name": "A"}]
        assert answer.object["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
        spec = json.loads(answer.object["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"])
        assert spec["containers"]["main"]["requests"]["kubernetes.io/batch-cpu"] == "1k"

        validated = await world.review("/validate-pod", answer.object)
        assert validated.allowed, validated.message


async def test_a_pod_that_nothing_matches_gets_no_patch(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await prepared(world)

        answer = await world.review("/mutate-pod", pod())

        assert (answer.allowed, answer.patch) == (True, [])


async def test_a_refusal_has_the_code_and_the_words_of_the_reference(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        document = pod(**{"koordinator.sh/qosClass": "BE"})
        document["spec"]["priority"] = 9999

        answer = await world.review("/validate-pod", document)

        assert (answer.allowed, answer.code) == (False, 400)
        assert answer.message == (
            "Pod: Forbidden: koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination"
        )


async def test_what_was_changed_or_refused_is_told_and_a_dry_run_is_not(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await prepared(world)
        await world.review("/mutate-pod", COLOCATED, dryRun=True)
        await world.review("/mutate-pod", COLOCATED)
        await world.review("/validate-pod", pod(**{"koordinator.sh/qosClass": "LSR"}))

        told = await decisions(world, 2)

        assert [(event.allowed, event.steps[:1], event.rules) for event in told] == [
            (True, ["ClusterColocationProfile/colocation-profile-example"], []),
            (False, [], ["lsr-priority"]),
        ]
        assert {event.user for event in told} == {"tester"}
        assert told[0].patch


async def decisions(world: WebhookWorld, count: int) -> list[AdmissionDecided]:
    """The first that are told, once they are."""
    told: list[AdmissionDecided] = []
    async for batch in world.bus.explanations.follow(0):
        for stored in batch:
            event = CATALOGUE.read(stored)
            assert isinstance(event, AdmissionDecided)
            told.append(event)
        if len(told) >= count:
            break
    return told


async def test_what_is_not_told_yet_when_the_service_ends_is_told_then(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        await prepared(world)
        for _ in range(3):
            await world.review("/mutate-pod", COLOCATED)
        decisions = world.bus.explanations
    assert (await decisions.head()).last_seq == 3


async def test_webhooks_whose_gates_are_off_are_not_served(tmp_path: Path) -> None:
    quota = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
    gates = "--feature-gates=PodMutatingWebhook=false,ElasticValidatingWebhook=false"
    async with webhook_world(tmp_path, gates) as world:
        for path, status in (("/mutate-pod", 404), (quota, 404), ("/validate-pod", 200), ("/validate-node", 404)):
            answer = await world.tls.post(path, content=json.dumps(review_body(path, pod())))
            assert answer.status_code == status, path


async def test_both_versions_of_the_review_are_answered_in_their_own(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        assert (await world.review("/validate-pod", pod(), version="v1beta1")).allowed
        assert (await world.review("/validate-pod", pod(), version="v1")).allowed


async def test_a_body_that_is_no_review_is_a_bad_request(tmp_path: Path) -> None:
    bodies = [b"", b"{", b"[]", b"null", b'{"kind":"Pod"}', b"\xff\xfe", b"[" * 100_000]
    async with webhook_world(tmp_path) as world:
        for body in bodies:
            answer = await world.tls.post("/mutate-pod", content=body)

            assert answer.status_code == 400, body[:20]
            assert "Traceback" not in answer.text


async def test_other_kinds_and_sub_resources_pass_untouched(tmp_path: Path) -> None:
    async with webhook_world(tmp_path) as world:
        answer = await world.review("/validate-pod", {"kind": "Eviction"}, subResource="eviction")

        assert answer.allowed


async def test_quotas_are_defaulted_judged_and_remembered_until_they_are_seen(tmp_path: Path) -> None:
    path = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "kube-system"},
        "spec": {"max": {"cpu": "4"}, "min": {"cpu": "1"}},
    }
    async with webhook_world(tmp_path) as world:
        mutated = await world.review(path.replace("validate", "mutate"), quota)
        assert mutated.object is not None
        assert (
            mutated.object["metadata"]["labels"]["quota.scheduling.koordinator.sh/parent"] == "koordinator-root-quota"
        )

        assert (await world.review(path, mutated.object, dryRun=True)).allowed
        assert (await world.review(path, mutated.object)).allowed
        again = await world.review(path, mutated.object)

        assert not again.allowed
        assert "exists already" in again.message


async def test_the_certificate_is_rotated_without_a_restart(tmp_path: Path) -> None:
    current = tmp_path / "current"
    async with webhook_world(tmp_path) as world:
        assert (await world.review("/validate-pod", pod())).allowed
        first = (current / "cert.pem").read_bytes()
        assert await served_certificate(world) == first

        (current / "cert.pem").unlink()
        await world.webhooks.keeper.keep()

        second = (current / "cert.pem").read_bytes()
        assert second != first
        # the CA was reused: who trusts it goes on, and a new connection gets the new certificate
        assert await served_certificate(world) == second
        assert (await world.review("/validate-pod", pod())).allowed


async def served_certificate(world: WebhookWorld) -> bytes:
    """PEM of what a new connection is shown."""
    name = world.tls.headers["host"]
    ca_file = world.directory / "current" / "ca-cert.pem"
    async with (
        tls_client(str(world.tls.base_url), ca_file, name) as client,
        client.stream("GET", "/healthz") as answer,
    ):
        shown = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(shown).encode()


async def test_a_client_that_trusts_another_ca_is_not_served(tmp_path: Path) -> None:
    async with (
        webhook_world(tmp_path / "a") as world,
        webhook_world(tmp_path / "b", certificate=False) as other,
    ):
        name = world.tls.headers["host"]
        async with tls_client(str(world.tls.base_url), other.directory / "current" / "ca-cert.pem", name) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/healthz")


async def test_every_path_answers_with_all_gates_on(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, ALL_GATES) as world:
        for webhook in WEBHOOKS:
            answer = await world.review(webhook.path, {"metadata": {"name": "x"}}, name="x")
            assert answer.code in (200, 400), webhook
        assert (await world.tls.get("/elasticQuota")).json() == {}


def test_resources_of_no_webhook_are_one_series() -> None:
    registry = CollectorRegistry()
    metrics = WebhookMetrics(registry)
    for resource in ("pods", "nodes", "one", "two", "three"):
        metrics.decided("validate", resource, "CREATE", "", "allowed", seconds=0.001)
    counted = {
        sample.labels["object_type"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "koord_manager_webhook_webhook_duration_milliseconds_count"
    }
    assert counted == {"pods": 1, "nodes": 1, "other": 3}
