"""What a quota's object says, and which pods belong to it."""

import json

import pytest
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.specs import PodFacts, pod_facts
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.quota import QuotaSpec, quota_spec

CPU = {"cpu": 100_000}


def quota(name: str, namespace: str = "", namespaces: tuple[str, ...] = ()) -> QuotaSpec:
    return QuotaSpec(name=name, namespace=namespace, namespaces=namespaces, max=CPU, weight=CPU)


def pod(uid: str, label: str = "", namespace: str = "team") -> PodFacts:
    return PodFacts(uid=uid, namespace=namespace, name=uid, quota_label=label, requests={"cpu": 1000})


def manager_with(*specs: QuotaSpec, gates: SchedulerGates | None = None) -> QuotaManager:
    manager = QuotaManager(gates=gates)
    for spec in specs:
        manager.upsert_quota(spec)
    return manager


def meta(name: str, annotations: dict[str, str] | None = None, **labels: str) -> ObjectMeta:
    written = {f"quota.scheduling.koordinator.sh/{key.replace('_', '-')}": text for key, text in labels.items()}
    return ObjectMeta(name=name, namespace="ns", labels=written, annotations=annotations or {})


def test_quota_without_labels_is_a_lending_child_of_the_root_that_weighs_its_max() -> None:
    spec = quota_spec(meta("q"), {"cpu": "500m"}, {"cpu": "2", "memory": "1Gi"})
    assert spec == QuotaSpec(
        name="q",
        namespace="ns",
        min={"cpu": 500},
        max={"cpu": 2000, "memory": 1 << 30},
        weight={"cpu": 2000, "memory": 1 << 30},
    )


def test_only_the_exact_texts_switch_flags() -> None:
    spec = quota_spec(meta("q", is_parent="True", allow_lent_resource="no", is_root="1"), {}, {})
    assert (spec.is_parent, spec.allow_lent, spec.is_root) == (False, True, False)
    spec = quota_spec(meta("q", is_parent="true", allow_lent_resource="false", parent="p", tree_id="t"), {}, {})
    assert (spec.is_parent, spec.allow_lent, spec.parent, spec.tree_id) == (True, False, "p", "t")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"cpu": "x"}', '{"cpu": 0, "memory": "0"}', "null"])
def test_bad_or_all_zero_shared_weight_is_max(text: str) -> None:
    spec = quota_spec(meta("q", {keys.QUOTA_SHARED_WEIGHT: text}), {}, {"cpu": 4})
    assert spec.weight == {"cpu": 4000}


def test_shared_weight_that_names_one_resource_leaves_the_others_without_weight() -> None:
    spec = quota_spec(meta("q", {keys.QUOTA_SHARED_WEIGHT: '{"cpu": "3"}'}), {}, {"cpu": 4, "memory": 5})
    assert spec.weight == {"cpu": 3000}


def test_deprecated_resource_names_of_a_quota_are_read_as_the_current_ones() -> None:
    spec = quota_spec(meta("q"), {}, {"koordinator.sh/batch-cpu": 4000})
    assert spec.max == {"kubernetes.io/batch-cpu": 4000}


@pytest.mark.parametrize("text", ["", "x", '"team"', "[1]", '{"a": 1}'])
def test_malformed_namespaces_bind_no_namespace(text: str) -> None:
    assert quota_spec(meta("q", {keys.QUOTA_NAMESPACES: text}), {}, {}).namespaces == ()


def test_label_wins_over_namespace_and_annotation() -> None:
    manager = manager_with(quota("team", "team"), quota("named"), quota("lister", namespaces=("team",)))
    assert manager.pod_seen(pod("1", "named")) == "named"
    assert manager.pod_seen(pod("2")) == "team"


def test_of_several_quotas_that_list_a_namespace_the_smallest_name_takes_it() -> None:
    manager = manager_with(quota("z", namespaces=("team",)), quota("b", namespaces=("other", "team")))
    assert manager.pod_seen(pod("1")) == "b"


def test_quota_named_like_the_namespace_but_of_another_one_does_not_take_it() -> None:
    assert manager_with(quota("team", "elsewhere")).pod_seen(pod("1")) == keys.DEFAULT_QUOTA


def test_pod_of_an_unknown_quota_waits_in_the_default_quota_and_moves_when_it_appears() -> None:
    manager = manager_with()
    assert manager.pod_seen(pod("1", "late"), assigned=True) == keys.DEFAULT_QUOTA
    assert manager.upsert_quota(quota("late")).moved == (("1", keys.DEFAULT_QUOTA, "late"),)
    assert manager.forest.nodes["late"].used == {"cpu": 1000}
    assert not any(manager.forest.nodes[keys.DEFAULT_QUOTA].used.values())


def test_pods_of_a_deleted_quota_fall_to_the_default_quota() -> None:
    manager = manager_with(quota("q"))
    manager.pod_seen(pod("1", "q"), assigned=True)
    assert manager.delete_quota("q").moved == (("1", "q", keys.DEFAULT_QUOTA),)
    assert manager.forest.nodes[keys.DEFAULT_QUOTA].used == {"cpu": 1000}


def test_pod_that_changes_its_label_moves_with_what_it_uses() -> None:
    manager = manager_with(quota("a"), quota("b"))
    manager.pod_seen(pod("1", "a"), assigned=True)
    assert manager.pod_seen(pod("1", "b")) == "b"
    assert manager.forest.nodes["b"].used == {"cpu": 1000}
    assert not any(manager.forest.nodes["a"].used.values())


def test_without_default_quota_only_known_labels_count() -> None:
    manager = manager_with(quota("team", "team"), gates=SchedulerGates(disable_default_quota=True))
    assert manager.pod_seen(pod("1")) == ""
    assert manager.pod_seen(pod("2", "unknown")) == ""
    assert manager.pod_seen(pod("3", "team")) == "team"
    assert manager.admit(pod("2", "unknown")).admitted


def test_built_in_quotas_come_back_as_they_were() -> None:
    manager = manager_with()
    manager.upsert_quota(QuotaSpec(name=keys.DEFAULT_QUOTA, max={"cpu": 1}, weight={"cpu": 1}))
    manager.delete_quota(keys.DEFAULT_QUOTA)
    assert set(manager.membership.specs[keys.DEFAULT_QUOTA].max) == {"cpu", "memory"}
    assert set(manager.names()) == {keys.ROOT_QUOTA, keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA}


def facts_of(raw: object, **gates: bool) -> PodFacts:
    pod_object = pod_from_json(raw)
    return pod_facts("u", pod_object, pod_requests(pod_object), SchedulerGates(**gates))


OVERHEAD = {
    "metadata": {"name": "p", "namespace": "n", "labels": {keys.QUOTA_NAME: "q", keys.QUOTA_PREEMPTIBLE: "false"}},
    "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "250m"}, "priority": 7},
    "status": {"startTime": "1970-01-01T00:01:00Z"},
}


def test_pod_facts_are_read_from_labels_requests_and_status() -> None:
    assert facts_of(OVERHEAD) == PodFacts(
        uid="u",
        namespace="n",
        name="p",
        quota_label="q",
        requests={"cpu": 1250},
        priority=7,
        preemptible=False,
        start_time=60.0,
    )


def test_overhead_is_left_out_with_its_gate() -> None:
    assert facts_of(OVERHEAD, elastic_quota_ignore_pod_overhead=True).requests == {"cpu": 1000}


def test_terminating_pod_is_dropped_at_once_after_its_grace_or_never_as_the_gates_say() -> None:
    raw = json.loads(json.dumps(OVERHEAD))
    raw["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z"
    raw["spec"]["terminationGracePeriodSeconds"] = 5
    assert facts_of(raw).ignored_at is None
    assert facts_of(raw, elastic_quota_ignore_terminating_pod=True).ignored_at == 605.0
    at_once = {f"elastic_quota_{each}ignore_terminating_pod": True for each in ("immediate_", "")}
    assert facts_of(raw, **at_once).ignored_at == 0.0
