"""What a decision keeps of an object decides alike, and holds nothing that could be secret."""

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from koord_manager.domain.admission.chain import admit, surroundings
from koord_manager.domain.admission.options import Options, changed_settings, options_from
from koord_manager.domain.admission.recorded_object import LAST_APPLIED, MAX_BYTES, digest_of, recorded_part
from koord_manager.domain.admission.request import Request
from koordcore.values import codec
from support.depth import repeats
from support.manager.hostile_objects import BASES, GATES, POD, RESERVATION, Json, as_object, facts_of, hostile_request
from support.mutations import mutated

SEED = 20261122
SECRET = "s3cr3t"


def kept_request(request: Request) -> Request | None:
    """The request about what is kept of its objects; None when a decision would not keep them."""
    kept, old = (recorded_part(request.resource, document) for document in (request.object, request.old_object))
    if (kept is None) != (request.object is None) or (old is None) != (request.old_object is None):
        return None
    return msgspec.structs.replace(request, object=kept, old_object=old)


@pytest.mark.fuzz
def test_what_is_kept_of_an_object_is_decided_as_the_object_is() -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    facts, options = facts_of(rng, hostile=False), Options()
    for number in range(repeats(20_000)):
        if number % 500 == 0:
            facts = facts_of(rng, hostile=number % 1000 == 0)
            options = Options(gates={gate: rng.random() < 0.7 for gate in GATES})
        request = hostile_request(rng, number)
        reduced = kept_request(request)
        if reduced is None:
            outcomes["not kept"] += 1
            continue

        whole, kept = (admit(one, surroundings(one, facts, options)) for one in (request, reduced))

        assert whole.allowed == kept.allowed, (whole, kept)
        assert whole.steps == kept.steps
        assert [(one.rule, one.field) for one in whole.violations] == [(one.rule, one.field) for one in kept.violations]
        assert recorded_part(request.resource, whole.object) == recorded_part(request.resource, kept.object)
        assert digest_of(request.resource, whole.object) == digest_of(request.resource, kept.object)
        outcomes["changed" if whole.steps else "allowed" if whole.allowed else "refused"] += 1
    assert min(outcomes[each] for each in ("changed", "allowed", "refused")) > repeats(1000, few=70), outcomes


def secretive(container: Json) -> Json:
    value = {"name": "TOKEN", "value": SECRET}
    probe = {"httpGet": {"httpHeaders": [value]}, "exec": {"command": [SECRET]}}
    more = {"env": [value], "command": [SECRET], "args": [SECRET, SECRET]}
    return {**container, **more, "livenessProbe": probe, "lifecycle": {"preStop": probe}}


def with_secrets(spec: Json) -> Json:
    lists = ("containers", "initContainers", "ephemeralContainers")
    volume = {"name": "v", "csi": {"volumeAttributes": {"password": SECRET}}}
    return {
        **spec,
        **{name: [secretive(one) for one in spec.get(name, [{"name": "x"}])] for name in lists},
        "volumes": [volume],
    }


@pytest.mark.fuzz
@pytest.mark.parametrize("resource", ["pods", "reservations"])
def test_no_environment_command_argument_or_copy_of_the_object_is_kept(resource: str) -> None:
    document: Json = json.loads(json.dumps(POD if resource == "pods" else RESERVATION))
    holder = document if resource == "pods" else document["spec"]["template"]
    holder["spec"] = with_secrets(holder["spec"])
    for each in (document, holder):
        metadata = each.setdefault("metadata", {})
        metadata["annotations"] = {**metadata.get("annotations", {}), LAST_APPLIED: "whole"}
        metadata["managedFields"] = [{"manager": SECRET}]
    rng = random.Random(SEED)
    kept_at_all = 0
    for number in range(repeats(5000)):
        hostile: Any = mutated(rng, document) if number else document
        kept = recorded_part(resource, as_object(hostile))
        text = codec.encode(kept).decode()
        assert SECRET not in text
        assert LAST_APPLIED not in text
        kept_at_all += kept is not None
    assert kept_at_all > repeats(1000)


def test_the_resources_labels_and_priority_that_admission_reads_are_kept() -> None:
    kept = recorded_part("pods", POD)
    assert kept is not None
    assert kept["metadata"] == POD["metadata"]
    assert kept["spec"]["priority"] == POD["spec"]["priority"]
    assert kept["spec"]["containers"][0]["resources"] == POD["spec"]["containers"][0]["resources"]


def test_a_large_object_and_one_of_another_kind_are_not_kept() -> None:
    large = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "x" * MAX_BYTES}}}
    assert recorded_part("pods", large) is None
    assert recorded_part("secrets", POD) is None
    assert recorded_part("pods", None) is None
    assert (digest_of("pods", large), digest_of("secrets", POD)) == ("", "")


def test_every_base_is_kept() -> None:
    assert sum(recorded_part(resource, document) is not None for resource, document in bases()) > 5


def bases() -> list[tuple[str, Json]]:
    names = {"Pod": "pods", "Node": "nodes", "ConfigMap": "configmaps"}
    more = {"ElasticQuota": "elasticquotas", "Reservation": "reservations"}
    return [(({**names, **more})[kind], base) for _, base in BASES if (kind := base.get("kind", ""))]


def test_settings_are_told_as_they_differ_from_their_defaults() -> None:
    options = Options(
        gates={"MultiQuotaTree": True, "PodMutatingWebhook": False, "PodValidatingWebhook": True},
        check_strategy_names=True,
    )
    told = changed_settings(options)
    assert told == ["MultiQuotaTree=true", "PodMutatingWebhook=false", "node-strategy-name-need-check=true"]
    assert changed_settings(options_from(told)) == told
    assert changed_settings(Options()) == []
    assert options_from(["NoSuchGate=true"]) == Options()
