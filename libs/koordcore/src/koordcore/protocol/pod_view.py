"""A pod as the scheduler and the descheduler see it: labels that stand in for fields of the spec.

Applied once, when a pod enters a component's state; the stored object is not changed.
"""

from __future__ import annotations

import msgspec

from koordcore.protocol import keys
from koordcore.protocol.annotations.scheduling import preemption_policy_or_never, scheduler_name
from koordcore.protocol.objects import Pod
from koordcore.protocol.priority import priority_value


def component_view(pod: Pod, *, priority_transformer: bool = False, preemption_policy_transformer: bool = False) -> Pod:
    """The pod with its effective scheduler name, and, per feature gate, priority and preemption policy.

    A scheduler-name label, even an empty one, replaces the field; the replaced name is kept in an annotation when it
    differs. The given pod comes back itself when nothing changes.
    priority_transformer            gate PriorityTransformer: `spec.priority` becomes `priority_value(pod)`
    preemption_policy_transformer   gate PreemptionPolicyTransformer: the label's policy, else Never
    source    protocol spec, 2.2 (8), (9)
    """
    spec, metadata = pod.spec, pod.metadata
    name = scheduler_name(metadata.labels, spec.scheduler_name)
    priority = priority_value(pod) if priority_transformer else spec.priority
    policy = preemption_policy_or_never(metadata.labels) if preemption_policy_transformer else spec.preemption_policy
    if (name, priority, policy) == (spec.scheduler_name, spec.priority, spec.preemption_policy):
        return pod
    if name != spec.scheduler_name:
        annotations = {**metadata.annotations, keys.ORIGINAL_SCHEDULER_NAME: spec.scheduler_name}
        metadata = msgspec.structs.replace(metadata, annotations=annotations)
    spec = msgspec.structs.replace(spec, scheduler_name=name, priority=priority, preemption_policy=policy)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)
