"""Vectors of the agent's QoS strategies: evictions, burst, memory QoS, resctrl, block IO, system, interference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from conformance.registry import Json, adapter
from koord_agent.domain.hooks import resctrl
from koord_agent.domain.kernel.cgroup_files import is_equal
from koord_agent.domain.kernel.counters import SchedCounters, Stall, sched_delay_ms, stall_ratio
from koord_agent.domain.kernel.resctrl_files import Schemata
from koord_agent.domain.kernel.storage_info import BlockDevice, StorageInfo, storage_of
from koord_agent.domain.node.pods import AgentPod, agent_pod
from koord_agent.domain.strategies import block_io, cpu_burst_rules, memory_qos, system_config
from koord_agent.domain.strategies.contention import contentions
from koord_agent.domain.strategies.cpu_burst import BurstLimiter
from koord_agent.domain.strategies.evict import cpu_evict, memory_evict, thresholds
from koord_agent.domain.strategies.evict.eviction import Judgement, release
from koord_agent.domain.strategies.strategy import EvictionTask, Target
from koordcore.protocol.config.fields import wire_name
from koordcore.protocol.config.node_slo import complete_strategy
from koordcore.protocol.config.node_strategies import CpuBurstStrategy, ResctrlQos, ThresholdStrategy
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.resource_names import CPU
from koordcore.values.resources import parse_amounts


def _listed(given: dict[str, Json], name: str) -> list[Json]:
    found: list[Json] | None = given.get(name)
    return found or []


def _pods(given: dict[str, Json]) -> list[AgentPod]:
    return [agent_pod(pod_from_json(pod)) for pod in _listed(given, "pods")]


def _used(given: dict[str, Json], name: str) -> dict[str, int]:
    """uid -> measured amount, of the pods that have one."""
    found: dict[str, int] = {}
    for pod in _listed(given, "pods"):
        used: dict[str, Json] = pod.get("used") or {}
        amount = used.get(name)
        if amount is not None:
            found[pod["metadata"]["uid"]] = int(amount)
    return found


@adapter("agent.evict_release")
def evict_release(given: dict[str, Json]) -> dict[str, Json]:
    """Tasks -> victims and what they release (agent spec, 12.1)."""
    tasks = [
        EvictionTask(
            feature=task["reason"],
            target=Target(task["target_type"]),
            to_release=task["to_release"],
            order=tuple(task["sorted_pods"]),
            releases=task.get("pod_release") or {},
        )
        for task in given["tasks"]
    ]
    refused = set(_listed(given, "fail_to_evict"))
    done = release(
        tasks, already_evicted=_listed(given, "already_evicted"), evict=lambda _task, uid: uid not in refused
    )
    return {
        "evicted": [victim.uid for victim in done.victims],
        "newly_evicted": bool(done.victims),
        "released": {target.value: amounts for target, amounts in done.released.items()},
        "unmet": done.unmet,
    }


def _judged(judgement: Judgement, pods: list[AgentPod], given: dict[str, Json]) -> dict[str, Json]:
    names = {pod.uid: pod.name for pod in pods}
    evicted = _listed(given, "already_evicted")
    already = {pod.uid for pod in pods if pod.name in evicted or pod.uid in evicted}
    task = judgement.task
    done = release([task] if task else [], already_evicted=already, evict=lambda _task, _uid: True)
    return {
        "valid": judgement.is_valid,
        "release": task.to_release if task else {},
        "order": [names[uid] for uid in task.order] if task else [],
        "victims": [names[victim.uid] for victim in done.victims],
    }


def _threshold(fields: Mapping[str, Json]) -> ThresholdStrategy:
    """A field that a vector leaves out or sets to null is not set, also where NodeSLOs have a default."""
    absent = [name for name in ThresholdStrategy.__struct_fields__ if fields.get(wire_name(name)) is None]
    return msgspec.structs.replace(convert(fields, ThresholdStrategy), **dict.fromkeys(absent))


@adapter("agent.cpu_evict")
def cpu_evict_task(given: dict[str, Json]) -> dict[str, Json]:
    """One of the three CPU eviction features (agent spec, 12.2-12.4)."""
    node, pods = node_from_json(given["node"]), _pods(given)
    policy = _threshold(given["threshold"])
    used = _used(given, "milli_cpu")
    allocatable = parse_amounts(node.status.allocatable)
    match given["feature"]:
        case cpu_evict.BE_CPU_EVICT:
            judgement = cpu_evict.judge_be_satisfaction(
                policy,
                _history(given.get("be_metrics")),
                collect_interval_seconds=given.get("collect_interval_seconds", 1),
                allocatable=allocatable,
                pods=pods,
                used_milli=used,
            )
        case thresholds.CPU_ALLOCATABLE_EVICT as feature:
            judgement = thresholds.judge_allocatable(feature, policy, allocatable=allocatable, pods=pods, measured=used)
        case cpu_evict.CPU_EVICT:
            judgement = cpu_evict.judge_cpu_usage(
                policy,
                given.get("node_cpu_used_cores"),
                capacity_milli=parse_amounts(node.status.capacity).get(CPU, 0),
                pods=pods,
                used_milli=used,
            )
        case other:
            raise AssertionError(f"no such feature: {other}")
    return _judged(judgement, pods, given)


def _history(metrics: dict[str, Json] | None) -> cpu_evict.BeCpuHistory | None:
    if metrics is None:
        return None

    def be(part: dict[str, Json]) -> cpu_evict.BeCpu:
        return cpu_evict.BeCpu(
            usage_milli=part["usage_milli"],
            request_milli=part["request_milli"],
            real_limit_milli=part["real_limit_milli"],
        )

    return cpu_evict.BeCpuHistory(average=be(metrics["avg"]), last=be(metrics["last"]), count=metrics["count"])


@adapter("agent.memory_evict")
def memory_evict_task(given: dict[str, Json]) -> dict[str, Json]:
    """One of the three memory eviction features (agent spec, 12.5)."""
    node, pods = node_from_json(given["node"]), _pods(given)
    policy = _threshold(given["threshold"])
    used = _used(given, "memory_bytes")
    feature, node_used = given["feature"], given.get("node_memory_used_bytes")
    if feature == thresholds.MEMORY_ALLOCATABLE_EVICT:
        allocatable = parse_amounts(node.status.allocatable)
        judgement = thresholds.judge_allocatable(feature, policy, allocatable=allocatable, pods=pods, measured=used)
    else:
        assert feature in {memory_evict.BE_MEMORY_EVICT, memory_evict.MEMORY_EVICT}
        capacity = parse_amounts(node.status.capacity).get(MEMORY, 0)
        judgement = memory_evict.judge_memory_usage(
            feature, policy, node_used, capacity_bytes=capacity, pods=pods, used_bytes=used
        )
    return _judged(judgement, pods, given)


@adapter("agent.cpu_burst")
def cpu_burst_op(given: dict[str, Json]) -> dict[str, Json]:
    """Burst values, state of the shared pool, a quota step, or the limiter (agent spec, 13)."""
    match given["op"]:
        case "burst_value":
            return _burst_value(given)
        case "node_state":
            pods = _pods(given)
            used = {
                pod["metadata"]["uid"]: pod["cpu_used_cores"]
                for pod in given["pods"]
                if pod.get("cpu_used_cores") is not None
            }
            load = cpu_burst_rules.pool_load(
                node_cpus=given["node_cpus"],
                node_cpu_used_cores=given["node_cpu_used_cores"],
                pods=pods,
                used_cores=used,
                threshold_percent=given["sharePoolThresholdPercent"],
            )
            ratio = None if load.ratio is None else round(load.ratio, 9)
            return {"state": load.state.value, "usage_ratio": ratio}
        case "quota":
            return _quota(given)
        case "limiter":
            return _limiter(given)
        case other:
            raise AssertionError(f"no such op: {other}")


def _burst_section(fields: Mapping[str, Json] | None) -> Mapping[str, Json]:
    return complete_strategy(SectionName.CPU_BURST, dict(fields or {}))


def _burst_value(given: dict[str, Json]) -> dict[str, Json]:
    pod = agent_pod(pod_from_json(given["pod"]))
    if not cpu_burst_rules.is_managed(pod):
        return {"managed": False}
    policy = cpu_burst_rules.policy_of_pod(pod, _burst_section(given.get("node_config")))
    values = {
        container.name: cpu_burst_rules.burst_value_us(policy, container.limits.get(CPU))
        for container in pod.containers
        if not container.is_init
    }
    return {"managed": True, "policy": policy.policy, "containers": values, "pod": sum(values.values())}


def _quota(given: dict[str, Json]) -> dict[str, Json]:
    limit = given["container_limit_milli_cpu"]
    if limit is None or limit <= 0:
        return {"skipped": True}
    policy = convert(_burst_section(given["config"]), CpuBurstStrategy)
    step = cpu_burst_rules.choose_step(
        policy,
        given["throttled_last"],
        limiter_allows=given["limiter_allows"],
        pool=cpu_burst_rules.PoolState(given["node_state"]),
    )
    change = cpu_burst_rules.step_quota(
        policy,
        step,
        limit_milli=limit,
        container_quota_us=given["container_quota"],
        pod_quota_us=given["pod_quota"],
    )
    return {
        "skipped": False,
        "operation": change.step.value,
        "container_quota": change.container_quota_us,
        "pod_quota": change.pod_quota_us,
        "write_order": list(change.order),
    }


def _limiter(given: dict[str, Json]) -> dict[str, Json]:
    limiter = BurstLimiter(
        period_seconds=given["period_seconds"], percent=given["percent"], tokens=given["initial_tokens"], updated_ms=0
    )
    now_ms, tokens, allowed = 0, list[int](), list[bool]()
    for seconds, usage in given["steps"]:
        now_ms += round(seconds * 1000)
        allowed.append(limiter.step(usage, now_ms))
        tokens.append(limiter.tokens)
    return {
        "capacity_tokens": limiter.capacity,
        "expire_seconds": limiter.expire_seconds,
        "tokens": tokens,
        "allowed": allowed,
    }


@adapter("agent.cgroup_reconcile", whole=("pod", "c1", "c2", "Guaranteed", "Burstable", "BestEffort", "pods"))
def cgroup_reconcile(given: dict[str, Json]) -> dict[str, Json]:
    """memory.* values of classes, pods and containers (agent spec, 14)."""
    pods = _pods(given)
    strategy = {name: {"memoryQOS": fields} for name, fields in given["strategy"].items()}
    values = memory_qos.memory_values(
        memory_qos.class_settings(strategy),
        pods,
        allocatable_bytes=given["node_allocatable_memory_bytes"],
        page_size=given["page_size"],
    )
    names = {pod.uid: pod.name for pod in pods}
    return {
        "qos": {kube_qos.value: files for kube_qos, files in values.classes.items()},
        "pods": {names[uid]: {"pod": found.pod, "containers": found.containers} for uid, found in values.pods.items()},
    }


@adapter("agent.resctrl_schemata", exact_text=("l3_mask", "l3_line", "mb_line"))
def resctrl_schemata(given: dict[str, Json]) -> dict[str, Json]:
    """Percentages of a class -> the lines of its group (agent spec, 15)."""
    share = convert(given, ResctrlQos)
    mask = resctrl.l3_mask(given["cbm_mask"], share)
    wanted = resctrl.schemata_of_class(
        share, cbm_mask=given["cbm_mask"], cache_ids=given["cache_ids"], vendor=given["vendor"]
    )
    l3, mb = resctrl.lines(Schemata(l3=wanted.l3)), resctrl.lines(Schemata(mb=wanted.mb))
    return {
        "l3_mask": None if mask is None else f"{mask:x}",
        "l3_line": l3[0] if l3 else None,
        "mb_line": mb[0] if mb else None,
    }


@adapter("agent.blkio")
def blkio_op(given: dict[str, Json]) -> dict[str, Json]:
    """Wanted lines of a target, whether a line is written, or where a block lives (agent spec, 6.11, 16)."""
    match given["op"]:
        case "plan":
            numbers = given["disk_numbers"]
            files: dict[str, Json] = given.get("files") or {}
            lines = block_io.io_plan(
                block_io.blocks_of(given),
                is_root=given["target"] == "root",
                enable=given.get("enable", True),
                disk_of=lambda block: numbers.get(block.name),
                current={name: text for name, text in files.items() if text is not None},
            )
            found = [] if lines is None else [[line.file, line.value] for line in lines]
            return {"ok": lines is not None, "writes": found}
        case "need_write":
            return {"need_write": not is_equal(given["file"], given["current"], given["value"], 1)}
        case "storage":
            info = storage_of(_block_devices(given), dict(_MOUNT.findall(given["findmnt"])))
            return {
                "disk_number": info.disk_number,
                "partition_disk": info.partition_disk,
                "vg_disk": info.vg_disk,
                "lv_mapper_vg": info.lv_mapper_vg,
                "mountpoint_device": info.mountpoint_device,
                "resolved": {wanted["key"]: _resolved(info, wanted) for wanted in _listed(given, "resolve")},
            }
        case other:
            raise AssertionError(f"no such op: {other}")


_BLOCK = re.compile(r'NAME="(.*?)" TYPE="(.*?)" MAJ:MIN="(.*?)"')
_MOUNT = re.compile(r'TARGET="(.*?)" SOURCE="(.*?)"')


def _block_devices(given: dict[str, Json]) -> list[BlockDevice]:
    """What sysfs has of the devices in the outputs of lsblk, vgs and lvs, which the vectors show."""
    (group,) = (line.split() for line in given["vgs"].splitlines())
    found: list[BlockDevice] = []
    for name, kind, number in _BLOCK.findall(given["lsblk"]):
        if kind == "lvm":
            slave = group[2].removeprefix("/dev/")
            found.append(
                BlockDevice(name="dm-0", number=number, slaves=(slave,), mapped_name=name, mapped_uuid="LVM-x")
            )
        else:
            parent = name.rstrip("0123456789") if kind == "part" else ""
            found.append(BlockDevice(name=name, number=number, parent=parent))
    return found


def _resolved(info: StorageInfo, wanted: dict[str, Json]) -> str | None:
    match wanted["type"]:
        case "device":
            return info.disk_of_device(wanted["name"])
        case "volumegroup":
            return info.disk_of_group(wanted["name"])
        case _:
            return info.disk_of_volume(wanted["pod_uid"], wanted["volume"])


@adapter("agent.sysreconcile", whole=("writes",))
def sysreconcile(given: dict[str, Json]) -> dict[str, Json]:
    """Node-wide kernel parameters (agent spec, 17)."""
    strategy = complete_strategy(SectionName.SYSTEM, given["strategy"])
    wanted = system_config.system_writes(
        strategy,
        memory_capacity_bytes=given["node_memory_capacity_bytes"],
        sched_features=given.get("current_sched_features"),
    )
    return {"writes": wanted.values, "sched_features": list(wanted.sched_features)}


def _sched_delay_ms(previous: Sequence[int], current: Sequence[int]) -> float | None:
    before, after = (SchedCounters(wait_ns=counters[1], slices=counters[2]) for counters in (previous, current))
    return sched_delay_ms(before, after)


SIGNALS: Final[dict[str, tuple[str, Callable[..., float | None]]]] = {
    "sched_delay": ("avg_delay_ms", _sched_delay_ms),
    "disk_await": ("await_ms", contentions.disk_await_ms),
    "retrans": ("retrans_ratio", contentions.retransmit_ratio),
}


@adapter("agent.interference")
def interference_op(given: dict[str, Json]) -> dict[str, Json]:
    """States of a signal, or a signal's value from counters (agent spec, 18)."""
    match given["op"]:
        case "psi_state":
            patience = contentions.Patience(
                enter_samples=given.get("enter_samples", 3), leave_samples=given.get("leave_samples", 3)
            )
            contention, states = contentions.Contention(), list[str]()
            for value in given["avg10"]:
                contention = contention.after(value, given["threshold"], patience)
                states.append(contention.state.value)
            return {"states": states}
        case "psi_ratio":
            before, after = Stall(total_us=given["previous_total_us"]), Stall(total_us=given["current_total_us"])
            ratio = stall_ratio(before, after, given["interval_us"] * 1000)
            return {"stall_ratio": ratio}
        case other:
            name, signal = SIGNALS[other]
            return {name: signal(given["previous"], given["current"])}
