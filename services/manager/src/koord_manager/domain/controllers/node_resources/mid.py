"""Mid resources of a node: what prod pods have requested and, by prediction, will not use.

dynamic   max(min(prod reclaimable, capacity - used), 0) + unallocated * midUnallocatedPercent / 100
static    capacity * midStatic...ReservedPercent / 100
both      at most capacity * mid...ThresholdPercent / 100
unallocated = max(capacity - max(system, reserved) - requests of prod pods, 0)

`prod reclaimable` is the prediction in the usage report: what prod pods requested and will not use. `used` is the
usage of the whole node.

Source:
    manager spec, 5.12
"""

from collections.abc import Iterable
from typing import NamedTuple

from koordcore.events.nodepolicy import MidTerms
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.config.sections import ColocationStrategy
from koordcore.protocol.objects import Node
from koordcore.protocol.priority import PriorityBand
from koordcore.values.resources import clamped

from koord_manager.domain.cluster.amounts import Amount, PodUse, amount_of_usage, scaled, system_usage
from koord_manager.domain.controllers.node_resources.batch import node_reserved

MID_SYSTEM_CLASSES = (PriorityBand.PROD,)
"""Host applications that count as system usage: those above the default value of mid (7500)."""


class Mid(NamedTuple):
    cpu_milli: int
    memory_bytes: int
    terms: dict[str, MidTerms]  # `cpu` and `memory` -> every number of the formula, for the event and `koord explain`


def compute_mid(
    node: Node,
    capacity: Amount,
    pods: Iterable[PodUse],
    report: NodeUsageReported,
    used: Amount | None,
    strategy: ColocationStrategy,
) -> Mid:
    """Return the mid resources of a node from a usage report that is not too old.

    Cpu normalization does not change them. `pods` are the `high_priority_pods` of the node. If `used` is None, there is
    no sample, and nothing counts as unused.

    Source: manager spec, 5.12; vectors manager/mid_resource.
    """
    if strategy.mid_reclaim_static:
        cpu = _static(capacity.cpu, strategy.mid_static_cpu_reserved_percent, strategy.mid_cpu_threshold_percent)
        memory = _static(
            capacity.memory, strategy.mid_static_memory_reserved_percent, strategy.mid_memory_threshold_percent
        )
        return Mid(cpu.result, memory.result, {"cpu": cpu, "memory": memory})
    taken = system_usage(report, MID_SYSTEM_CLASSES).larger(node_reserved(node))
    asked = [pod.request for pod in pods if pod.band is not PriorityBand.MID]
    requested = Amount(sum(request.cpu for request in asked), sum(request.memory for request in asked))
    reclaimable = amount_of_usage(report.prod_reclaimable)
    unused = Amount() if used is None else Amount(capacity.cpu - used.cpu, capacity.memory - used.memory)
    percent = strategy.mid_unallocated_percent
    cpu = _dynamic(
        capacity.cpu,
        (reclaimable.cpu, unused.cpu, taken.cpu, requested.cpu),
        percent,
        strategy.mid_cpu_threshold_percent,
    )
    memory = _dynamic(
        capacity.memory,
        (reclaimable.memory, unused.memory, taken.memory, requested.memory),
        percent,
        strategy.mid_memory_threshold_percent,
    )
    return Mid(cpu.result, memory.result, {"cpu": cpu, "memory": memory})


def _static(capacity: int, reserved_percent: int, cap_percent: int) -> MidTerms:
    cap = scaled(capacity, cap_percent)
    fixed = scaled(capacity, reserved_percent)
    return MidTerms(mode="static", capacity=capacity, static_share=fixed, cap=cap, result=min(fixed, cap))


def _dynamic(capacity: int, inputs: tuple[int, int, int, int], percent: int, cap_percent: int) -> MidTerms:
    """Return the terms of one resource.

    `inputs` are the amounts that are reclaimable, unused, used by the system or reserved, and requested by prod pods.
    """
    reclaimable, unused, taken, requested = inputs
    taken, requested = clamped(taken), clamped(requested)
    share = scaled(max(capacity - taken - requested, 0), percent)
    cap = scaled(capacity, cap_percent)
    return MidTerms(
        mode="dynamic",
        capacity=capacity,
        prod_reclaimable=reclaimable,
        unused=unused,
        system_or_reserved=taken,
        prod_request=requested,
        unallocated_share=share,
        cap=cap,
        result=min(max(min(reclaimable, unused), 0) + share, cap),
    )
