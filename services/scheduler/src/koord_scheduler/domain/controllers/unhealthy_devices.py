"""States in the log which devices of a pod became unhealthy, or healthy again.

The pod keeps its devices: the scheduler never takes hardware away. Its owner reads the event and decides.

Source:
    scheduler-fine-grained spec, 2.1 (health)
"""

from collections.abc import Iterator, Mapping

from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodDeviceUnhealthy, UnhealthyDevice
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.commit.work import pod_ref
from koord_scheduler.domain.device.inventory import Card
from koord_scheduler.domain.pods.record import Phase, PodRecord
from koord_scheduler.domain.state.state import SchedulerState


def unhealthy_device_facts(state: SchedulerState) -> Iterator[tuple[AggregateRef, PodDeviceUnhealthy]]:
    """Yield (aggregate, event) for each pod whose unhealthy devices differ from the last event about them.

    An event that the log never stores is not yielded again until the unhealthy devices of the pod have changed.

    Args:
        state: The scheduler's state.
    """
    inventories = state.cluster.devices
    if not inventories.to_tell:
        return
    under_way = state.status.writes.under_way()
    for node in list(inventories.to_tell):
        inventory, is_done = inventories.by_node.get(node), True
        for pod_info in state.assumed.ledgers.pod_infos(node):
            pod = state.pods.get(pod_info.uid)
            if pod is None or not (pod_info.allocation.devices or pod.unhealthy):
                continue
            if pod.uid in state.cluster.reservations.entries:
                continue  # a Reservation has no owner that runs; pods that take its devices are told
            devices = _unhealthy(pod_info.allocation, inventory.by_minor if inventory is not None else {})
            if devices == pod.unhealthy:
                pod.unstorable = None
                continue
            if devices == pod.unstorable:
                continue
            is_done = False
            ref = pod_ref(pod.uid)
            if _is_settled(pod, node) and ref not in under_way:
                yield (
                    ref,
                    PodDeviceUnhealthy(namespace=pod.namespace, name=pod.name, node=node, devices=list(devices)),
                )
        if is_done:
            del inventories.to_tell[node]


def _is_settled(pod: PodRecord, node: str) -> bool:
    """Return whether the pod is on the node, and no decision about it is under way."""
    return pod.phase in (Phase.PLACED, Phase.BOUND) and not pod.work_node and node in (pod.node, pod.bound_node)


def _unhealthy(allocation: Allocation, by_minor: Mapping[str, Mapping[int, Card]]) -> tuple[UnhealthyDevice, ...]:
    """Return the devices of the allocation that are unhealthy. A device that vanished counts as unhealthy."""
    found: list[UnhealthyDevice] = []
    for device in allocation.devices:
        card = by_minor.get(device.type, {}).get(device.minor)
        if card is None or not card.is_healthy:
            found.append(UnhealthyDevice(type=device.type, minor=device.minor, id=device.id))
    return tuple(sorted(found, key=lambda each: (each.type, each.minor)))
