"""Statuses that the leader publishes besides placements.

These are quotas, gangs, the network, ScheduleExplanations, evictions that a quota requires, the health of pods'
devices, and requests of controllers of installed plugins. A pod keeps unhealthy devices: the scheduler never takes
hardware away. Its owner reads the event and decides.

Called once per cycle. Changed quotas, PodGroups and questions are examined at most once a second, the network every
ten seconds, overuse every revokePodInterval. Each result becomes a status write, so that the log states it once
whichever instance leads.

Source: scheduler-core spec, 3 (controllers), 8.9, 9, 10.8, 10.9, 13.3; scheduler-fine-grained spec, 2.1 (health)
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.pod import PodDeviceUnhealthy, UnhealthyDevice
from koordcore.values.allocation import Allocation
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.record import Phase, PodRecord
from koord_scheduler.domain.framework.extension_points import FIND_ONE_NODE
from koord_scheduler.domain.framework.lifecycle_hooks import ControllerPlugin, Eviction, ReservationLeft
from koord_scheduler.domain.framework.plugin import declares
from koord_scheduler.domain.loop.commit.status_writes import StatusWrite
from koord_scheduler.domain.loop.commit.work import pod_ref
from koord_scheduler.domain.loop.explaining import explanation_facts
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.device.inventory import Card
from koord_scheduler.domain.plugins.gang.book import TOPOLOGY_REF, topology_event


def unhealthy_device_facts(state: SchedulerState) -> Iterator[tuple[AggregateRef, PodDeviceUnhealthy]]:
    """Yield (aggregate, event) for each pod whose unhealthy devices differ from the last event about them. An event
    that the log never stores is not yielded again until the unhealthy devices of the pod have changed.
    """
    inventories = state.books.devices
    if not inventories.to_tell:
        return
    under_way = state.status.writes.under_way()
    for node in list(inventories.to_tell):
        inventory, is_done = inventories.by_node.get(node), True
        for pod_info in state.assumed.ledgers.pod_infos(node):
            pod = state.pods.get(pod_info.uid)
            if pod is None or not (pod_info.allocation.devices or pod.unhealthy):
                continue
            if pod.uid in state.books.reservations.entries:
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


LOOK_SECONDS: Final = 1.0
TOPOLOGY_SECONDS: Final = 10.0


def chosen_controllers(written: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """Return the names of the controllers that run under the flag `--controller-plugins`. `*` stands for all, `A,B` for
    these two, `*,-A` for all but A. Parts apply from left to right, so a later part wins. Unknown names are ignored.
    Raises InvalidInput: a name is empty or consists of dashes. Source: scheduler-core spec, 3.
    """
    chosen: set[str] = set()
    for name in written:
        if not name.strip("-"):
            raise InvalidInput("a plugin's name, * for all, or -NAME for all but it", name, "controller-plugins")
        if name.startswith("-"):
            chosen.discard(name[1:])
        else:
            chosen |= set(known) if name == "*" else {name}
    return frozenset(chosen & set(known))


def status_facts(state: SchedulerState, now: float) -> list[StatusWrite]:
    """Return the appends of everything that is to be published now besides placements, and record it as published.
    These are statuses of quotas, gangs, the network and ScheduleExplanations, unhealthy devices of pods, and evictions
    that controllers request. `now`: present time in Unix seconds.
    """
    facts = _controlled(state, now)
    if now < state.status.due.next_look:
        return facts
    state.status.due.next_look = now + LOOK_SECONDS
    facts += _cluster_topology(state, now)
    facts += [_notice(state, ref, event) for ref, event in unhealthy_device_facts(state)]
    facts += [_notice(state, ref, event) for ref, event in explanation_facts(state, now)]
    return facts


def _controlled(state: SchedulerState, now: float) -> list[StatusWrite]:
    """Return the requests of the controllers that are due."""
    status_writes: list[StatusWrite] = []
    next_control = state.status.due.next_control
    for key, plugin in _chosen(state):
        due = plugin.control_due()
        if due is None or now < max(due, next_control.get(key, 0.0)):
            continue
        next_control[key] = now + LOOK_SECONDS
        for wanted in plugin.control(now):
            if isinstance(wanted, Eviction):
                status_writes += _eviction(state, plugin.name, wanted, now)
            elif isinstance(wanted, ReservationLeft):
                state.assumed.leave_reservation(wanted.uid, wanted.reservation)
            elif state.status.takes(wanted.ref, wanted.event):
                status_writes.append(_notice(state, wanted.ref, wanted.event))
    return status_writes


def _chosen(state: SchedulerState) -> list[tuple[str, ControllerPlugin]]:
    chosen = state.settings.controllers
    controllers = state.frameworks.controllers.items()
    return [(key, plugin) for key, plugin in controllers if chosen is None or plugin.name in chosen]


def next_status_due(state: SchedulerState) -> float | None:
    """Return the Unix seconds at which `status_facts` has something to publish. None if only another event can lead to
    a publication.
    """
    times = state.status.due
    dues = [
        max(due, times.next_control.get(key, 0.0))
        for key, plugin in _chosen(state)
        if (due := plugin.control_due()) is not None
    ]
    if _owes_topology(state):
        dues.append(times.next_topology)
    if state.books.devices.to_tell:
        dues.append(times.next_look)
    explanations = state.status.explanations.next_due(times.next_look)
    if explanations is not None:
        dues.append(explanations)
    return min(dues, default=None)


def _owes_topology(state: SchedulerState) -> bool:
    """Return whether the network may have other domains than the published ones."""
    topology, settings = state.books.gang.topology, state.settings
    is_wanted = settings.tells_topology or any(declares(plugin, FIND_ONE_NODE) for _, plugin in _chosen(state))
    if topology is None or not is_wanted:
        return False
    return state.books.gang.topology_seen != (topology, topology.moves)


def _cluster_topology(state: SchedulerState, now: float) -> list[StatusWrite]:
    """Return the status of the network if its domains have changed."""
    gangs, times = state.books.gang, state.status.due
    topology = gangs.topology
    if topology is None or now < times.next_topology or not _owes_topology(state):
        return []
    times.next_topology = now + TOPOLOGY_SECONDS
    gangs.topology_seen = (topology, topology.moves)
    event = topology_event(topology)
    if event == gangs.said_topology:
        return []
    gangs.said_topology = event
    return [_notice(state, TOPOLOGY_REF, event)]


def _eviction(state: SchedulerState, plugin: str, wanted: Eviction, now: float) -> list[StatusWrite]:
    """Return the request to evict a pod. Empty if it was requested already, has failed repeatedly not long ago, or if
    the pod has no node.
    """
    pod = state.pods.get(wanted.uid)
    if pod is None or wanted.uid in state.nominator.evictions or not (pod.node or pod.bound_node):
        return []
    if not state.nominator.may_be_evicted(wanted.uid, now):
        return []
    reason = wanted.reason or plugin
    event = PodEvictionRequested(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node or pod.bound_node,
        initiator="scheduler",
        method="evict",
        reason=reason,
        message=wanted.message,
    )
    state.nominator.evict(wanted.uid, reason, now)
    return [_notice(state, AggregateRef("eviction", wanted.uid), event)]


def _notice(state: SchedulerState, ref: AggregateRef, event: Event) -> StatusWrite:
    """Return a status write whose cause is everything folded so far, because no single event caused it."""
    return StatusWrite(facts=((ref, event),), trigger=f"{ref}/{state.log.position}")
