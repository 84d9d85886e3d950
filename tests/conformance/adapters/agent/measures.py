"""Vectors of what the agent measures and predicts: PSI, CPI, resctrl, CPU pools, zones, devices, NodeSLO, peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from conformance.registry import Json, adapter, disputed
from koord_agent.domain.devices import xpu as devices
from koord_agent.domain.kernel import counters as pressure
from koord_agent.domain.kernel import resctrl_files
from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.domain.metrics import cpi
from koord_agent.domain.node.cpu_pools import cpu_pools
from koord_agent.domain.node.kubelet import kubelet_configuration, static_reserved_cpus, topology_policy
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.prediction import model, predictor, reclaimable
from koord_agent.domain.reporting import topology_report
from koordcore.protocol.config.fields import JsonValue
from koordcore.protocol.config.node_slo import complete_node_slo
from koordcore.values import codec
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.decaying_histogram import DecayingHistogram, HistogramOptions
from koordcore.values.quantity import parse_milli, parse_value
from koordcore.values.resources import parse_resources
from koordcore.values.topology import CpuPlace, CpuTopology, take_packed


def _topology(rows: list[list[int]]) -> CpuTopology:
    return CpuTopology(
        tuple(CpuPlace(cpu=cpu, core=core, socket=socket, node=node) for cpu, core, socket, node in rows)
    )


@adapter("agent.psi_parse")
def psi_parse(given: dict[str, Json]) -> dict[str, Json]:
    """A pressure file (agent spec, 6.8)."""
    try:
        found = pressure.parse_pressure(given["content"])
    except MalformedCounter:
        return {"ok": False}
    return {
        "ok": True,
        "some": _stall(found.some),
        "full": _stall(found.full),
        "full_supported": found.full_supported,
    }


def _stall(stall: pressure.Stall) -> dict[str, float]:
    return {"avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300, "total": stall.total_us}


@adapter("agent.resctrl_parse")
def resctrl_parse(given: dict[str, Json]) -> dict[str, Json]:
    """Schemata, CPU support, monitoring groups (agent spec, 6.9, 15)."""
    match given["op"]:
        case "support":
            found = resctrl_files.resctrl_support(given["cpuinfo"])
            return {"vendor": found.vendor, "control": found.control, "monitor": found.monitor}
        case "mon_data":
            caches = resctrl_files.parse_monitoring(given["mon_data"])
            return {"caches": {str(cache): counters for cache, counters in caches.items()}}
        case _:
            return _schemata(given)


def _schemata(given: dict[str, Json]) -> dict[str, Json]:
    caches = given.get("l3_num", -1)
    try:
        found = resctrl_files.parse_schemata(given["content"], caches if caches >= 0 else None)
    except MalformedCounter:
        return {"ok": False}
    if given["op"] == "parse":
        return {"ok": True, "L3": _by_text(found.l3), "MB": _by_text(found.mb)}
    wanted = {kind: {int(cache): value for cache, value in values.items()} for kind, values in given["want"].items()}
    needed = any(resctrl_files.needs_write(found, kind, values) for kind, values in wanted.items())
    return {"ok": True, "need_write": needed}


def _by_text(values: Json) -> dict[str, int]:
    return {str(cache): value for cache, value in values.items()}


@adapter("agent.cpi")
def cycles_per_instruction(given: dict[str, Json]) -> dict[str, Json]:
    """Counters, baselines, outliers, antagonists (agent spec, 6.7, 18)."""
    match given["op"]:
        case "scale":
            counted = cpi.scale_counters(
                cpi.CpuCounters(
                    cycles=one.get("cycles"),
                    instructions=one.get("instructions"),
                    time_enabled_ns=one.get("time_enabled") or 0,
                    time_running_ns=one.get("time_running") or 0,
                )
                for one in given["per_cpu"]
            )
            return {"cycles": counted.cycles, "instructions": counted.instructions, "cpi": counted.cpi}
        case "baseline":
            learnt = cpi.learn_baseline(
                [cpi.CpiSample(age_days=age, task=task, cpi=value) for age, task, value in given["samples"]],
                min_tasks=given.get("min_tasks", cpi.MIN_TASKS),
                min_samples_per_task=given.get("min_samples_per_task", cpi.MIN_SAMPLES_PER_TASK),
            )
            if learnt is None:
                return {"mean": None, "stddev": None, "robust": False}
            return {"mean": learnt.mean, "stddev": learnt.stddev, "robust": learnt.robust}
        case "outlier":
            threshold = cpi.Baseline(mean=given["mean"], stddev=given["stddev"], robust=True).threshold()
            return {
                "threshold": threshold,
                "outlier": [cpi.is_outlier(value, cores, threshold) for value, cores in given["samples"]],
            }
        case "anomaly":
            times = [at for at in given["outlier_times_s"] if at is not None]
            return {"anomalous": cpi.is_anomalous(times, given["now_s"])}
        case "antagonist":
            return _antagonist(given)
        case other:
            raise AssertionError(f"no such op: {other}")


def _antagonist(given: dict[str, Json]) -> dict[str, Json]:
    suspects = [
        cpi.Suspect(name=one["name"], priority_class=one.get("class", ""), usage=one.get("usage") or [])
        for one in given["suspects"]
    ]
    found = {one.name: cpi.correlation(given["threshold"], given["victim_cpi"], one.usage) for one in suspects}
    cap = cpi.choose_antagonist(suspects, found)
    throttle = cap and {"name": cap.name, "cfs_quota_us": cap.cfs_quota_us, "seconds": cap.seconds}
    return {"correlation": found, "throttle": throttle}


@adapter("agent.cpu_shared_pool", exact_text=("cpuset", "reserved_cpus"))
def cpu_shared_pool(given: dict[str, Json]) -> dict[str, Json]:
    """Shared pools and the packed choice of CPUs (agent spec, 4.7)."""
    topology = _topology(given["cpus"])
    if given["op"] == "take":
        taken = take_packed(topology, given["count"], parse_cpuset(given["available"]))
        return {"cpuset": None if taken is None else format_cpuset(taken)}
    pods: list[Json] = given.get("pods") or []
    pools = cpu_pools(
        topology,
        [agent_pod_from_json(pod) for pod in pods],
        given.get("node_annotations") or {},
        given.get("kubelet_state_entries") or {},
    )
    return {
        "ls_pools": codec.to_builtins(pools.ls),
        "be_pools": codec.to_builtins(pools.be),
        "reserved_cpus": format_cpuset(pools.reserved),
        "kubelet_allocs": codec.to_builtins(pools.kubelet),
    }


disputed(
    "agent.nrt_report",
    "zones: number of nodes differs from cpu topology",
    "reality, 4.10: a node without memory is a zone with 0 bytes (test_cpus_and_numa_nodes.py)",
)


@adapter("agent.nrt_report", exact_text=("policy", "reserved_cpus"))
def nrt_report(given: dict[str, Json]) -> dict[str, Json]:
    """Topology policy, zones, CPUs that the kubelet reserves (agent spec, 4.7)."""
    match given["op"]:
        case "policy":
            return {"policy": topology_policy(given["topology_manager_policy"], given["topology_manager_scope"])}
        case "static_reserved":
            kubelet = kubelet_configuration(given["kubelet"])
            return {"reserved_cpus": static_reserved_cpus(kubelet, _topology(given["cpus"]))}
        case "zones":
            return {"zones": _zones(given)}
        case other:
            raise AssertionError(f"no such op: {other}")


def _zones(given: dict[str, Json]) -> Json:
    pages: dict[str, dict[str, int]] = given.get("hugepages") or {}
    memory = {
        index: topology_report.NumaMemory(
            total_bytes=kib * 1024,
            hugepages={int(size): count for size, count in pages.get(str(index), {}).items()},
        )
        for index, kib in enumerate(given["numa_memory_total_kib"])
    }
    reservation = None
    if given.get("numa_reservation_label") == "true":
        node: dict[str, Json] = given["node"]
        reservation = (parse_resources(node.get("capacity")), parse_resources(node.get("allocatable")))
    found = topology_report.zones(
        _topology(given["cpus"]),
        memory,
        report_hugepages=given.get("hugepage_report", False),
        numa_reservation=reservation,
    )
    return [
        {
            "name": zone.name,
            "type": "Node",
            "capacity": _amounts(zone.capacity),
            "allocatable": _amounts(zone.allocatable),
        }
        for zone in found
    ]


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    names: dict[str, str] = {"cpu": "milli_cpu", "memory": "memory_bytes"}
    return {names.get(name, name): amount for name, amount in amounts.items()}


@adapter("agent.device_report", exact_text=("reason", "message"))
def device_report(given: dict[str, Json]) -> dict[str, Json]:
    """The Device object of description files (agent spec, 4.8)."""
    report = devices.report_devices([devices.xpu_of(xpu) for xpu in given["xpus"]])
    return {
        "devices": [
            {
                "uuid": device.uuid,
                "minor": device.minor,
                "type": device.type,
                "resources": {name: quantity.canonical() for name, quantity in device.resources.items()},
                "health": device.health,
                "topology": codec.to_builtins(device.topology),
                "condition": codec.to_builtins(device.condition),
            }
            for device in report.devices
        ],
        "labels": report.labels,
        "partitions": codec.to_builtins(report.partitions),
    }


@adapter("agent.nodeslo_merge")
def nodeslo_merge(given: dict[str, Json]) -> dict[str, Json]:
    """The effective NodeSLO (agent spec, 4.2)."""
    effective = complete_node_slo(given["spec"])
    return {"values": {path: _at(effective, path) for path in given["paths"]}}


def _at(value: JsonValue, path: str) -> JsonValue:
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, JsonValue]", value).get(name)
    return value


BUCKETS = {"cpu": model.CPU_BUCKETS, "memory": model.MEMORY_BUCKETS}


@adapter("agent.peak_prediction")
def peak_prediction(given: dict[str, Json]) -> dict[str, Json]:
    """Histograms, training samples, prod reclaimable and peak (agent spec, 8)."""
    match given["op"]:
        case "histogram":
            return _histogram(given)
        case "bucket":
            buckets = BUCKETS[given["resource"]]
            return {
                "buckets": buckets.count,
                "index": [buckets.find(value) for value in given.get("values", [])],
                "start": [buckets.start(index) for index in given.get("bucket_indexes", [])],
            }
        case "training_parts":
            return _training(given)
        case "prod":
            return _prod(given)
        case other:
            raise AssertionError(f"no such op: {other}")


def _histogram(given: dict[str, Json]) -> dict[str, Json]:
    cpu = given["resource"] == "cpu"
    buckets = BUCKETS[given["resource"]]
    histogram = DecayingHistogram(
        HistogramOptions(buckets=buckets, epsilon=model.EPSILON, half_life_seconds=given["half_life_seconds"])
    )
    for at, value in given["samples"]:
        histogram.add(value, 1.0, at)
    answer: dict[str, Json] = {"buckets": buckets.count}
    for name, fraction in model.FRACTIONS.items():
        answer[name] = int(histogram.percentile(fraction) * (1000 if cpu else 1))
    kept = histogram.checkpoint()
    answer["checkpoint"] = {
        "bucketWeights": {str(bucket): weight for bucket, weight in kept.bucket_weights.items()},
        "totalWeight": kept.total_weight,
        "referenceTimestamp": kept.reference_timestamp,
    }
    return answer


def _training(given: dict[str, Json]) -> dict[str, Json]:
    node = given.get("node")
    pods = [
        predictor.PodUsed(
            uid=pod.get("uid", ""),
            priority_class=pod["class"],
            cpu_cores=pod.get("cpu"),
            memory_bytes=pod.get("memory"),
        )
        for pod in given["pods"]
    ]
    samples = predictor.training_samples(None if node is None else predictor.Used(*node), pods)
    return {"samples": {uid: list(used) for uid, used in samples.items()}}


def _prod(given: dict[str, Json]) -> dict[str, Json]:
    node: dict[str, Json] = given["node"]
    allocatable = _request(node.get("raw_allocatable") or node["allocatable"])
    pods = [
        reclaimable.ProdPod(
            request=_request(pod["request"]),
            age_seconds=pod["age_seconds"],
            prediction=_peak(pod.get("prediction")),
            is_over=pod.get("terminating", False) or pod.get("phase") in ("Succeeded", "Failed"),
        )
        for pod in given["pods"]
        if reclaimable.takes_part(pod["class"])
    ]
    found = reclaimable.predict_prod(
        allocatable,
        pods,
        {name: _peak(peak) for name, peak in given["class_predictions"].items()},
        cold_start_seconds=given.get("cold_start_seconds", reclaimable.COLD_START_SECONDS),
        safety_margin_percent=given.get("safety_margin_percent", reclaimable.SAFETY_MARGIN_PERCENT),
    )
    reported = found.reported
    return {
        "pod_predictor": _prediction(found.by_pod),
        "priority_predictor": _prediction(found.by_priority),
        "reclaimable": None if reported is None else _usage(reported.reclaimable),
        "peak": None if reported is None else _usage(reported.peak),
    }


def _request(resources: dict[str, Json]) -> model.Peak:
    return model.Peak(
        cpu_milli=parse_milli(resources.get("cpu", 0)), memory_bytes=parse_value(resources.get("memory", 0))
    )


def _peak(prediction: dict[str, int] | None) -> model.Peak | None:
    if prediction is None:
        return None
    return model.Peak(cpu_milli=prediction["p95_milli_cpu"], memory_bytes=prediction["p98_memory_bytes"])


def _prediction(found: reclaimable.Prediction | None) -> Json:
    return found and {"reclaimable": _usage(found.reclaimable), "peak": _usage(found.peak)}


def _usage(peak: model.Peak) -> dict[str, int]:
    return {"milli_cpu": peak.cpu_milli, "memory_bytes": peak.memory_bytes}
