"""Vectors of the node agent: usage from counters."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.nulls import none_if
from conformance.registry import Json, adapter
from koord_agent.domain.kernel import counters, numa_usage
from koord_agent.domain.metrics import usage
from koord_agent.domain.metrics.usage import be_real_limit_milli, be_request_milli, be_usage_milli
from koord_agent.domain.node.pods import agent_pod
from koordcore.protocol.objects import pod_from_json
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.invalid import InvalidInput

unless_malformed = none_if(counters.MalformedCounter, InvalidInput)


@adapter("agent.usage_from_counters")
def usage_from_counters(given: dict[str, Json]) -> dict[str, Json]:
    """Raw texts or counters -> usage (agent spec, 6.1-6.6, 6.10)."""
    match given["op"]:
        case "node_cpu":
            return {"cpu_cores": unless_malformed(lambda: _node_cpu(given))}
        case "numa_cpu":
            places = {int(cpu): node for cpu, node in given["cpu_to_numa"].items()}
            before, after = (counters.parse_busy_ticks_per_cpu(given[name]) for name in ("previous", "current"))
            interval_ns, jiffy_ns = given["interval_ns"], given["jiffy_ns"]
            if interval_ns <= 0:  # the monitor takes no sample
                return {"cpu_cores": None}
            cores = numa_usage.numa_cores_of_ticks(before, after, places, interval_ns=interval_ns, jiffy_ns=jiffy_ns)
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
            cpu = numa_usage.numa_system_cpu_cores(given.get("system_cpu") or 0.0, given.get("node_numa_cpu") or {})
            memory = numa_usage.numa_system_memory_bytes(
                given.get("node_numa_memory") or {}, given.get("pods_numa_memory") or {}
            )
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
