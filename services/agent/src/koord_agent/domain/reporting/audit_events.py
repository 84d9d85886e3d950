"""Audit events of a cycle: writes, plans that lost, interference, evictions.

Source: agent spec, 19.
"""

from koordcore.events.envelope import Event
from koordcore.events.nodestate import EvictedPod, InterferenceDetected, InterferenceEnded

from koord_agent.domain.plans.arbiter import Arbitration, Loser
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.domain.reporting.knob_summary import KnobWrite
from koord_agent.domain.state.node_look import NodeLook

DEFAULT_REASON = "UpdateCgroups"


def write_event(look: NodeLook, write: KnobWrite) -> AuditEvent:
    """Return the audit event of a write. It is about a pod if the file belongs to a pod, otherwise about a group.

    Args:
        look: Snapshot of the node.
        write: The write.
    """
    directory = write.file.directory
    pod = next((pod for pod in look.pods if _is_below(directory, look.pod_directory(pod))), None)
    return AuditEvent(
        type="pod" if pod is not None else "group",
        namespace=pod.namespace if pod is not None else "",
        name=pod.name if pod is not None else directory,
        reason=(write.winner.reason if write.winner is not None else "") or DEFAULT_REASON,
        message=f"update {write.file.key} from {write.before} to {write.after}",
        old_value=write.before,
        new_value=write.after,
        strategy=",".join(write.winner.plugins) if write.winner is not None else "",
    )


def lost_event(loser: Loser, arbitration: Arbitration) -> AuditEvent:
    """Return the audit event about a plan that was not carried out, because another plan for the same file won.

    Args:
        loser: The plan. It must not be an expired one.
        arbitration: Result of the arbitration, which has the winner for the file.
    """
    plan, winner = loser.plan, arbitration.winners[loser.plan.file]
    return AuditEvent(
        type="group",
        name=plan.file.directory,
        reason="ArbitratePlan",
        message=f"{plan.file.key}: {','.join(winner.plugins)} has {winner.value};"
        f" {plan.plugin} wanted {plan.value}: {loser.loss}",
        strategy=plan.plugin,
    )


def interference_event(fact: Event) -> AuditEvent | None:
    """Return the audit event of a contention that began or ended; None for other facts."""
    match fact:
        case InterferenceDetected():
            suspects = ", ".join(f"{s.namespace}/{s.name} {s.score:.0%}" for s in fact.suspects) or "none"
            return AuditEvent(
                type="pod",
                namespace=fact.namespace,
                name=fact.name,
                reason="interference",
                message=f"{fact.signal} {fact.value:g} reached {fact.threshold:g}; suspects: {suspects}",
            )
        case InterferenceEnded():
            return AuditEvent(type="node", reason="interference", message=f"{fact.contention} ended")
        case _:
            return None


def eviction_event(feature: str, reason: str, pod: EvictedPod) -> AuditEvent:
    """Return the audit event of an evicted pod."""
    message = f"trigger by koordlet feature {feature}, kill pod: {pod.name}; {reason}"
    return AuditEvent(type="pod", namespace=pod.namespace, name=pod.name, reason="evicted", message=message)


def _is_below(directory: str, pod_directory: str) -> bool:
    return directory == pod_directory or directory.startswith(pod_directory + "/")
