"""Resources and annotations that a node policy (the manager's decisions for a node) sets on the Node object.

Source:
    manager spec, 5.5 to 5.12, 16.4
"""

from koordcore.protocol import keys
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.state.aggregates import NodePolicyState


def policy_resources(policy: NodePolicyState) -> dict[str, int]:
    """Return resource name -> amount that a node gets from its policy: batch, mid and device resources.

    The manager adds them to the node's capacity and allocatable. Amounts are whole units; those of batch and mid cpu
    are milli-cores. Resources that are not published are absent.
    """
    lent = {
        BATCH_CPU: policy.batch_cpu_milli,
        BATCH_MEMORY: policy.batch_memory_bytes,
        MID_CPU: policy.mid_cpu_milli,
        MID_MEMORY: policy.mid_memory_bytes,
    }
    return {name: amount for name, amount in lent.items() if amount is not None} | policy.devices


def policy_annotations(policy: NodePolicyState) -> dict[str, str]:
    """Return key -> text of the annotations that a node policy sets on the node.

    They are `cpu-normalization-ratio`, `resource-amplification-ratio` and `slo-health` (prefix `node.koordinator.sh/`).

    An annotation that the manager removed or never wrote is absent.
    """
    texts = {
        keys.CPU_NORMALIZATION_RATIO: policy.cpu_normalization,
        keys.RESOURCE_AMPLIFICATION_RATIO: policy.amplification,
        keys.SLO_HEALTH: policy.health.annotation if policy.health and policy.health.annotation else None,
    }
    return {key: text for key, text in texts.items() if text is not None}
