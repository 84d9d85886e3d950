"""Hints of devices are those of one allocation for each set of NUMA nodes, however few allocations they take."""

from collections.abc import Mapping
from itertools import combinations
from random import Random

import pytest
from koord_scheduler.domain.framework.topology_hints import Hint, Hints, zones_of
from koord_scheduler.domain.plugins.device.allocator import NodeDevices, Terms, allocate
from koord_scheduler.domain.plugins.device.inventory import read_device
from koord_scheduler.domain.plugins.device.numa_hints import SAME_GPUS, device_hints
from koord_scheduler.domain.plugins.device.picking import DeviceScoring
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal
from koord_scheduler.domain.plugins.device.usage import DeviceUse
from koordcore.protocol import keys
from koordcore.values.allocation import AllocatedDevice
from koordcore.values.codec import encode
from koordcore.values.resources import parse_amounts
from support.depth import seeds
from support.scheduler.devices import CORE, RATIO, RDMA, TABLE, VF_HINT, device, gpu, nic

SCORING = DeviceScoring(((CORE, 1), (RATIO, 1)))
WISHES: list[dict[str, str]] = [
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "2", RDMA: "1"},
    {"nvidia.com/gpu": "3", RDMA: "200"},
    {"nvidia.com/gpu": "4"},
    {CORE: "50", RATIO: "50", RDMA: "30"},
    {CORE: "100", RATIO: "100", "koordinator.sh/gpu.shared": "2"},
    {RDMA: "300"},
]


def minors(found: tuple[AllocatedDevice, ...]) -> list[int]:
    return [each.minor for each in found if each.type == "gpu"]


def one_by_one(node: NodeDevices, pod: PodDevices) -> Hints | Refusal:
    """An allocation for each set of NUMA nodes (scheduler-fine-grained spec, 2.10)."""
    ids = node.inventory.numa_nodes
    whole = allocate(node, pod, Terms(zones=frozenset(ids), scoring=SCORING))
    if isinstance(whole, Refusal):
        return whole
    hints: list[Hint] = []
    smallest = 0
    for size in range(1, len(ids) + 1):
        for subset in combinations(ids, size):
            found = allocate(node, pod, Terms(zones=frozenset(subset), scoring=SCORING))
            if not isinstance(found, Refusal):
                smallest = smallest or size
                score = SAME_GPUS if minors(found) == minors(whole) else 0
                hints.append(Hint(zones_of(subset), preferred=size == smallest, score=score))
    return {type_: tuple(hints) for type_ in pod.requests}


def random_node(chance: Random) -> NodeDevices:
    zones = chance.choice([1, 2, 4, 5])
    devices = [
        gpu(minor, numa=chance.randrange(zones), pcie=str(minor // 2), healthy=chance.random() < 0.9)
        for minor in range(chance.choice([2, 4, 8]))
    ]
    devices += [
        nic(each, numa=chance.choice([*range(zones), -1]), pcie=str(each), functions=chance.randrange(3))
        for each in range(4)
    ]
    document = device("n", devices, table=chance.choice([None, None, TABLE]))
    _, inventory, _ = read_device(document)
    use = DeviceUse()
    labels = {keys.GPU_PARTITION_POLICY: chance.choice(["Honor", "Prefer"])}
    found = NodeDevices(inventory=inventory, use=use, labels=labels)
    for number in range(chance.randrange(6)):
        held = allocate(found, PodDevices(parse_amounts(chance.choice(WISHES)), {}), Terms(scoring=SCORING))
        if not isinstance(held, Refusal):
            use.take(f"held-{number}", held)
    return found


@pytest.mark.parametrize("seed", seeds(60, few=4))
def test_hints_are_those_of_one_allocation_for_each_set_of_numa_nodes(seed: int) -> None:
    chance, several = Random(seed), 0
    for _ in range(25):
        node = random_node(chance)
        hints: Mapping[str, str] = (
            {keys.DEVICE_ALLOCATE_HINT: encode(VF_HINT).decode()} if chance.random() < 0.3 else {}
        )
        for wish in WISHES:
            pod = PodDevices(parse_amounts(wish), hints if RDMA in wish else {})
            expected = one_by_one(node, pod)
            assert device_hints(node, pod, SCORING) == expected
            several += not isinstance(expected, Refusal) and len(next(iter(expected.values())) or ()) > 1
    assert several
