"""Vectors of the manager's admission: what a door changes and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

from conformance.registry import Json, adapter
from koord_manager.domain.admission.colocation_profile import mutate_by_profiles
from koord_manager.domain.admission.config_maps import check_data
from koord_manager.domain.admission.context.facts import ENHANCED_NAME, ENHANCED_NAMESPACE, QUOTAS, Facts
from koord_manager.domain.admission.context.quota import read_quota
from koord_manager.domain.admission.nodes import amplify_node
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.mutating import normalize_gpu, record_extended_resources
from koord_manager.domain.admission.pods.validating import validate_pod
from koord_manager.domain.admission.quotas.evaluation import evaluate
from koord_manager.domain.admission.quotas.quota_objects import default_quota, validate_quota
from koord_manager.domain.admission.request import Operation
from koordcore.protocol import keys
from koordcore.protocol.config.admission import NodeLabels
from koordcore.protocol.objects import ObjectMeta, PriorityClass, pod_from_json
from koordcore.values.resources import format_resources, parse_resources


def _object(holder: Json, *path: str) -> dict[str, Json]:
    """The object at a path; absent and null are the empty one."""
    found: dict[str, Json] = holder or {}
    for name in path:
        found = found.get(name) or {}
    return found


def _items(holder: dict[str, Json], name: str) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = holder.get(name) or []
    return found


def _parsed(text: Json) -> Json:
    """The JSON value of an annotation; None when it is absent or cannot be read."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def _options(given: dict[str, Json]) -> Options:
    return Options(gates=_object(given, "feature_gates"))


def _facts(given: dict[str, Json]) -> Facts:
    """The facts of a case: profiles, namespace, priority classes, quotas, pods."""
    facts = Facts()
    for plural, name in (("clustercolocationprofiles", "profiles"), (QUOTAS, "quotas")):
        for document in _items(given, name):
            meta = document["metadata"]
            facts.observe(plural, meta.get("namespace", ""), meta["name"], document)
    for name, written in _object(given, "priority_classes").items():
        priority_class = PriorityClass(
            metadata=ObjectMeta(name=name),
            value=written["value"],
            preemption_policy=written.get("preemptionPolicy") or "",
        )
        facts.priority_class_observed(name, priority_class)
    for number, pod in enumerate(_items(given, "pods")):
        facts.pod_observed(str(number), pod_from_json(pod))
    return facts


def _namespace(pod: Json) -> str:
    return str(_object(pod, "metadata").get("namespace") or "")


@adapter("manager.profile_mutate", resource_lists=("requests", "limits", "overhead"))
def profile_mutate(given: dict[str, Json]) -> dict[str, Json]:
    """A pod and the profiles of a cluster -> the pod after them (manager spec, 8.2, 8.3)."""
    facts = _facts(given)
    pod = given["pod"]
    if given["operation"] != Operation.CREATE:
        return {"pod": pod}
    facts.namespace_observed(_namespace(pod), given.get("namespace_labels"))
    drawn: list[float] = given.get("random") or []
    draws: Iterator[float] = iter(drawn)
    mutated, _ = mutate_by_profiles(pod, _namespace(pod), facts, _options(given), lambda _: next(draws))
    return {"pod": mutated}


@adapter("manager.extended_resource_spec", resource_lists=("requests", "limits"))
def extended_resource_spec(given: dict[str, Json]) -> dict[str, Json]:
    """A pod -> its annotation after the step (manager spec, 9.1)."""
    pod = given["pod"]
    off = _options(given).enabled("DisableExtendedResourceSpec") or given["operation"] != Operation.CREATE
    changed = not off and record_extended_resources(pod)
    text = _object(pod, "metadata", "annotations").get(keys.EXTENDED_RESOURCE_SPEC)
    return {"annotation": _parsed(text), "changed": changed}


@adapter("manager.device_resource_spec", resource_lists=("requests", "limits"))
def device_resource_spec(given: dict[str, Json]) -> dict[str, Json]:
    """Resources of one container -> in their one form (manager spec, 9.3)."""
    resources = _object(given, "resources")
    normalize_gpu(resources)
    return {"resources": resources}


@adapter("manager.pod_validate")
def pod_validate(given: dict[str, Json]) -> dict[str, Json]:
    """A pod to be created or updated -> broken rules of the first failing group (manager spec, 10)."""
    facts = _facts(given)
    facts.config_observed(ENHANCED_NAMESPACE, ENHANCED_NAME, given.get("enhanced_validator_config"))
    pod = pod_from_json(given["pod"])
    updates = given["operation"] == Operation.UPDATE and given.get("old_pod")
    old = pod_from_json(given["old_pod"]) if updates else None
    found = validate_pod(pod, old, _namespace(given["pod"]), facts, facts.quotas, _options(given))
    return {"allowed": not found, "rules": list(dict.fromkeys(violation.rule for violation in found))}


@adapter("manager.amplification_webhook", resource_lists=("allocatable", "raw_allocatable"))
def amplification_webhook(given: dict[str, Json]) -> dict[str, Json]:
    """A node status update -> allocatable and the kept raw values (manager spec, 11.1)."""
    node, _ = amplify_node(Operation(given["operation"]), given["node"], given.get("old_node"))
    return {
        "allocatable": _object(node, "status", "allocatable"),
        "raw_allocatable": _parsed(_object(node, "metadata", "annotations").get(keys.RAW_ALLOCATABLE)),
        "error": False,
    }


@adapter("manager.configmap_validate")
def configmap_validate(given: dict[str, Json]) -> dict[str, Json]:
    """Data of the configuration -> verdict and reason (manager spec, 12.2)."""
    if given.get("operation") == Operation.DELETE:
        return {"allowed": True, "reason": None}
    nodes = [
        NodeLabels(name=node["metadata"]["name"], labels=_object(node, "metadata", "labels"))
        for node in _items(given, "nodes")
    ]
    found = check_data(
        _object(given, "data"),
        _object(given, "old_data"),
        nodes,
        check_names=bool(given.get("node_strategy_name_check")),
    )
    return {"allowed": not found, "reason": found[0].rule if found else None}


@adapter("manager.quota_defaults", resource_lists=("shared_weight",))
def quota_defaults(given: dict[str, Json]) -> dict[str, Json]:
    """A new quota -> parent, tree id and shared weight (manager spec, 13.1)."""
    quota, _ = default_quota(Operation(given["operation"]), given["quota"], _facts(given).quotas)
    labels = _object(quota, "metadata", "labels")
    return {
        "error": False,
        "parent": labels.get(keys.QUOTA_PARENT),
        "tree_id": labels.get(keys.QUOTA_TREE_ID),
        "shared_weight": _parsed(_object(quota, "metadata", "annotations").get(keys.QUOTA_SHARED_WEIGHT)),
    }


@adapter("manager.quota_validate")
def quota_validate(given: dict[str, Json]) -> dict[str, Json]:
    """A quota to be created, updated or deleted -> the first broken rule (manager spec, 13.2)."""
    facts = _facts(given)
    quota = read_quota(given["quota"]) if given.get("quota") else None
    old = read_quota(given["old_quota"]) if given.get("old_quota") else None
    found = validate_quota(Operation(given["operation"]), quota, old, facts.quotas, facts, _options(given))
    return {"allowed": found is None, "rule": found.rule if found else None}


@adapter("manager.quota_evaluate", resource_lists=("used_after",))
def quota_evaluate(given: dict[str, Json]) -> dict[str, Json]:
    """A batch of requests of one quota -> answers and what is used after it (manager spec, 10.4)."""
    limits = parse_resources(given["max"])
    evaluation = evaluate(
        limits,
        parse_resources(given.get("child_request")),
        parse_resources(given.get("admission")) or limits,
        [parse_resources(request) for request in given["pod_requests"]],
        shown="ns/quota",
    )
    return {
        "results": [{"allowed": answer.allowed, "exceeded": list(answer.exceeded)} for answer in evaluation.answers],
        "used_after": format_resources(evaluation.used),
        "written": evaluation.written,
    }
