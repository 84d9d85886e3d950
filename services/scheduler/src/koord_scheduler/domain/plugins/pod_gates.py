"""Plugins that keep a pod out whatever the nodes are: SchedulingGates, and DynamicResources, which rejects claims.

Source: scheduler-core spec, 2 (PreEnqueue), 5.9
"""

from typing import Final

from koordcore.protocol.keys import POD_GROUP
from koordcore.protocol.native_groups import native_group_field
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.extension_points import CONCERNS, PRE_ENQUEUE, PRE_FILTER, QUEUEING_HINTS
from koord_scheduler.domain.framework.fact_points import WakesItself
from koord_scheduler.domain.framework.outcomes import Rejection

MOST_POD_TERMS: Final = 256
"""Affinity terms about other pods that a pod may have. Each costs time at every attempt, and memory for every node."""


class SchedulingGates:
    """The plugin SchedulingGates: keeps pods with `spec.schedulingGates` out of the queue. It also keeps out pods of
    groups of Kubernetes' Workload API, which this scheduler cannot place together, unless they name a gang as well,
    and pods with more than `MOST_POD_TERMS` affinity terms about other pods.
    """

    name = "SchedulingGates"
    extension_points = (CONCERNS, PRE_ENQUEUE)

    def concerns(self, pod: Pod) -> bool:
        return (
            bool(pod.spec.scheduling_gates) or bool(native_group_field(pod)) or _number_of_terms(pod) > MOST_POD_TERMS
        )

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        if pod.pod is None:
            return None
        gates = [gate.name for gate in pod.pod.spec.scheduling_gates]
        if gates:
            return f"waiting for scheduling gates: {', '.join(gates)}"
        number = _number_of_terms(pod.pod)
        if number > MOST_POD_TERMS:
            return f"spec.affinity: at most {MOST_POD_TERMS} terms about other pods are supported, got {number}"
        field = native_group_field(pod.pod)
        if not field:
            return None
        rule = f"name its gang by the label {POD_GROUP} and a PodGroup instead"
        return f"spec.{field}: groups of the Workload API are not supported; {rule}"


def _number_of_terms(pod: Pod) -> int:
    affinity = pod.spec.affinity
    if affinity is None:
        return 0
    kinds = (affinity.pod_affinity, affinity.pod_anti_affinity)
    return sum([len(each.required) + len(each.preferred) for each in kinds if each is not None])


class DynamicResources(WakesItself):
    """The plugin DynamicResources: rejects pods with `spec.resourceClaims`, which this scheduler cannot allocate."""

    name = "DynamicResources"
    extension_points = (CONCERNS, PRE_FILTER, QUEUEING_HINTS)

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.resource_claims)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """Reject every pod with resource claims, because dynamic resource allocation is not supported."""
        if pod.pod is None or not pod.pod.spec.resource_claims:
            return None
        return Rejection(plugin=self.name, message="resource claims (dynamic resource allocation) are not supported")
