"""What the manager offers of a machine to best-effort pods, and how the agent holds them back."""

from koordcore.events.envelope import BasedOn
from koordcore.events.nodepolicy import NodeOvercommitComputed, OvercommitTerms
from koordcore.events.nodestate import BeCpuSuppressed
from koordcore.events.observation import Usage
from support.projector.synthetic_machines import Machine


def overcommit(machine: Machine, high: int, system: Usage, at: str, based_on: BasedOn) -> NodeOvercommitComputed | None:
    """Offer the unused part of a machine, unless that has hardly changed."""
    margin = machine.cpu * 40 // 100
    batch = max(0, machine.cpu - margin - system.cpu_milli - high)
    if machine.batch_cpu and abs(batch - machine.batch_cpu) < machine.cpu // 20:
        return None
    terms = OvercommitTerms(
        capacity=machine.cpu,
        margin=margin,
        system_used=system.cpu_milli,
        reserved=0,
        high_priority_used=high,
        high_priority_request=machine.cpu_held,
        result=batch,
        policy="usage",
    )
    memory_margin = machine.memory * 35 // 100
    memory = max(0, machine.memory - memory_margin - machine.memory_held // 2)
    memory_terms = OvercommitTerms(
        capacity=machine.memory,
        margin=memory_margin,
        system_used=system.memory_bytes,
        reserved=0,
        high_priority_used=machine.memory_held // 2,
        high_priority_request=machine.memory_held,
        result=memory,
        policy="usage",
    )
    computed = NodeOvercommitComputed(
        batch_cpu_milli=batch,
        batch_memory_bytes=memory,
        reason="first" if not machine.batch_cpu else "changed",
        terms={"cpu": terms, "memory": memory_terms},
        metric_updated_at=at,
        config_version=0,
        based_on=based_on,
    )
    machine.batch_cpu, machine.batch_memory = batch, memory
    return computed


def suppress(machine: Machine, busy: int, high: int, system: Usage) -> BeCpuSuppressed | None:
    """Limit the best-effort pods of a machine, where the others need what they use."""
    if not any(load.qos == "BE" for load in machine.pods.values()) or busy < machine.cpu * 0.55:
        return None
    budget = max(2000, machine.cpu * 65 // 100 - high - system.cpu_milli)
    quota = budget * 100
    if machine.quota_us > 0 and abs(quota - machine.quota_us) < machine.quota_us // 20:
        return None
    suppressed = BeCpuSuppressed(
        old_quota_us=machine.quota_us,
        new_quota_us=quota,
        terms={
            "capacity": machine.cpu,
            "threshold_percent": 65,
            "pod_non_be_used": high,
            "host_non_be_used": 0,
            "system_used": system.cpu_milli,
            "budget": budget,
        },
        reason=f"pods of higher QoS use {high / 1000:.1f} of {machine.cpu // 1000} cores",
    )
    machine.quota_us = quota
    return suppressed
