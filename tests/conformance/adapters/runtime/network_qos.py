"""Vectors of core scheduling and network QoS: groups of pods, Terway's files, classes of tc."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_agent.domain.hooks import core_sched, network_qos, traffic_control
from koord_agent.domain.strategies.group_identity import is_idle
from koordcore.protocol.keys import QOS_CLASS
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput


@adapter("runtime.coresched", exact_text=("group_id",))
def coresched(given: dict[str, Json]) -> dict[str, Json]:
    strategy, kube_qos = given["resource_qos_strategy"], KubeQos(given["kube_qos"])
    if given["op"] == "cpu_idle":
        return {"cpu_idle": int(is_idle(strategy, "", kube_qos))}
    classes = core_sched.core_sched_classes(strategy)
    group = core_sched.core_sched_group(classes, given["labels"], kube_qos, given["pod_uid"])
    return {"enabled": group.enabled, "group_id": group.group_id}


@adapter("runtime.terwayqos", exact_text=("global_bps_config",), whole=("pods",))
def terwayqos(given: dict[str, Json]) -> dict[str, Json]:
    slo = given["node_slo"]
    if not network_qos.is_terway_enabled(slo):
        return {"enabled": False, "global_bps_config": None, "pods": None, "error": False}
    try:
        text = network_qos.global_bandwidths(slo)
    except InvalidInput:
        return {"enabled": None, "global_bps_config": None, "pods": None, "error": True}
    pods = [
        network_qos.NetworkPod(
            uid=pod["uid"],
            name=pod["name"],
            namespace=pod["namespace"],
            qos_label=_map(pod.get("labels")).get(QOS_CLASS, ""),
            kube_qos=pod.get("kube_qos") or "",
            annotations=_map(pod.get("annotations")),
            cgroup_dir=pod["cgroup_dir"],
        )
        for pod in given.get("pods") or ()
    ]
    return {"enabled": True, "global_bps_config": text, "pods": network_qos.terway_pods(pods), "error": False}


@adapter("runtime.tc_qos")
def tc(given: dict[str, Json]) -> dict[str, Json]:
    if given["op"] == "bandwidth":
        return {"bits_per_second": traffic_control.bandwidth_bits(given["value"], given["total_bits_per_second"])}
    if given["op"] == "classes":
        classes = [
            {
                "classid": one.classid,
                "parent": one.parent,
                "rate_bytes_per_second": one.rate,
                "ceil_bytes_per_second": one.ceil,
                "prio": one.prio,
            }
            for one in traffic_control.htb_classes(given["node_slo"])
        ]
        return {"classes": classes}
    found = traffic_control.pod_net_class(given["labels"], given["annotations"])
    shared = None if found.egress_bytes_per_second is not None else found.net_class
    return {
        "net_class": found.net_class and found.net_class.name,
        "net_cls_classid": shared and shared.classid,
        "ipset": shared and shared.name,
        "dedicated_class": found.egress_bytes_per_second is not None,
        "egress_bytes_per_second": found.egress_bytes_per_second,
    }


def _map(found: Json) -> dict[str, str]:
    return found or {}
