"""Vectors of the values that hooks give to pods: CPU lists, batch resources, normalization, resctrl, OOM scores."""

from __future__ import annotations

from conformance.adapters.runtime.topology_annotations import cpuset_rule
from conformance.registry import Json, adapter
from koord_agent.domain.hooks.oom_score import oom_score_adj
from koord_agent.domain.hooks.resctrl import group_name, pod_schemata
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.strategies import cpuset
from koord_agent.domain.strategies.pod_resources import (
    batch_pod,
    batch_values,
    is_suppressed_by_quota,
    normalization_ratio,
    normalized_quota_us,
)
from koordcore.protocol.keys import QOS_CLASS
from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.values.invalid import InvalidInput


@adapter("runtime.cpuset_hook", exact_text=("cpuset",))
def cpuset_hook(given: dict[str, Json]) -> dict[str, Json]:
    rule = cpuset_rule(given["topology_annotations"])
    try:
        if given["level"] == "hostapp":
            cpus = cpuset.application_cpuset(rule, given["qos_class"])
            return {"cpuset": cpus, "cfs_quota_us": None, "error": False}
        pod = given["pod"]
        status = cpuset.resource_status(pod["annotations"])
        cpus = cpuset.container_cpuset(
            rule,
            pod["labels"].get(QOS_CLASS, ""),
            _kube_qos(pod["cgroup_parent"]),
            status,
            be_by_manager=given["feature_gates"]["BECPUManager"],
        )
        quota = cpuset.owned_quota_us(status, unsets=not given["disable_unset_cpu_quota"])
    except InvalidInput:
        return {"cpuset": None, "cfs_quota_us": None, "error": True}
    return {"cpuset": cpus if given["level"] == "container" else None, "cfs_quota_us": quota, "error": False}


@adapter("runtime.batchresource_hook")
def batchresource_hook(given: dict[str, Json]) -> dict[str, Json]:
    nothing = {"cpu_shares": None, "cfs_quota_us": None, "memory_limit_bytes": None}
    if given["labels"].get(QOS_CLASS) != QosClass.BE:
        return nothing
    pod = agent_pod_from_json({"metadata": {}, **given["pod"]}) if "pod" in given else None
    found = batch_pod(pod, given.get("annotations") or {})
    ratio = normalization_ratio(given.get("node_annotations", {}))
    by_quota = is_suppressed_by_quota(given.get("resource_threshold", {}))
    if found is None:
        return nothing
    amounts = found.of_pod if given["level"] == "pod" else found.containers.get(given["container_name"])
    if amounts is None:
        return nothing
    values = batch_values(amounts, ratio=ratio, is_suppressed_by_quota=by_quota)
    return {
        "cpu_shares": values.cpu_shares,
        "cfs_quota_us": values.cfs_quota_us,
        "memory_limit_bytes": values.memory_limit_bytes,
    }


@adapter("runtime.cpunormalization_hook")
def cpunormalization_hook(given: dict[str, Json]) -> dict[str, Json]:
    quota = normalized_quota_us(
        normalization_ratio(given["node_annotations"]),
        given["labels"].get(QOS_CLASS, ""),
        cpuset.resource_status(given["annotations"]),
        given["cfs_quota_us"],
    )
    return {"cfs_quota_us": quota}


@adapter("runtime.oom_score_adj")
def oom_score(given: dict[str, Json]) -> dict[str, Json]:
    is_sandbox = given.get("sandbox", False)
    return {"target": oom_score_adj(given["annotations"], given["container_name"], is_sandbox=is_sandbox)}


@adapter("runtime.resctrl_hook", exact_text=("schemata", "group"))
def resctrl_hook(given: dict[str, Json]) -> dict[str, Json]:
    try:
        schemata = pod_schemata(
            given["annotation"],
            cbm_mask=given["l3_cbm_mask"],
            cache_ids=given["cache_ids"],
            vendor=given["vendor"],
        )
    except InvalidInput:
        return {"error": True}
    return {"group": group_name(given["pod_uid"]), "schemata": schemata, "error": False}


def _kube_qos(cgroup_parent: str) -> KubeQos:
    for qos in (KubeQos.BEST_EFFORT, KubeQos.BURSTABLE):
        if qos.value.lower() in cgroup_parent:
            return qos
    return KubeQos.GUARANTEED
