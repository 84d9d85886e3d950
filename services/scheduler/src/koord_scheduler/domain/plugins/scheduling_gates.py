"""SchedulingGates: keeps pods with `spec.schedulingGates` out of the queue.

Source: scheduler-core spec, 2 (PreEnqueue)
"""

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.extension_points import CONCERNS, PRE_ENQUEUE


class SchedulingGates:
    """The plugin SchedulingGates: keeps pods with `spec.schedulingGates` out of the queue."""

    name = "SchedulingGates"
    extension_points = (CONCERNS, PRE_ENQUEUE)

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.scheduling_gates)

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return the names of the gates that the pod waits for; None without gates."""
        gates = [gate.name for gate in pod.pod.spec.scheduling_gates] if pod.pod is not None else []
        return f"waiting for scheduling gates: {', '.join(gates)}" if gates else None
