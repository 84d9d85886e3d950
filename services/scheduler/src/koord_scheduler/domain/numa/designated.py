"""CPUs and zone amounts that a pod's own annotation names: whether a node can give exactly these.

Another program has chosen them, and asks for them by the scheduling hint of the pod.

Source: scheduler-fine-grained spec, 1.3 (designated allocation).
"""

from collections.abc import Mapping

from koordcore.protocol.amplification import amplify
from koordcore.protocol.resource_names import CPU

from koord_scheduler.domain.numa.binding import Binding
from koord_scheduler.domain.numa.cpu_layout import mask_text
from koord_scheduler.domain.numa.zones import Allocated, NodeZones, not_as_required


def problem_of_designated(
    node: NodeZones, requests: Mapping[str, int], binding: Binding | None, designated: Allocated
) -> str:
    """Return why the node cannot give a pod the designated CPUs and zone amounts; "" if it can.

    Args:
        node: The node.
        requests: Resource -> amount that the pod requests, not amplified.
        binding: How the pod binds CPUs on the node; None if it binds none.
        designated: The CPUs and zone amounts.
    """
    cpus, zones = designated
    count = 0 if binding is None else binding.count
    if cpus.bit_count() != count:
        return f"designated CPUs {mask_text(cpus) or 'none'}: the pod binds {count} on the node"
    if cpus & ~node.free:
        return f"designated CPUs {mask_text(cpus & ~node.free)} are not free"
    if binding is not None and node.layout is not None:
        refused = not_as_required(node.layout, binding, cpus)
        if refused:
            return refused
    for zone, amounts in zones.items():
        for name, amount in amounts.items():
            weight = amplify(amount, node.ratio) if name == CPU and binding is not None else amount
            left = node.available(zone, name)
            if weight > left:
                return f"designated zone {zone} has {left} of {weight} {name} free"
    for name, amount in requests.items() if zones else ():
        given = sum(amounts.get(name, 0) for amounts in zones.values())
        if node.reports(name) and given < amount:
            return f"the designated zones have {given} of {amount} {name} that the pod requests"
    return ""
