"""Hostile objects at the doors of admission: always an answer, and nothing is accepted that would be refused again.

50,000 objects go through the pure chain and 600 over HTTPS (a tenth in `make test`), all from one seed.
"""

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from koord_manager.domain.admission.chain import admit, mutate, surroundings, validate
from koord_manager.domain.admission.context.facts import PROFILES, Facts
from koord_manager.domain.admission.json_patch import json_patch
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import Operation, Request
from koord_manager.domain.admission.strategic_merge import strategic_merge
from koordcore.protocol.objects import ObjectMeta, PriorityClass
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from support.depth import repeats
from support.manager.hostile_objects import BASES, GATES, POD, PROFILE, as_object, facts_of, hostile_request
from support.manager.webhook_world import ALL_GATES, review_body, webhook_world
from support.mutations import damaged, mutated

Json = dict[str, Any]
SEED = 20261121
OBJECTS = repeats(50_000)
OVER_HTTP = repeats(600)


@pytest.mark.fuzz
def test_hostile_objects_are_answered_and_no_accepted_one_is_refused_again() -> None:
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

        decision = admit(request, around)

        assert codec.encode(request.object) == before, "the submitted object was changed in place"
        if not decision.allowed:
            outcomes["refused"] += 1
            assert decision.message
            assert all(violation.rule for violation in decision.violations)
            continue
        outcomes["changed" if decision.steps else "allowed"] += 1
        if decision.steps:
            assert request.object is not None
            assert decision.object is not None
            patched = jsonpatch.apply_patch(request.object, json_patch(request.object, decision.object))
            assert patched == decision.object
        again = Request(
            uid=request.uid,
            operation=request.operation,
            resource=request.resource,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name,
            object=decision.object,
            old_object=request.old_object,
        )
        assert validate(again, around).allowed
    assert outcomes["changed"] > repeats(1000), outcomes
    assert outcomes["refused"] > repeats(5000), outcomes
    assert outcomes["allowed"] > repeats(5000), outcomes


def place_that_cannot_be_merged(pod: Json, patch: Json) -> str | None:
    try:
        strategic_merge(pod, patch)
    except InvalidInput as error:
        return error.path
    return None


@pytest.mark.fuzz
def test_a_hostile_patch_of_a_profile_is_merged_or_refused_with_its_place() -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for _ in range(repeats(20_000)):
        pod, patch = mutated(rng, POD), as_object(mutated(rng, PROFILE["spec"]["patch"]))
        if patch is None:
            continue
        refused_at = place_that_cannot_be_merged(pod, patch)
        assert refused_at is None or refused_at.startswith("patch.")
        outcomes["merged" if refused_at is None else "refused"] += 1
    assert min(outcomes.values()) > repeats(1000), outcomes


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


@pytest.mark.fuzz
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
            decision = admit(request, surroundings(request, facts, options))
            assert decision.allowed or decision.message
            if decision.steps and decision.object is not None:
                with contextlib.suppress(InvalidInput):
                    json_patch(document, decision.object)
