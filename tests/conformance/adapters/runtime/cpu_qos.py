"""Vectors of group identity: what a class, a pod or a host application gets."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_agent.domain.strategies.group_identity import BvtKernel, application_bvt, bvt_rule, pod_bvt, qos_bvt
from koordcore.protocol.keys import QOS_CLASS
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput


@adapter("runtime.bvt")
def bvt(given: dict[str, Json]) -> dict[str, Json]:
    system = given["system"]
    kernel = BvtKernel(
        has_file=system["bvt_file_supported"], has_switch=system["sysctl_present"], is_on=system["sysctl_enabled"]
    )
    rule = bvt_rule(given["resource_qos_strategy"])
    try:
        match given["level"]:
            case "pod":
                label = given["labels"].get(QOS_CLASS, "")
                value = pod_bvt(rule, label, _kube_qos(given["cgroup_parent"]), given["annotations"])
            case "kubeqos":
                value = qos_bvt(rule, KubeQos(given["kube_qos"]))
            case _:
                value = application_bvt(rule, given["qos_class"])
    except InvalidInput:
        return {"bvt": None, "error": True}
    return {"bvt": value if kernel.takes(rule) else None, "error": False}


def _kube_qos(cgroup_parent: str) -> KubeQos:
    for qos in (KubeQos.BEST_EFFORT, KubeQos.BURSTABLE):
        if qos.value.lower() in cgroup_parent:
            return qos
    return KubeQos.GUARANTEED
