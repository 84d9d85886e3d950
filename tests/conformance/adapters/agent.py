"""Vectors of the node agent: counters, cgroup names and values, series, report, executor, cpu suppression."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from conformance.registry import Json, adapter
from koord_agent.domain import cgroup_files, counters, numa_usage, usage
from koord_agent.domain.arbiter import arbitrate
from koord_agent.domain.best_effort import be_real_limit_milli, be_request_milli, be_usage_milli
from koord_agent.domain.cgroup_layout import CgroupLayout, Driver, HostApplication, detect_driver
from koord_agent.domain.collect_policy import collect_policy_of
from koord_agent.domain.executor import Update, WriteCache, plan_writes
from koord_agent.domain.metric_kinds import Kind
from koord_agent.domain.plan import Band, CgroupFile, Merge, Plan
from koord_agent.domain.pods import agent_pod, node_reserved_milli
from koord_agent.domain.qos import cpu_suppress
from koord_agent.domain.qos.be_cpuset import CpuOwners, select_cpus
from koord_agent.domain.report import (
    AggregatedUsage,
    ReportedHostApplication,
    Usage,
    node_report,
)
from koord_agent.domain.series import NoSamples, Points, SeriesStore, aggregate, is_cold
from koordcore.protocol.config.typed import CpuSuppressPolicy
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.protocol.qos import KubeQos
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli
from koordcore.values.resources import parse_resources
from koordcore.values.topology import CpuPlace

CGROUP_ROOT = "/sys/fs/cgroup"


def none_if(*errors: type[Exception]) -> Callable[[Callable[[], Json]], Json]:
    """Call a function; the named errors are the vectors' null."""

    def run(compute: Callable[[], Json]) -> Json:
        try:
            return compute()
        except errors:
            return None

    return run


unless_malformed = none_if(counters.MalformedCounter, InvalidInput)
unless_refused = none_if(ValueError, LookupError)


@adapter("agent.usage_from_counters")
def usage_from_counters(given: dict[str, Json]) -> dict[str, Json]:
    """Raw texts or counters -> usage (agent spec, 6.1-6.6, 6.10)."""
    match given["op"]:
        case "node_cpu":
            return {"cpu_cores": unless_malformed(lambda: _node_cpu(given))}
        case "numa_cpu":
            places = {int(cpu): node for cpu, node in given["cpu_to_numa"].items()}
            cores = numa_usage.numa_cpu_cores(
                given["previous"],
                given["current"],
                places,
                interval_ns=given["interval_ns"],
                jiffy_ns=given["jiffy_ns"],
            )
            return {"cpu_cores": _text_keys(cores)}
        case "node_memory":
            memory = unless_malformed(lambda: counters.parse_node_memory(given["meminfo"]))
            return {
                "used_bytes": memory and memory.used_bytes,
                "with_page_cache_bytes": memory and memory.with_page_cache_bytes,
            }
        case "numa_memory":
            node = int(given["meminfo"].split()[1])
            return {"used_bytes": unless_malformed(lambda: numa_usage.numa_memory_used_bytes(given["meminfo"], node))}
        case "cgroup_cpu":
            return {"cpu_cores": unless_malformed(lambda: _cgroup_cpu(given))}
        case "cgroup_memory":
            memory = unless_malformed(
                lambda: counters.parse_cgroup_memory(given["memory_stat"], given["cgroup_version"])
            )
            return {
                "used_bytes": memory and memory.used_bytes,
                "with_page_cache_bytes": memory and memory.with_page_cache_bytes,
            }
        case "throttled":
            return {"throttled_ratio": unless_malformed(lambda: _throttled(given))}
        case "be_usage":
            used = be_usage_milli(given["previous_ns"], given["current_ns"], given["interval_ms"])
            return {"usage_milli_cpu": used}
        case "be_real_limit":
            sizes = [len(parse_cpuset(text)) for text in given["cpusets"]]
            limit = be_real_limit_milli(sizes, given["cfs_quota_us"], given["cfs_period_us"])
            return {"real_limit_milli_cpu": limit}
        case "be_request":
            pods = [agent_pod(pod_from_json(pod)) for pod in given["pods"]]
            requests = [request for pod in pods for request in pod.be_requests_milli]
            return {"request_milli_cpu": be_request_milli(requests)}
        case "system":
            return _system(given)
        case "numa_system":
            cpu = numa_usage.numa_system_cpu_cores(given["system_cpu"], given["node_numa_cpu"])
            memory = numa_usage.numa_system_memory_bytes(given["node_numa_memory"], given["pods_numa_memory"])
            return {"cpu_cores": cpu, "memory_bytes": memory}
        case "numa_stat":
            pages = unless_malformed(lambda: numa_usage.parse_numa_stat(given["content"], given["cgroup_version"]))
            return {"pages": _text_keys(pages)}
        case "cold_pages":
            boundary = given.get("boundary", numa_usage.COLD_BOUNDARY)
            return {"cold_bytes": unless_malformed(lambda: numa_usage.cold_page_bytes(given["content"], boundary))}
        case other:
            raise AssertionError(f"no such op: {other}")


def _text_keys(values: Mapping[int, Json] | None) -> dict[str, Json] | None:
    return None if values is None else {str(key): value for key, value in values.items()}


def _node_cpu(given: dict[str, Json]) -> float | None:
    return usage.node_cpu_cores(
        counters.parse_busy_ticks(given["previous"]),
        counters.parse_busy_ticks(given["current"]),
        interval_ns=given["interval_ns"],
        jiffy_ns=given["jiffy_ns"],
    )


def _cgroup_cpu(given: dict[str, Json]) -> float | None:
    version = given["cgroup_version"]
    return usage.cgroup_cpu_cores(
        counters.parse_cpu_usage_ns(given["previous"], version),
        counters.parse_cpu_usage_ns(given["current"], version),
        interval_ns=given["interval_ns"],
    )


def _throttled(given: dict[str, Json]) -> float | None:
    version = given["cgroup_version"]
    return usage.throttled_ratio(
        counters.parse_throttling(given["previous"], version), counters.parse_throttling(given["current"], version)
    )


def _system(given: dict[str, Json]) -> dict[str, Json]:
    def measured(name: str) -> usage.Measured | None:
        point = given.get(name)
        return usage.Measured(at_ms=point[0], value=point[1]) if point is not None else None

    parts = usage.SystemParts(
        node_cpu=measured("node_cpu"),
        node_memory=measured("node_memory"),
        pods_cpu=measured("pods_cpu"),
        pods_memory=measured("pods_memory"),
        host_apps_cpu=measured("host_apps_cpu"),
        host_apps_memory=measured("host_apps_memory"),
    )
    rest = usage.system_usage(parts, now_ms=given["now_ms"], outdated_ms=given["outdated_ms"])
    return {"cpu_cores": rest and rest.cpu_cores, "memory_bytes": rest and rest.memory_bytes}


@adapter("agent.cgroup_path", exact_text=("dir", "file", "pod_id", "container_id", "sandbox", "driver"))
def cgroup_path(given: dict[str, Json]) -> dict[str, Json]:
    """Names of cgroup directories and files, and back (agent spec, 3.1-3.4)."""
    layout = CgroupLayout(Driver(given.get("driver", "systemd")))
    match given["op"]:
        case "qos":
            return {"dir": layout.qos_directory(KubeQos(given["kube_qos"]))}
        case "pod":
            return {"dir": layout.pod_directory(KubeQos(given["kube_qos"]), given["pod_uid"])}
        case "container":
            qos, uid, identity = KubeQos(given["kube_qos"]), given["pod_uid"], given["container_id"]
            return {"dir": unless_refused(lambda: layout.container_directory(qos, uid, identity))}
        case "file":
            root, version = given.get("cgroup_root", CGROUP_ROOT), given["cgroup_version"]
            return {
                "file": unless_refused(lambda: cgroup_files.file_path(root, given["resource"], given["dir"], version))
            }
        case "parse_pod":
            return {"pod_id": layout.parse_pod(given["basename"])}
        case "parse_container":
            return {"container_id": layout.parse_container(given["basename"])}
        case "host_app":
            return {"dir": unless_refused(lambda: layout.host_application_directory(_host_application(given["app"])))}
        case "sandbox":
            return {"sandbox": unless_refused(lambda: layout.sandbox(given["container_ids"], given["dirs"]))}
        case "driver":
            return {"driver": detect_driver(given["dirs"], given.get("kubelet_args"), given.get("kubelet_config"))}
        case other:
            raise AssertionError(f"no such op: {other}")


def _host_application(app: dict[str, Json]) -> HostApplication:
    path: Json = app.get("cgroupPath")
    parts: dict[str, Json] = path or {}
    return HostApplication(
        name=app["name"],
        qos=app.get("qos", ""),
        priority=app.get("priority", ""),
        base=None if path is None else path.get("base", ""),
        parent_dir=parts.get("parentDir", ""),
        relative_path=parts.get("relativePath", ""),
    )


@adapter("agent.cgroup_v2_convert")
def cgroup_v2_convert(given: dict[str, Json]) -> dict[str, Json]:
    """Values between v1 and v2, helper conversions, validity, equality (agent spec, 3.4)."""
    match given["op"]:
        case "write":
            name, version = given["resource"], given.get("cgroup_version", 2)
            return {
                "file": unless_refused(lambda: cgroup_files.resource(name).file(version)),
                "value": unless_refused(lambda: cgroup_files.to_file_text(name, given["value"], version)),
            }
        case "read":
            text = unless_refused(
                lambda: cgroup_files.from_file_text(given["resource"], given["content"], given["cgroup_version"])
            )
            number = cgroup_files.parse_number(text) if text is not None else None
            return {"value": text if number is None else number}
        case "milli_to_shares":
            return {"shares": cgroup_files.milli_to_shares(given["milli_cpu"])}
        case "milli_to_quota":
            return {"quota_us": cgroup_files.milli_to_quota_us(given["milli_cpu"])}
        case "validate":
            refused = unless_refused(lambda: cgroup_files.validate(given["resource"], given["value"]) or True)
            return {"valid": refused is not None}
        case "equal":
            equal = cgroup_files.is_equal(
                given["resource"], given["current"], given["value"], given.get("cgroup_version", 1)
            )
            return {"equal": equal}
        case other:
            raise AssertionError(f"no such op: {other}")


@adapter("agent.metric_aggregate")
def metric_aggregate(given: dict[str, Json]) -> dict[str, Json]:
    """Aggregates, span and the cold-start rule of one list of samples (agent spec, 5, 7.3)."""
    points = Points(times_ms=[point[0] for point in given["points"]], values=[point[1] for point in given["points"]])
    unless_empty = none_if(NoSamples)
    values = {name: unless_empty(lambda name=name: aggregate(points, name)) for name in given["aggregates"]}
    answer: dict[str, Json] = {"values": values, "span_ms": points.span_ms}
    if "window_ms" in given:
        answer["cold_start"] = is_cold(points, given["window_ms"])
    return answer


SERIES = {
    "node": {
        "cpu": Kind.NODE_CPU,
        "memory": Kind.NODE_MEMORY,
        "memory_with_page_cache": Kind.NODE_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.NODE_MEMORY_WITH_HOT_PAGE,
    },
    "system": {"cpu": Kind.SYSTEM_CPU, "memory": Kind.SYSTEM_MEMORY},
    "pods": {
        "cpu": Kind.POD_CPU,
        "memory": Kind.POD_MEMORY,
        "memory_with_page_cache": Kind.POD_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.POD_MEMORY_WITH_HOT_PAGE,
    },
    "host_apps": {
        "cpu": Kind.HOST_APP_CPU,
        "memory": Kind.HOST_APP_MEMORY,
        "memory_with_page_cache": Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.HOST_APP_MEMORY_WITH_HOT_PAGE,
    },
    "numa": {
        "cpu": Kind.NUMA_CPU,
        "memory": Kind.NUMA_MEMORY,
        "system_cpu": Kind.SYSTEM_NUMA_CPU,
        "system_memory": Kind.SYSTEM_NUMA_MEMORY,
    },
}


@adapter("agent.node_metric_report", whole=("nodeUsage", "systemUsage", "podUsage", "usage"))
def node_metric_report(given: dict[str, Json]) -> dict[str, Json]:
    """The effective collect policy, or the report computed from series (agent spec, 7)."""
    spec: dict[str, Json] = given.get("spec") or {}
    policy = collect_policy_of(spec.get("metricCollectPolicy"))
    if given["op"] == "policy":
        effective = policy.effective()
        return {
            "report_interval_seconds": effective.report_interval_seconds,
            "aggregate_duration_seconds": effective.aggregate_duration_seconds,
            "durations_seconds": list(effective.durations_seconds),
            "memory_policy": effective.memory.value,
        }
    report = node_report(
        _stored(given["series"]),
        now_ms=given["now_ms"],
        policy=policy,
        pods=[agent_pod(pod_from_json(pod)).reported for pod in given.get("pods", [])],
        host_applications=[
            ReportedHostApplication(name=app["name"], priority=app.get("priority", ""), qos=app.get("qos", ""))
            for app in given.get("host_applications", [])
        ],
        cold_memory_running=given.get("cold_memory_started", False),
        with_aggregates=given.get("with_aggregates", False),
    )
    return {
        "nodeUsage": _usage(report.node_usage),
        "systemUsage": _usage(report.system_usage),
        "aggregatedNodeUsages": _windows(report.aggregated_node_usages),
        "aggregatedSystemUsages": _windows(report.aggregated_system_usages),
        "numaUsages": [
            {
                "numaNodeID": numa.numa_node,
                "nodeUsage": _usage(numa.node_usage),
                "systemUsage": _usage(numa.system_usage),
            }
            for numa in report.numa_usages
        ],
        "podsMetric": [
            {
                "namespace": metric.pod.namespace,
                "name": metric.pod.name,
                "priority": metric.pod.priority,
                "qos": metric.pod.qos,
                "podUsage": _usage(metric.usage),
            }
            for metric in report.pods
        ],
        "hostApplicationMetric": [
            {
                "name": metric.application.name,
                "priority": metric.application.priority,
                "qos": metric.application.qos,
                "usage": _usage(metric.usage),
            }
            for metric in report.host_applications
        ],
    }


def _stored(series: dict[str, Json]) -> SeriesStore:
    store = SeriesStore()
    for group, kinds in SERIES.items():
        given = series.get(group, {})
        objects = {"": given} if group in ("node", "system") else given
        for name, parts in objects.items():
            for part, points in parts.items():
                for at_ms, value in points:
                    store.append(kinds[part], at_ms, value, name)
    return store


def _usage(used: Usage | None) -> dict[str, int]:
    return {} if used is None else {"cpu_milli": used.cpu_milli, "memory_bytes": used.memory_bytes}


def _windows(windows: tuple[AggregatedUsage, ...]) -> list[Json]:
    return [
        {
            "duration_seconds": window.duration_seconds,
            "usage": {name: _usage(used) for name, used in window.usage.items()},
        }
        for window in windows
    ]


@adapter("agent.executor_merge", exact_text=("writes",))
def executor_merge(given: dict[str, Json]) -> dict[str, Json]:
    """Leveled updates -> ordered writes and the files afterwards (agent spec, 9)."""
    now_ms = 1_000_000
    files = {_cgroup_file(path): text for path, text in given["files"].items()}
    cache = WriteCache()
    for path, entry in given.get("cache", {}).items():
        cache.entries[_cgroup_file(path)] = (entry["value"], now_ms - entry["age_seconds"] * 1000)
    levels = [
        [
            Update(file=_cgroup_file(item["file"]), value=item["value"], merge=Merge(item.get("merge", "none")))
            for item in level
        ]
        for level in given["levels"]
    ]
    plan = plan_writes(levels, files, cache, now_ms=now_ms)
    afterwards = {file.key: text for file, text in files.items()}
    for write in plan.writes:
        afterwards[write.update.file.key] = write.value
    return {"writes": [[write.update.file.key, write.value] for write in plan.writes], "files": afterwards}


def _cgroup_file(path: str) -> CgroupFile:
    directory, _, resource = path.rpartition("/")
    return CgroupFile(directory, resource)


@adapter("agent.arbitration", exact_text=("value", "plugins", "dropped"), whole=("result",))
def arbitration(given: dict[str, Json]) -> dict[str, Json]:
    """Plans of several plug-ins -> one value per knob, and the plans that lost (agent spec, 10.2)."""
    now_ms = 1_000_000_000
    plans = [
        Plan(
            plugin=item["plugin"],
            band=Band[item["band"].upper()],
            file=_knob(item["file"], item["value"]),
            value=item["value"],
            created_ms=now_ms - round(item["age_seconds"] * 1000),
            ttl_ms=round(item["ttl_seconds"] * 1000),
        )
        for item in given["plans"]
    ]
    current: dict[str, Json] = given.get("current") or {}
    done = arbitrate(plans, now_ms, {_cgroup_file(path): text for path, text in current.items()})
    return {
        "result": {
            file.key: {"value": winner.value, "plugins": list(winner.plugins)} for file, winner in done.winners.items()
        },
        "dropped": sorted([loser.plan.plugin, loser.plan.file.key, loser.loss.value] for loser in done.losers),
    }


def _knob(path: str, value: str) -> CgroupFile:
    """The knob that a value for a file belongs to: block-IO files have one per device."""
    file = _cgroup_file(path)
    device = value.split(" ", 1)[0] if file.resource.startswith("blkio.") else ""
    return CgroupFile(file.directory, file.resource, device)


def _places(rows: list[list[int]]) -> tuple[CpuPlace, ...]:
    return tuple(CpuPlace(cpu=cpu, core=core, socket=socket, node=node) for cpu, core, socket, node in rows)


@adapter("agent.be_cpuset_select")
def be_cpuset_select(given: dict[str, Json]) -> dict[str, Json]:
    """n CPUs for best effort out of a topology (agent spec, 11.3)."""
    chosen = select_cpus(given["want_cpus"], _places(given["cpus"]))
    return {"cpuset": format_cpuset(chosen), "count": len(chosen)}


@adapter("agent.cpu_suppress")
def cpu_suppress_decision(given: dict[str, Json]) -> dict[str, Json]:
    """The best-effort budget and what it does to quota or CPU list (agent spec, 11.1, 11.2, 11.5)."""
    node = node_from_json(given["node"])
    pods = [(agent_pod(pod_from_json(pod)), pod.get("cpu_used_cores")) for pod in given["pods"]]
    be_root = given.get("be_root", {})
    cpuset = be_root.get("cpuset")
    topology = given.get("topology")
    owners = None
    if topology is not None:
        reserved, system = _topology_annotations(topology.get("annotations", {}))
        owners = CpuOwners(
            cpus=_places(topology["cpus"]),
            by_qos_label={cpu: pod.qos_label for pod, _ in pods for cpu in pod.cpuset},
            reserved=reserved,
            system_exclusive=system,
        )
    view = cpu_suppress.NodeView(
        now_ms=0,
        capacity_milli=parse_milli(node.status.capacity.get("cpu", 0)),
        reserved_milli=node_reserved_milli(
            parse_resources(node.status.capacity), parse_resources(node.status.allocatable), node.metadata.annotations
        ),
        node_cpu_used_cores=given["node_cpu_used_cores"],
        pods=tuple(cpu_suppress.PodCpu(is_best_effort=pod.is_best_effort, cpu_used_cores=used) for pod, used in pods),
        orphan_cpu_used_cores=sum(given.get("orphan_pod_usage", {}).values()),
        host_applications=tuple(
            cpu_suppress.HostAppCpu(
                is_best_effort=_host_application(app).is_best_effort, cpu_used_cores=app.get("cpu_used_cores")
            )
            for app in given.get("host_applications", [])
        ),
        be_root="kubepods/besteffort",
        be_quota_us=be_root.get("cfs_quota_us", -1),
        be_cgroups=()
        if cpuset is None
        else (cpu_suppress.BeCgroup(directory="kubepods/besteffort", cpuset=parse_cpuset(cpuset)),),
        owners=owners,
    )
    threshold = given["threshold"]
    policy = cpu_suppress.SuppressPolicy(
        enable=True,
        threshold_percent=threshold["cpuSuppressThresholdPercent"],
        min_percent=threshold.get("cpuSuppressMinPercent"),
        by=CpuSuppressPolicy(threshold.get("cpuSuppressPolicy", "cpuset")),
    )
    terms = cpu_suppress.budget(view, policy, given["node_cpu_used_cores"])
    decision = cpu_suppress.decide(view, policy)
    in_force = "" if decision.cpuset is None else format_cpuset(decision.cpuset)
    return {
        "be_suppress_milli_cpu": terms.budget_milli,
        "action": decision.action.value,
        "want_cpus": decision.want_cpus,
        "cpuset": in_force,
        "cfs_quota_us": decision.new_quota_us,
    }


def _topology_annotations(annotations: dict[str, str]) -> tuple[frozenset[int], frozenset[int]]:
    """CPUs that the topology object reports as reserved, and as exclusive to the system QoS."""
    reservation = json.loads(annotations.get("node.koordinator.sh/reservation", "{}"))
    system = json.loads(annotations.get("node.koordinator.sh/system-qos-resource", "{}"))
    exclusive = parse_cpuset(system.get("cpuset", "")) if system.get("cpusetExclusive", True) else frozenset[int]()
    return parse_cpuset(reservation.get("reservedCPUs", "")), exclusive
