"""Vectors of ElasticQuota: runtime, admission, revoke of overuse."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter
from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.plugins.quota.accounting import add
from koord_scheduler.domain.plugins.quota.admission import NO_QUOTA, QuotaAmounts, admit, without_zeros
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.overuse import RunningPod, pods_to_revoke
from koord_scheduler.domain.plugins.quota.reports import QuotaReports
from koord_scheduler.domain.plugins.quota.specs import Membership, PodFacts, pod_facts
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.quota import QuotaSpec, quota_spec
from koordcore.values.quantity import Quantity
from koordcore.values.resources import Amounts, parse_amounts, quantity_of


def _spec(given: dict[str, Json]) -> QuotaSpec:
    labels = {
        keys.QUOTA_PARENT: str(given.get("parent") or ""),
        keys.QUOTA_IS_PARENT: str(bool(given.get("is_parent"))).lower(),
        keys.QUOTA_ALLOW_LENT_RESOURCE: str(given.get("allow_lent") is not False).lower(),
    }
    annotations: dict[str, str] = {}
    if given.get("shared_weight") is not None:
        annotations[keys.QUOTA_SHARED_WEIGHT] = json.dumps(given["shared_weight"])
    if given.get("namespaces") is not None:
        annotations[keys.QUOTA_NAMESPACES] = json.dumps(given["namespaces"])
    metadata = ObjectMeta(
        name=given["name"], namespace=given.get("namespace") or "", labels=labels, annotations=annotations
    )
    return quota_spec(metadata, given.get("min") or {}, given.get("max") or {})


def _amounts(raw: Json) -> Amounts:
    return parse_amounts(raw or {})


def _lists(raw: Json) -> dict[str, Amounts]:
    lists: dict[str, Json] = raw or {}
    return {name: _amounts(amounts) for name, amounts in lists.items()}


def _pod(quota: str, part: str, requests: Amounts) -> PodFacts:
    return PodFacts(uid=f"{quota}/{part}", namespace="", name=part, quota_label=quota, requests=requests)


def _manager(given: dict[str, Json], system: Amounts, default: Amounts) -> QuotaManager:
    unlimited = ElasticQuotaArgs().default_quota_group_max
    args = ElasticQuotaArgs(
        enable_min_quota_scale=given.get("enable_min_scale") is not False,
        system_quota_group_max={**_quantities(system), **unlimited},
        default_quota_group_max={**_quantities(default), **unlimited},
    )
    gates = SchedulerGates(elastic_quota_guarantee_usage=bool(given.get("guarantee_usage")))
    return QuotaManager(args, gates)


def _quantities(amounts: Amounts) -> dict[str, Quantity]:
    return {name: quantity_of(name, amount) for name, amount in amounts.items()}


@adapter(
    "scheduler.elasticquota_runtime",
    resource_lists=("request", "limited_request", "auto_scale_min", "runtime", "allocated", "guaranteed"),
)
def elasticquota_runtime(given: dict[str, Json]) -> dict[str, Json]:
    """Requests to runtimes (scheduler-core spec, 10.3, 10.4, 10.6)."""
    system, default = _amounts(given.get("system_used")), _amounts(given.get("default_used"))
    manager = _manager(given, system, default)
    manager.set_node("node", _amounts(given["total"]))
    specs = [_spec(one) for one in given["quotas"]]
    for spec in specs:
        manager.upsert_quota(spec)
    requests, used = _lists(given.get("requests")), _lists(given.get("used"))
    for name in {**requests, **used}:
        asked, running = requests.get(name, {}), used.get(name, {})
        # sums are given, pods are counted: what runs and the rest of what is asked for
        manager.pod_seen(_pod(name, "running", running), assigned=True)
        rest = {resource: asked.get(resource, 0) - running.get(resource, 0) for resource in {**asked, **running}}
        manager.pod_seen(_pod(name, "rest", rest))
    manager.pod_seen(_pod(keys.SYSTEM_QUOTA, "taken", system), assigned=True)
    manager.pod_seen(_pod(keys.DEFAULT_QUOTA, "taken", default), assigned=True)
    reports = QuotaReports(manager)
    answer: dict[str, Json] = {}
    for spec in specs:
        status = reports.status_of(spec.name)
        answer[spec.name] = {
            "request": status.request,
            "limited_request": without_zeros(manager.forest.nodes[spec.name].limited),
            "auto_scale_min": reports.scaled_min_of(spec.name),
            "runtime": status.runtime,
            "allocated": status.allocated,
            "guaranteed": status.guaranteed,
        }
    return {"quotas": answer}


@adapter("scheduler.elasticquota_admission")
def elasticquota_admission(given: dict[str, Json]) -> dict[str, Json]:
    """Which quota a pod belongs to, and whether it fits (scheduler-core spec, 10.2, 10.5)."""
    args: dict[str, Json] = given.get("args") or {}
    membership = Membership(disable_default=bool(given.get("disable_default_quota")))
    amounts: dict[str, QuotaAmounts] = {}
    for one in given["quotas"]:
        spec = _spec(one)
        membership.put(spec)
        runtime = {name: amount for name, amount in _amounts(one.get("runtime")).items() if name in spec.max}
        amounts[spec.name] = QuotaAmounts(
            name=spec.name,
            limit=spec.max if args.get("enableRuntimeQuota") is False else runtime,
            used=_amounts(one.get("used")),
            min=spec.min,
            max=spec.max,
            non_preemptible_used=_amounts(one.get("non_preemptible_used")),
        )
    pod = pod_from_json(given["pod"])
    facts = pod_facts("uid", pod, pod_requests(pod), SchedulerGates())
    quota = membership.quota_of(facts.quota_label, facts.namespace)
    ancestors: list[QuotaAmounts] = []
    if quota in amounts and args.get("enableCheckParentQuota"):
        parent = membership.specs[quota].parent
        while parent in amounts and parent != keys.ROOT_QUOTA:
            ancestors.append(amounts[parent])
            parent = membership.specs[parent].parent
    own = amounts.get(quota or "", QuotaAmounts(quota or "", {}, {}, {}, {}, {}))
    answer = NO_QUOTA if quota is None else admit(facts.requests, own, ancestors, preemptible=facts.preemptible)
    return {
        "admit": answer.admitted,
        "quota": answer.quota,
        "check": str(answer.check),
        "exceed": list(answer.exceeded),
    }


@adapter("scheduler.elasticquota_revoke")
def elasticquota_revoke(given: dict[str, Json]) -> dict[str, Json]:
    """Pods to evict, in order (scheduler-core spec, 10.8)."""
    pods = [
        RunningPod(
            uid=one["name"],
            priority=int(one.get("priority") or 0),
            start_time=float(one.get("start_time_s") or 0),
            preemptible=not one.get("non_preemptible"),
            requests=_amounts(one.get("requests")),
        )
        for one in given["pods"]
    ]
    used: Amounts = {}
    for pod in pods:
        add(used, pod.requests)
    return {"revoke": pods_to_revoke(_amounts(given.get("runtime")), used, pods)}
