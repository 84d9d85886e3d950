"""Single steps of admission: merge patches, affinity of quota trees, bindings, configuration objects."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_manager.domain.admission.chain import mutate, surroundings
from koord_manager.domain.admission.context.enhanced_rules import EnhancedRules, read_rules
from koord_manager.domain.admission.context.facts import PROFILES, QUOTA_PROFILES, QUOTAS, Facts
from koord_manager.domain.admission.context.quota import Quotas, read_quota
from koord_manager.domain.admission.options import BindingPolicy, Options, draws_of
from koord_manager.domain.admission.pods.validating import BoundPod, validate_binding
from koord_manager.domain.admission.quotas.pending_quotas import FORGOTTEN_AFTER_SECONDS, PendingQuotas
from koord_manager.domain.admission.request import Operation, Request
from koord_manager.domain.admission.strategic_merge import strategic_merge
from koord_manager.domain.admission.webhooks import WEBHOOKS, Address, configuration, reconciled, served
from koordcore.values.invalid import InvalidInput

Json = dict[str, Any]
PREFIX = "quota.scheduling.koordinator.sh/"
ADDRESS = Address(namespace="koordinator-system", service="koordinator-webhook-service")


MERGES: list[tuple[Json, Json, Json]] = [
    ({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}, {"a": 1, "b": {"c": 1, "d": 2}}),
    ({"a": 1}, {"a": None, "b": {"c": None}}, {"b": {}}),
    ({"b": {"c": 1}}, {"b": {"$patch": "replace", "d": 2}}, {"b": {"d": 2}}),
    ({"b": {"c": 1}}, {"b": {"$patch": "delete"}}, {"b": {}}),
    ({"b": {"c": 1, "d": 2}}, {"b": {"$retainKeys": ["d", "e"], "e": 3}}, {"b": {"d": 2, "e": 3}}),
    (
        {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}},
        {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}},
        {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]}},
    ),
    (
        {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}},
        {"spec": {"containers": [{"name": "a", "env": [{"name": "Y"}, {"name": "X", "$patch": "delete"}]}]}},
        {"spec": {"containers": [{"name": "a", "env": [{"name": "Y"}]}]}},
    ),
    (
        {"spec": {"containers": [{"name": "a", "command": ["x"]}]}},
        {"spec": {"containers": [{"name": "a", "command": ["y", "z"]}]}},
        {"spec": {"containers": [{"name": "a", "command": ["y", "z"]}]}},
    ),
    (
        {"spec": {"tolerations": [{"key": "a"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
    ),
    (
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b", "a"]}},
        {"metadata": {"finalizers": ["a", "b"]}},
    ),
    (
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    (
        {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}},
    ),
    (
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
        {"spec": {"volumes": [{"$patch": "replace"}, {"name": "w"}]}},
        {"spec": {"volumes": [{"name": "w"}]}},
    ),
    (
        {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "1"}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "a", "tty": True}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "1", "tty": True}]}}}},
    ),
]


@pytest.mark.parametrize(("original", "patch", "merged"), MERGES)
def test_strategic_merge_follows_kubernetes(original: Json, patch: Json, merged: Json) -> None:
    before = repr(original)

    assert strategic_merge(original, patch) == merged
    assert repr(original) == before


@pytest.mark.parametrize("patch", [{"$patch": "explode"}, {"spec": {"containers": [{"image": "x"}]}}])
def test_a_patch_that_cannot_be_merged_names_its_place(patch: Json) -> None:
    with pytest.raises(InvalidInput, match="patch"):
        strategic_merge({"spec": {"containers": [{"name": "a"}]}}, patch)


@pytest.mark.parametrize(
    "containers",
    [
        [{"env": [{"name": "TOKEN", "value": "hunter2"}]}],
        [{"name": "a", "env": [{"value": "hunter2"}]}],
        [{"name": "a", "env": ["hunter2"]}],
        [{"name": "a", "$setElementOrder/env": "hunter2"}],
    ],
)
def test_what_is_said_of_a_patch_that_cannot_be_merged_repeats_no_value_of_it(containers: list[Json]) -> None:
    with pytest.raises(InvalidInput) as caught:
        strategic_merge({"spec": {"containers": [{"name": "a"}]}}, {"spec": {"containers": containers}})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("directive", "value", "told"),
    [
        ("$retainKeys", [{"a": "hunter2"}], "patch.spec.$retainKeys[0]: must be the name of a field, got ['a']"),
        ("$retainKeys", [["hunter2"]], "patch.spec.$retainKeys[0]: must be the name of a field, got 'list'"),
        ("$retainKeys", ["a", None], "patch.spec.$retainKeys[1]: must be the name of a field, got 'NoneType'"),
        ("$retainKeys", "hunter2", "patch.spec.$retainKeys: must be a list, got 'str'"),
        ("$patch", {"env": "hunter2"}, "patch.spec.$patch: must be replace, delete or merge, got ['env']"),
        ("$patch", ["hunter2"], "patch.spec.$patch: must be replace, delete or merge, got 'list'"),
        (
            "$deleteFromPrimitiveList/args",
            [{"a": "hunter2"}],
            "patch.spec.$deleteFromPrimitiveList/args[0]: must be a text, a number or a truth value, got ['a']",
        ),
        (
            "$setElementOrder/containers",
            ["hunter2"],
            "patch.spec.$setElementOrder/containers[0]: must be an item with its merge key name, got 'str'",
        ),
        (
            "$setElementOrder/containers",
            [{"name": None, "image": "hunter2"}],
            "patch.spec.$setElementOrder/containers[0]: must be an item with its merge key name, got ['image', 'name']",
        ),
        ("containers", [{"name": None}], "patch.spec.containers[0]: must be an item with its merge key name, got"),
    ],
)
def test_a_directive_of_a_wrong_type_is_refused_with_field_rule_and_what_it_is(
    directive: str, value: Any, told: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        strategic_merge({"spec": {"containers": [1, {"image": "x"}, {"name": "a"}]}}, {"spec": {directive: value}})

    assert str(caught.value).startswith(told)
    assert "hunter2" not in str(caught.value)


def quota(name: str, *, namespace: str = "kube-system", parent: str = "", tree: str = "") -> Json:
    labels = {f"{PREFIX}parent": parent, f"{PREFIX}tree-id": tree}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"max": {"cpu": 1}}}


def test_pods_of_a_tree_are_kept_on_its_nodes_in_every_term() -> None:
    facts = Facts()
    facts.observe(QUOTAS, "kube-system", "team", quota("team", tree="t1"))
    selector = {"matchLabels": {"z": "1", "pool": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    facts.observe(
        QUOTA_PROFILES,
        "kube-system",
        "p",
        {"metadata": {"name": "p", "labels": {f"{PREFIX}tree-id": "t1"}}, "spec": {"nodeSelector": selector}},
    )
    terms: list[Json] = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": []}]
    required: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    expressions = [
        {"key": "pool", "operator": "In", "values": ["a"]},
        {"key": "z", "operator": "In", "values": ["1"]},
        {"key": "gpu", "operator": "Exists"},
    ]
    pod: Json = {"metadata": {"labels": {f"{PREFIX}name": "team"}}, "spec": {"affinity": {"nodeAffinity": required}}}

    cases: list[tuple[Json, list[list[Json]]]] = [
        (pod, [terms[0]["matchExpressions"], []]),
        ({"metadata": {"namespace": "team"}}, [[]]),
    ]
    for document, found in cases:
        request = Request(uid="1", operation=Operation.CREATE, resource="pods", object=document)
        decision = mutate(request, surroundings(request, facts, Options(gates={"MultiQuotaTree": True})))
        assert decision.object is not None
        affinity = decision.object["spec"]["affinity"]["nodeAffinity"]
        after = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [term["matchExpressions"] for term in after] == [[*own, *expressions] for own in found]


def test_claims_of_dynamic_resource_allocation_pass_admission_unchanged() -> None:
    facts = Facts()
    facts.observe(PROFILES, "", "a", {"metadata": {"name": "a"}, "spec": {"selector": {}, "qosClass": "LS"}})
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    container: Json = {"name": "c", "resources": {"claims": [{"name": "gpu", "request": "gpu-0"}]}}
    document: Json = {"metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": [container]}}
    request = Request(uid="1", operation=Operation.CREATE, resource="pods", namespace="default", object=document)

    decision = mutate(request, surroundings(request, facts, Options()))
    assert decision.object is not None
    assert decision.object["metadata"]["labels"], "the profile was applied"
    assert decision.object["spec"]["resourceClaims"] == claims
    assert decision.object["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu", "request": "gpu-0"}]


def test_an_invalid_selector_and_an_unknown_namespace_match_nothing() -> None:
    facts = Facts()
    bad = {"matchExpressions": [{"key": "a", "operator": "Matches", "values": ["b"]}]}
    facts.observe(PROFILES, "", "a", {"metadata": {"name": "a"}, "spec": {"selector": bad, "qosClass": "BE"}})
    unknown = {"namespaceSelector": {"matchLabels": {"x": "y"}}, "qosClass": "BE"}
    facts.observe(PROFILES, "", "b", {"metadata": {"name": "b"}, "spec": unknown})
    request = Request(uid="1", operation=Operation.CREATE, resource="pods", namespace="nowhere", object={"spec": {}})

    assert mutate(request, surroundings(request, facts, Options())).steps == ()


def test_a_draw_follows_from_the_request_and_is_spread_evenly() -> None:
    draws = [draws_of(f"uid-{number}")("profile") for number in range(2000)]

    assert draws[7] == draws_of("uid-7")("profile")
    assert draws_of("uid-7")("other") != draws[7]
    assert all(0 <= draw < 100 for draw in draws)
    assert 900 < sum(draw < 50 for draw in draws) < 1100


@pytest.mark.parametrize(
    ("policy", "user", "namespace", "pod", "decision"),
    [
        (BindingPolicy(), "anybody", "a", None, "allowed_username"),
        (BindingPolicy(user_names=("koord",)), "system:koord-scheduler", "a", None, "allowed_username"),
        (BindingPolicy(user_names=("koord",)), "other", "kube-system", None, "excluded_ns"),
        (BindingPolicy(user_names=("koord",)), "other", "a", None, "out_of_scope"),
        (BindingPolicy(user_names=("koord",), namespaces=("b",)), "other", "a", None, "out_of_scope"),
        (BindingPolicy(user_names=("koord",), namespaces=("*",)), "other", "a", None, "pod_unreadable"),
        (
            BindingPolicy(user_names=("koord",), namespaces=("*",)),
            "other", "a", BoundPod({"koordinator.sh/binding-admission-bypass": ""}, {}), "bypass_label",
        ),
        (
            BindingPolicy(user_names=("koord",), namespaces=("a",), bypass_annotations=("x",)),
            "other", "a", BoundPod({}, {"x": ""}), "bypass_annotation",
        ),
        (
            BindingPolicy(user_names=("koord",), namespaces=("a",), dry_run=True),
            "other", "a", BoundPod({}, {}), "dry_run",
        ),
        (BindingPolicy(user_names=("koord",), namespaces=("a",)), "other", "a", BoundPod({}, {}), "denied"),
    ],
)  # fmt: skip
def test_bindings_are_decided_by_the_first_rule(
    policy: BindingPolicy, user: str, namespace: str, pod: BoundPod | None, decision: str
) -> None:
    found = validate_binding(policy, user, namespace, pod)

    assert found.decision == decision
    assert found.allowed == (decision != "denied")


def test_unreadable_enhanced_rules_keep_the_former_ones() -> None:
    former = read_rules(EnhancedRules(), {"enable": "true", "rules": '[{"name":"a","requiredLabels":["x"]}]'})

    assert read_rules(former, {"enable": "true", "rules": "{"}).rules == former.rules
    assert read_rules(former, None) == EnhancedRules()


def test_the_manifest_that_users_install_names_the_webhooks_of_the_default_gates() -> None:
    manifest = Path(__file__).parents[4] / "k8s" / "base" / "webhooks.yaml"
    installed = list(yaml.safe_load_all(manifest.read_text(encoding="utf-8")))

    assert installed == [
        configuration("mutate", "koordinator-mutating-webhook-configuration", Options(), ADDRESS, b""),
        configuration("validate", "koordinator-validating-webhook-configuration", Options(), ADDRESS, b""),
    ]


def test_a_configuration_object_is_rebuilt_from_what_the_user_installed() -> None:
    everything = Options(gates={gate: True for webhook in WEBHOOKS for gate in webhook.gates})
    installed = configuration("validate", "v", everything, ADDRESS, b"")
    installed["webhooks"][0]["timeoutSeconds"] = 3

    kept = reconciled(installed, Options(), ADDRESS, b"CA")
    assert kept is not None
    assert [entry["name"].split(".")[0] for entry in kept["webhooks"]] == ["vpod", "vpod-others", "velasticquota"]
    assert kept["webhooks"][0]["timeoutSeconds"] == 3
    assert reconciled(kept, Options(), ADDRESS, b"CA") is None

    # a gate that is switched on later finds its entry in the template; a rotated CA reaches every entry
    again = reconciled(kept, everything, ADDRESS, b"NEW")
    assert again is not None
    assert len(again["webhooks"]) == len(installed["webhooks"])
    assert len({entry["clientConfig"]["caBundle"] for entry in again["webhooks"]}) == 1


def test_the_entry_of_a_gate_that_is_switched_on_is_added_until_it_is_off_again() -> None:
    everything = Options(gates={gate: True for webhook in WEBHOOKS for gate in webhook.gates})
    installed = configuration("validate", "v", Options(), ADDRESS, b"")

    more = reconciled(installed, everything, ADDRESS, b"CA")
    assert more is not None
    assert {entry["name"] for entry in more["webhooks"]} == {
        webhook.entry_name for webhook in WEBHOOKS if webhook.kind == "validate"
    }
    assert reconciled(more, everything, ADDRESS, b"CA") is None

    less = reconciled(more, Options(), ADDRESS, b"CA")
    assert less is not None
    assert [entry["name"] for entry in less["webhooks"]] == [entry["name"] for entry in installed["webhooks"]]


def test_an_entry_that_is_installed_in_a_new_form_stays_so() -> None:
    kept = reconciled(configuration("mutate", "m", Options(), ADDRESS, b""), Options(), ADDRESS, b"CA")
    assert kept is not None
    kept["webhooks"][0]["failurePolicy"] = "Ignore"

    again = reconciled(kept, Options(), ADDRESS, b"CA") or kept

    assert again["webhooks"][0]["failurePolicy"] == "Ignore"
    assert reconciled(again, Options(), ADDRESS, b"CA") is None


def test_by_host_the_api_server_comes_by_url() -> None:
    address = Address(namespace="n", service="s", host="10.0.0.1", port=9876)
    entry = configuration("mutate", "m", Options(), address, b"CA")["webhooks"][0]

    assert entry["clientConfig"]["url"] == "https://10.0.0.1:9876/mutate-pod"
    assert reconciled(configuration("mutate", "m", Options(), ADDRESS, b""), Options(), address, b"CA") is not None


def test_the_default_gates_serve_pods_and_quotas() -> None:
    assert {webhook.path for webhook in served(Options())} == {
        "/mutate-pod",
        "/validate-pod",
        "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota",
        "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota",
    }


def test_an_accepted_quota_counts_until_it_is_seen_or_forgotten() -> None:
    pending, observed = PendingQuotas(), Quotas()
    accepted = read_quota(quota("q"))
    pending.accept("q", accepted, 0.0)

    assert pending.current(observed, 1.0) == {"q": accepted}
    observed.put(read_quota(quota("q")))
    assert pending.current(observed, 1.0) == {}

    pending.accept("q", None, 2.0)
    assert pending.current(observed, 3.0) == {"q": None}
    assert pending.current(observed, 2.0 + FORGOTTEN_AFTER_SECONDS) == {}


def test_two_quotas_of_one_name_leave_nothing_behind_when_one_is_gone() -> None:
    quotas = Quotas()
    bound = {"quota.scheduling.koordinator.sh/namespaces": '["team"]'}
    for namespace, annotations in (("a", bound), ("b", {})):
        metadata = {"namespace": namespace, "name": "q", "annotations": annotations}
        quotas.put(read_quota({"metadata": metadata, "spec": {}}))
    quotas.remove("b", "q")

    assert quotas.of_namespace("team") is None
    assert quotas.children("koordinator-root-quota") == []
