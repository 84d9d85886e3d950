"""The card for a pod that requests a part of one GPU and nothing else of devices. This is a shortcut for
`allocator.allocate`, which works for every pod. Most pods that share GPUs have no hint, no partition and no
Reservation. For them, the free amounts of a node's cards suffice to find the same card faster.

Source: scheduler-fine-grained spec, 2.5, 2.6.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol.hardware.device_requests import GPU_TYPE, TypeRequest
from koordcore.protocol.resource_names import GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.plugins.device.columns import OnNode, TypeColumns
from koord_scheduler.domain.plugins.device.inventory import Card, Inventory
from koord_scheduler.domain.plugins.device.picking import MAX_SCORE, DeviceScoring, request_for
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.usage import DeviceUse

_NOWHERE: Final = -1
_LOWEST: Final = -2
"""Lower than any score; -1 is a given score of a card without room for the share."""
_UNUSED: Final[Mapping[int, object]] = {}
_MOST_KNOWN: Final = 4096


def part_of_one_gpu(pod: PodDevices) -> TypeRequest | None:
    """Return the GPU request of a pod for which the free amounts of single cards decide; None for other pods. The pod
    must request a part of one GPU and no other device, and have no hint. It must request memory by `gpu-memory-ratio`,
    not only in bytes.
    """
    gpu = pod.gpu
    if gpu is None or len(pod.requests) > 1 or pod.error or not pod.is_simple or not gpu.is_shared or gpu.count > 1:
        return None
    return None if GPU_MEMORY in gpu.per_device and GPU_MEMORY_RATIO not in gpu.per_device else gpu


class Shares:
    """Chooses cards for pods that request a part of one GPU. `column`: the free amounts of all GPUs. Their values at
    the time of a choice count.
    """

    def __init__(self, column: TypeColumns, scoring: DeviceScoring) -> None:
        self._column = column
        self._scoring = scoring
        self._known: dict[PodDevices, _OneShare | None] = {}

    def card(
        self, pod: PodDevices, inventory: Inventory, use: DeviceUse, row: int, scores: Mapping[int, int]
    ) -> tuple[AllocatedDevice, ...] | None:
        """Return the card that `allocate` chooses for a pod that no Reservation or NUMA affinity concerns. None if the
        pod requests other devices, or if the node refuses it. Then the caller must use `allocate`. `use`: amounts of
        the devices that pods hold; the columns must agree with it. `scores`: Minor number -> score that replaces the
        score of the strategy.
        """
        if pod not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            gpu = part_of_one_gpu(pod)
            self._known[pod] = None if gpu is None else _OneShare(self._column, gpu, self._scoring)
        share = self._known[pod]
        return None if share is None else share.card(inventory, use, row, scores)


class _OneShare:
    """Chooses the card for pods that request equal parts of one GPU. `column`: the free amounts of all GPUs. The
    chooser reads their present values. `gpu`: the request, for which `part_of_one_gpu` does not return None.
    """

    def __init__(self, column: TypeColumns, gpu: TypeRequest, scoring: DeviceScoring) -> None:
        self._column = column
        self._per_device = gpu.per_device
        self._needs = column.needs_of_one(gpu.per_device)
        self._weights = [
            (weight, name, column.names.index(name), gpu.per_device.get(name, 0))
            for name, weight in scoring.weights
            if name in column.names
        ]
        self._is_least = scoring.is_least
        self._amounts: dict[int, dict[str, int]] = {}

    def card(
        self, inventory: Inventory, use: DeviceUse, row: int, scores: Mapping[int, int]
    ) -> tuple[AllocatedDevice, ...] | None:
        """Return the card that `allocate` chooses, with the pod's part of it; None if `allocate` refuses. `use`: what
        pods hold of them, which the columns contain. `scores`: Minor number -> score that replaces the score of the
        strategy.
        """
        by_minor = inventory.by_minor.get(GPU_TYPE)
        if by_minor is None:
            return None
        minor = self._minor(inventory, use, self._column.on_node[row], by_minor, scores)
        if minor == _NOWHERE:
            return None
        card = by_minor[minor]
        memory = card.total.get(GPU_MEMORY, 0)
        amounts = self._amounts.get(memory)
        if amounts is None:
            amounts = self._amounts[memory] = dict(request_for(card, self._per_device))
        return (AllocatedDevice(type=GPU_TYPE, minor=minor, id=card.id, amounts=amounts),)

    def _minor(
        self,
        inventory: Inventory,
        use: DeviceUse,
        on_node: OnNode,
        by_minor: Mapping[int, Card],
        scores: Mapping[int, int],
    ) -> int:
        """Return the minor number of the best card; `_NOWHERE` if none has enough free. In the topology tree, cards in
        crowded scopes come first: below a switch with a card in use, in a zone with one. Then the score decides, then
        the order of zones and switches, then the minor number.
        """
        zones = inventory.zones
        if not zones:
            return self._best(on_node, by_minor, sorted(by_minor), scores)[1]
        used: Mapping[int, object] = use.amounts.get(GPU_TYPE, _UNUSED)
        best, best_score, best_crowd = _NOWHERE, _LOWEST, _NOWHERE
        for zone in zones:
            zone_crowd = 1 if used and _any_in(zone.minors, used) else 0
            for switch in zone.switches:
                crowd = zone_crowd
                if zone_crowd and _any_in(switch.minors, used):
                    crowd = 2
                if crowd < best_crowd:
                    continue
                score, minor = self._best(on_node, by_minor, switch.minors, scores)
                if minor != _NOWHERE and (crowd > best_crowd or score > best_score):
                    best, best_score, best_crowd = minor, score, crowd
        return best

    def _best(
        self, on_node: OnNode, by_minor: Mapping[int, Card], minors: Sequence[int], scores: Mapping[int, int]
    ) -> tuple[int, int]:
        """Return (score, minor number) of the best of these cards; the number is `_NOWHERE` if none has enough free."""
        best, best_score = _NOWHERE, _LOWEST
        for minor in minors:
            left = on_node.left[on_node.places[minor]]
            for index, amount in self._needs:
                if left[index] < amount:
                    break
            else:
                score = scores.get(minor)
                if score is None:
                    score = self._score(by_minor[minor], left)
                if score > best_score:
                    best, best_score = minor, score
        return best_score, best

    def _score(self, card: Card, left: tuple[int, ...]) -> int:
        """Return the score of a card with enough free, as `scores.device_score` computes it."""
        sum_, weights = 0, 0
        for weight, name, index, amount in self._weights:
            capacity = card.total.get(name, 0)
            if capacity > 0:
                after = left[index] - amount
                if self._is_least:
                    sum_ += weight * (after * MAX_SCORE // capacity if after > 0 else 0)
                else:
                    sum_ += weight * ((capacity - after) * MAX_SCORE // capacity if after > 0 else MAX_SCORE)
                weights += weight
        return sum_ // weights if weights else 0


def _any_in(minors: Sequence[int], used: Mapping[int, object]) -> bool:
    return any(minor in used for minor in minors)
