"""Rules for devices that fail and come back, checked from the events of the log alone, and the results of such a day.

Feed every event of the stream of facts in order to `DeviceAudit.see`.

A new pod must not be given a device that the Device object states as unhealthy. A device that is not in the object
counts as unhealthy. The health is that of any position from the one that the decision was based on up to the placement.
The last fact `PodDeviceUnhealthy` of each pod must name exactly the unhealthy devices that the pod holds.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events.envelope import Event, StoredEvent, name_from_token, name_token
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.events.pod import PodDeviceUnhealthy, PodPlaced, PodReallocated, PodReleased
from koordcore.protocol.hardware.devices import read_devices
from koordcore.values.allocation import Allocation

from koordctl.demo.summary import Checks, Invariant
from koordctl.render.units import by_count, duration_text

DEVICES: Final = "devices"


class DeviceId(NamedTuple):
    type: str
    minor: int

    def __str__(self) -> str:
        return f"{self.type} {self.minor}"


class _Health(NamedTuple):
    """The health of a device from a position of the log on."""

    since: int
    is_healthy: bool


@dataclass(slots=True)
class _Holder:
    name: str  # Namespace and name of the pod
    token: str  # Node of the pod
    devices: frozenset[DeviceId]  # Devices that it holds
    since: int  # Position from which on it holds them
    told: frozenset[DeviceId] = frozenset()  # Unhealthy devices that its last fact names


class DeviceAudit:
    """Checks event by event that failures of devices are recorded for the pods. One task owns an instance."""

    def __init__(self) -> None:
        self.placed = 0  # Number of placements with devices
        # Device type -> how often a device of this type became unhealthy or vanished.
        self.failed: Counter[str] = Counter()
        self.recovered: Counter[str] = Counter()  # Device type -> how often a device of this type became healthy again
        self.told = 0  # Number of facts about unhealthy devices of a pod
        self.on_unhealthy: list[str] = []  # A sentence for each placement with an unhealthy device
        # A sentence for each pod that held a failing device and got no fact before the device was healthy again.
        self.missed: list[str] = []
        self._health: dict[str, dict[DeviceId, list[_Health]]] = {}
        self._holders: dict[str, _Holder] = {}
        self._on_node: dict[str, set[str]] = {}

    @property
    def holders(self) -> int:
        return len(self._holders)

    def is_healthy(self, node: str, device: DeviceId) -> bool:
        """Whether the Device object of the node states the device as healthy now."""
        known = self._health.get(name_token(node), {}).get(device)
        return known is not None and known[-1].is_healthy

    def untold(self) -> list[str]:
        """A sentence for each pod whose last fact does not name exactly its unhealthy devices."""
        found: list[str] = []
        for holder in self._holders.values():
            unhealthy = frozenset(each for each in holder.devices if not self._is_healthy(holder.token, each))
            if unhealthy != holder.told:
                node = name_from_token(holder.token)
                found.append(
                    f"pod {holder.name} on {node}: unhealthy of its devices are {_names(unhealthy)}, and its last fact"
                    f" names {_names(holder.told)}"
                )
        return found

    def see(self, stored: StoredEvent, event: Event) -> None:
        """Check the next event of the stream of facts. Events must come in the order of the log."""
        uid = stored.ref.id
        match event:
            case CustomObjectObserved() if plural_of(uid) == DEVICES:
                found, _ = read_devices(event.object)
                stated = {DeviceId(each.type, each.minor): each.health for each in found}
                self._stated(uid.partition("=")[2], stored.seq, stated)
            case CustomObjectDeleted() if plural_of(uid) == DEVICES:
                self._stated(uid.partition("=")[2], stored.seq, {})
            case PodPlaced() if event.allocation.devices:
                self._placed(stored, uid, event)
            case PodReallocated():
                self._hold(stored.seq, uid, f"{event.namespace}/{event.name}", event.node, event.allocation)
            case PodReleased():
                self._leave(uid)
            case PodDeviceUnhealthy():
                self.told += bool(event.devices)
                if uid in self._holders:
                    self._holders[uid].told = frozenset(DeviceId(each.type, each.minor) for each in event.devices)
            case _:
                pass

    def _stated(self, token: str, position: int, stated: dict[DeviceId, bool]) -> None:
        known = self._health.setdefault(token, {})
        for device in sorted(known.keys() | stated.keys()):
            is_healthy = stated.get(device, False)
            history = known.setdefault(device, [])
            if history and history[-1].is_healthy == is_healthy:
                continue
            if history or not is_healthy:
                (self.recovered if is_healthy else self.failed)[device.type] += 1
            if history and is_healthy:
                self._recovers(token, device, history[-1].since)
            history.append(_Health(position, is_healthy))

    def _recovers(self, token: str, device: DeviceId, since: int) -> None:
        for uid in sorted(self._on_node.get(token, ())):
            holder = self._holders[uid]
            if holder.since < since and device in holder.devices and device not in holder.told:
                self.missed.append(
                    f"pod {holder.name} on {name_from_token(token)} was not told that {device} was unhealthy from"
                    f" position {since} on"
                )

    def _placed(self, stored: StoredEvent, uid: str, event: PodPlaced) -> None:
        self.placed += 1
        name, token = f"{event.namespace}/{event.name}", name_token(event.node)
        since = min(event.explanation.based_on.ev, stored.seq)
        for device in _devices(event.allocation):
            if not self._was_healthy(token, device, since):
                self.on_unhealthy.append(
                    f"pod {name} got {device} of {event.node} at position {stored.seq}, based on {since}; the device"
                    " was not healthy"
                )
        self._hold(stored.seq, uid, name, event.node, event.allocation)

    def _hold(self, position: int, uid: str, name: str, node: str, allocation: Allocation) -> None:
        told = self._holders[uid].told if uid in self._holders else frozenset[DeviceId]()
        self._leave(uid)
        devices = frozenset(_devices(allocation))
        if devices or told:
            token = name_token(node)
            self._holders[uid] = _Holder(name=name, token=token, devices=devices, since=position, told=told)
            self._on_node.setdefault(token, set()).add(uid)

    def _leave(self, uid: str) -> None:
        holder = self._holders.pop(uid, None)
        if holder is not None:
            self._on_node[holder.token].discard(uid)

    def _is_healthy(self, token: str, device: DeviceId) -> bool:
        known = self._health.get(token, {}).get(device)
        return known is not None and known[-1].is_healthy

    def _was_healthy(self, token: str, device: DeviceId, since: int) -> bool:
        """Whether the device was healthy at a position from `since` on."""
        for change in reversed(self._health.get(token, {}).get(device, ())):
            if change.is_healthy:
                return True
            if change.since <= since:
                return False
        return False


def _devices(allocation: Allocation) -> list[DeviceId]:
    return [DeviceId(each.type, each.minor) for each in allocation.devices]


def _names(devices: Iterable[DeviceId]) -> str:
    return ", ".join(str(each) for each in sorted(devices)) or "none"


class DeviceDaySummary(Checks, frozen=True, kw_only=True):
    pods: int  # Submitted pods
    placed: int  # Number of placements
    pods_with_devices: int  # Number of placements with devices
    pending_reasons: dict[str, int]  # Reason -> number of pods that were pending at the end of the day
    failed: dict[str, int]  # Device type -> how often a device became unhealthy or vanished
    recovered: dict[str, int]  # Device type -> how often a device became healthy again
    vanished_nodes: int  # Number of nodes whose devices all vanished for a time
    told: int  # Number of facts about unhealthy devices of a pod
    given_unhealthy: int  # Placements with an unhealthy device
    given_twice: int  # Allocations of CPUs, devices or shares that another pod held already
    untold_pods: int  # Pods without a fact about a failure or recovery of their devices
    not_returned: int  # Nodes or pods that still held resources after all pods had ended
    events: int  # Number of facts in the log
    startup_s: float  # Seconds until the stack was ready
    wall_s: float  # Seconds of the whole run
    speed: float  # Simulated seconds per real second

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("pods", f"{self.pods:,}"),
            ("placements", f"{self.placed:,}, {self.pods_with_devices:,} of them with devices"),
            ("pods pending in the evening", f"{sum(self.pending_reasons.values()):,}"),
            *((f"  {reason}", f"{count:,}") for reason, count in by_count(self.pending_reasons)),
            *(
                (f"{type_} devices that failed, came back", f"{count:,}, {self.recovered.get(type_, 0):,}")
                for type_, count in self.failed.items()
            ),
            ("nodes whose devices vanished", f"{self.vanished_nodes:,}"),
            ("pods told of unhealthy devices", f"{self.told:,}"),
            ("events", f"{self.events:,}"),
            ("stack ready after", duration_text(self.startup_s)),
            ("whole run", duration_text(self.wall_s)),
        ]

    def invariants(self) -> list[Invariant]:
        return [
            *super().invariants(),
            Invariant(
                "no pod was given an unhealthy device", not self.given_unhealthy, f"{self.given_unhealthy} found"
            ),
            Invariant("nothing was given twice", not self.given_twice, f"{self.given_twice} found"),
            Invariant("pods were told of their devices", not self.untold_pods, f"{self.untold_pods} were not"),
            Invariant("ended pods returned everything", not self.not_returned, f"{self.not_returned} did not"),
        ]
