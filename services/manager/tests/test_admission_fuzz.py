"""Hostile objects at the doors of admission: always an answer, and nothing is accepted that would be refused again.

50,000 objects go through the pure chain and 600 over HTTPS, all from one seed.
"""

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import jsonpatch
import pytest
from koord_manager.domain.admission.chain import admit, mutate, surroundings, validate
from koord_manager.domain.admission.facts import ENHANCED_NAME, ENHANCED_NAMESPACE, PROFILES, QUOTA_PROFILES, Facts
from koord_manager.domain.admission.options import GATE_DEFAULTS, Options
from koord_manager.domain.admission.patch import json_patch
from koord_manager.domain.admission.request import Operation, Request
from koordcore.protocol.objects import ObjectMeta, PriorityClass
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from mutations import damaged, mutated
from webhook_world import ALL_GATES, review_body, webhook_world

Json = dict[str, Any]
SEED = 20261121
OBJECTS = 50_000
OVER_HTTP = 600
PREFIX = "quota.scheduling.koordinator.sh/"

PROFILE: Json = {
    "metadata": {"name": "be"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "selector": {"matchExpressions": [{"key": "class", "operator": "In", "values": ["batch", "mid"]}]},
        "probability": "80%",
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "labelKeysMapping": {"class": "was"},
        "labelSuffixes": {"class": "-x"},
        "schedulerName": "koord-scheduler",
        "patch": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}], "priority": None}},
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"class": "batch", "koordinator.sh/qosClass": "LS", f"{PREFIX}name": "leaf", "app": "x"},
        "annotations": {"node.koordinator.sh/extended-resource-spec": '{"containers":{}}'},
    },
    "spec": {
        "priority": 5500,
        "overhead": {"cpu": "10m"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}],
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1"}}},
            {"name": "gpu", "resources": {"requests": {"koordinator.sh/gpu": "200"}, "limits": {}}},
        ],
    },
}
QUOTA: Json = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {
        "name": "leaf",
        "namespace": "kube-system",
        "labels": {f"{PREFIX}parent": "all", f"{PREFIX}is-parent": "false", f"{PREFIX}tree-id": "t"},
        "annotations": {
            f"{PREFIX}shared-weight": '{"cpu":"4"}',
            f"{PREFIX}namespaces": '["n1"]',
            f"{PREFIX}guaranteed": '{"cpu":1}',
            f"{PREFIX}max-strict-check-resource-keys": '["cpu"]',
        },
    },
    "spec": {"min": {"cpu": 1}, "max": {"cpu": "4"}},
    "status": {"used": {"cpu": 1}},
}
RESERVATION: Json = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "labels": {"class": "batch"}},
    "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}, "owners": [{"object": {"name": "x"}}]},
}
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {"pool": "a"},
        "annotations": {
            "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5,"memory":2}',
            "node.koordinator.sh/raw-allocatable": '{"cpu":"4"}',
        },
    },
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}, "capacity": {"cpu": "4", "memory": "8Gi"}},
}
CONFIG: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {
        "colocation-config": '{"enable":true,"nodeConfigs":[{"name":"a","nodeSelector":{"matchLabels":{"pool":"a"}},'
        '"cpuReclaimThresholdPercent":70}]}',
        "resource-threshold-config": '{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":65}}',
    },
}
BASES: list[tuple[str, Json]] = [
    ("/mutate-pod", POD),
    ("/validate-pod", POD),
    ("/mutate-pod", POD),
    ("/validate-pod-binding", {"metadata": {"name": "web"}, "target": {"name": "n"}}),
    ("/mutate-node-status", NODE),
    ("/validate-node", NODE),
    ("/validate-configmap", CONFIG),
    ("/mutate-reservation", RESERVATION),
    ("/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota", QUOTA),
    ("/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota", QUOTA),
]
OLD_ONES: list[Any] = []
"""Stored objects of former versions, hostile as well; gathered once, since making them takes longest."""
GATES = [gate for gate in GATE_DEFAULTS if gate != "WebhookFramework"]


def facts_of(rng: random.Random, *, hostile: bool) -> Facts:
    """A cluster whose custom resources are themselves broken half of the time."""

    def maybe(document: Json) -> Json:
        broken: object = mutated(rng, document) if hostile and rng.random() < 0.5 else document
        return cast("Json", broken) if isinstance(broken, dict) else document

    facts = Facts()
    for number in range(3):
        facts.observe(PROFILES, "", f"p{number}", maybe(PROFILE))
    parent = json.loads(json.dumps(QUOTA))
    parent["metadata"]["name"] = "all"
    parent["metadata"]["labels"] = {f"{PREFIX}is-parent": "true", f"{PREFIX}tree-id": "t"}
    for quota in (parent, QUOTA):
        facts.observe("elasticquotas", "kube-system", quota["metadata"]["name"], maybe(quota))
    tree = {"metadata": {"name": "t", "labels": {f"{PREFIX}tree-id": "t"}}, "spec": {"nodeSelector": {"matchLabels": {"pool": "a"}}}}  # fmt: skip  # noqa: E501
    facts.observe(QUOTA_PROFILES, "kube-system", "t", maybe(tree))
    facts.namespace_observed("default", {"team": "a"})
    facts.node_observed("n", {"pool": "a"})
    facts.priority_class_observed("koord-batch", PriorityClass(metadata=ObjectMeta(name="koord-batch"), value=5000))
    rules = '[{"name":"r","requiredLabels":["app"]}]'
    facts.config_observed(ENHANCED_NAMESPACE, ENHANCED_NAME, {"enable": "true", "rules": rules})
    facts.slo_config = CONFIG["data"]
    return facts


def as_object(value: object) -> Json | None:
    """The value if it is an object: a review with anything else is refused when it is read."""
    return cast("Json", value) if isinstance(value, dict) else None


def hostile_request(rng: random.Random, number: int) -> Request:
    """One mutated object on its way in, as a review would have it."""
    path, base = rng.choice(BASES)
    document: Any = mutated(rng, base)
    request = review_body(path, document)["request"]
    operation = rng.choice((Operation.CREATE, Operation.CREATE, Operation.UPDATE, Operation.DELETE))
    if operation is not Operation.CREATE and len(OLD_ONES) < 500:
        OLD_ONES.append(mutated(rng, base))
    old = rng.choice((base, rng.choice(OLD_ONES), None)) if operation is not Operation.CREATE else None
    return Request(
        uid=str(number),
        operation=operation,
        resource=request["resource"]["resource"],
        subresource=request["subResource"],
        namespace=rng.choice(("default", "kube-system", "")),
        name=rng.choice(("web", "leaf", "")),
        object=as_object(document) if operation is not Operation.DELETE else None,
        old_object=as_object(old),
    )


@pytest.mark.timeout(180)
def test_fifty_thousand_hostile_objects_are_answered_and_no_accepted_one_is_refused_again() -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    facts, options = facts_of(rng, hostile=False), Options()
    for number in range(OBJECTS):
        if number % 500 == 0:
            facts = facts_of(rng, hostile=number % 1000 == 0)
            options = Options(gates={gate: rng.random() < 0.7 for gate in GATES})
        request = hostile_request(rng, number)
        before = codec.encode(request.object)
        around = surroundings(request, facts, options)

        verdict = admit(request, around)

        assert codec.encode(request.object) == before, "the submitted object was changed in place"
        if not verdict.allowed:
            outcomes["refused"] += 1
            assert verdict.message
            assert all(violation.rule for violation in verdict.violations)
            continue
        outcomes["changed" if verdict.steps else "allowed"] += 1
        if verdict.steps:
            assert request.object is not None
            assert verdict.object is not None
            patched = jsonpatch.apply_patch(request.object, json_patch(request.object, verdict.object))
            assert patched == verdict.object
        again = Request(
            uid=request.uid,
            operation=request.operation,
            resource=request.resource,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name,
            object=verdict.object,
            old_object=request.old_object,
        )
        assert validate(again, around).allowed
    assert outcomes["changed"] > 1000, outcomes
    assert outcomes["refused"] > 5000, outcomes
    assert outcomes["allowed"] > 5000, outcomes


def test_what_is_mutated_twice_is_mutated_once() -> None:
    """Re-invocation: a webhook may be asked again about its own result (profiles with `labelSuffixes` excepted)."""
    rng = random.Random(SEED)
    facts = Facts()
    stable = {**PROFILE, "spec": {name: value for name, value in PROFILE["spec"].items() if name != "labelSuffixes"}}
    facts.observe(PROFILES, "", "be", stable)
    facts.namespace_observed("default", {"team": "a"})
    facts.priority_class_observed("koord-batch", PriorityClass(metadata=ObjectMeta(name="koord-batch"), value=5000))
    changed = 0
    for number in range(1000):
        document = as_object(mutated(rng, POD))
        request = Request(
            uid=str(number), operation=Operation.CREATE, resource="pods", namespace="default", object=document
        )
        around = surroundings(request, facts, Options())
        once = mutate(request, around)
        if not once.allowed or not once.steps:
            continue
        twice = mutate(
            Request(
                uid=str(number), operation=Operation.CREATE, resource="pods", namespace="default", object=once.object
            ),
            around,
        )
        assert twice.object == once.object
        changed += 1
    assert changed > 100


def body_of(rng: random.Random) -> tuple[str, bytes]:
    """A path and a hostile body: a review of a hostile object, a mutated review, or damaged bytes."""
    path, base = rng.choice(BASES)
    operation = rng.choice(("CREATE", "UPDATE", "DELETE"))
    review: Any = review_body(path, mutated(rng, base), operation=operation, old=mutated(rng, base))
    match rng.randrange(4):
        case 0:
            review = mutated(rng, review)
        case 1:
            return path, damaged(rng, json.dumps(review).encode())
        case _:
            pass
    return path, json.dumps(review).encode("utf-8", "surrogatepass")


@pytest.mark.timeout(180)
async def test_hostile_bodies_over_https_get_an_answer_and_never_a_stack_trace(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    statuses: Counter[int] = Counter()
    async with webhook_world(tmp_path, ALL_GATES) as world:
        profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile", **PROFILE}
        await world.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}},
            profile,
        )
        for _ in range(OVER_HTTP):
            path, body = body_of(rng)
            answer = await world.tls.post(path, content=body)
            statuses[answer.status_code] += 1
            assert "Traceback" not in answer.text, body
            if answer.status_code == 200:
                response = answer.json()["response"]
                assert response["allowed"] or response["status"]["message"], body
                assert response.get("status", {}).get("code", 200) in (200, 400), body
    assert set(statuses) == {200, 400}, statuses
    assert statuses[200] > OVER_HTTP // 2


@pytest.mark.parametrize("depth", [50, 200, 400, 600, 900, 5000])
def test_a_deeply_nested_object_is_answered(depth: int) -> None:
    deep: Json = {}
    for _ in range(depth):
        deep = {"x": deep}
    facts = facts_of(random.Random(SEED), hostile=False)
    facts.observe(PROFILES, "", "deep", {"metadata": {"name": "deep"}, "spec": {"patch": {"spec": deep}}})
    options = Options(gates={"ReservationMutatingWebhook": True})
    for resource in ("pods", "reservations", "elasticquotas"):
        for document in (POD, {**POD, "spec": {**POD["spec"], "x": deep}}):
            request = Request(
                uid="1", operation=Operation.CREATE, resource=resource, namespace="default", object=document
            )
            verdict = admit(request, surroundings(request, facts, options))
            assert verdict.allowed or verdict.message
            if verdict.steps and verdict.object is not None:
                with contextlib.suppress(InvalidInput):
                    json_patch(document, verdict.object)
