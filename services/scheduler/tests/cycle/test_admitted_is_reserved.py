"""What the filters admit, Reserve can carry out: over random histories no node is chosen that then refuses the pod.

Source: reality 3.8.
"""

import json
import random
from typing import Any

import pytest
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state.allocation_rules import violations
from support.depth import repeats, seeds
from support.scheduler.devices import CORE, MEMORY, RATIO, RDMA, TABLE, VF_HINT, asking, device, gpu, nic, random_board
from support.scheduler.numa import lsr_pod, node_topology, say_topology
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

POLICIES = ["", "", "BestEffort", "Restricted", "SingleNUMANode"]
OFFERED = {
    "nvidia.com/gpu": "8",
    "koordinator.sh/gpu": "800",
    CORE: "800",
    RATIO: "800",
    MEMORY: "640Gi",
    "koordinator.sh/gpu.shared": "800",
    RDMA: "800",
    "koordinator.sh/fpga": "300",
}
JOINT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


class History:
    """Nodes of three kinds whose hardware changes, and pods of every kind that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = SmallLog()
        self.shapes: dict[str, dict[str, Any]] = {}
        self.boards: dict[str, dict[str, Any]] = {}
        for index in range(3):
            self.put_node(f"n{index}")
        self.scheduler = Scheduler(self.log)
        self.alive: list[str] = []

    def put_node(self, name: str) -> None:
        chance = self.chance
        self.shapes[name] = {
            "zones_per_socket": chance.choice([1, 2, 2, 3, 4]),
            "cores_per_zone": chance.choice([2, 3, 4]),
            "cpus_per_core": chance.choice([1, 2, 2, 2]),
        }
        labels = {
            keys.NUMA_TOPOLOGY_POLICY: chance.choice(POLICIES),
            keys.CPU_BIND_POLICY: chance.choice(["None", "None", "None", "FullPCPUsOnly", "SpreadByPCPUs"]),
            keys.NUMA_ALLOCATE_STRATEGY: chance.choice(["", "MostAllocated"]),
        }
        ratio = {keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":1.5}'} if chance.random() < 0.2 else {}
        self.log.add_node(node(name, cpu="48", memory="64Gi", labels=labels, annotations=ratio, more=OFFERED))
        self.boards[name] = self.board(name)
        self.say(name)

    def board(self, name: str) -> dict[str, Any]:
        chance = self.chance
        if chance.random() < 0.5:
            found = random_board(chance)
        else:
            zones = self.shapes[name]["zones_per_socket"]
            gpus = [gpu(minor, numa=minor % zones, pcie=str(minor // 2)) for minor in range(chance.choice([4, 8]))]
            nics = [
                nic(each + 1, numa=each % zones, pcie=str(each), functions=chance.choice([0, 1, 4]))
                for each in (0, 1, 2)
            ]
            labels = {keys.SECONDARY_DEVICE_WELL_PLANNED: "true"} if chance.random() < 0.4 else {}
            table = TABLE if chance.random() < 0.2 else None
            found = device(name, [*gpus, *nics[chance.randrange(2) :]], labels=labels, table=table)
        found["metadata"]["name"] = name
        return found

    def say(self, name: str) -> None:
        """The hardware as it is now: some CPUs are offline, and some devices have become unhealthy or healthy."""
        chance, shape = self.chance, self.shapes[name]
        count = shape["zones_per_socket"] * shape["cores_per_zone"] * shape["cpus_per_core"]
        offline = chance.sample(range(count), chance.choice([0, 0, 1, 2]))
        say_topology(self.log, node_topology(name, offline=offline, **shape))
        for each in self.boards[name]["spec"]["devices"]:
            each["health"] = chance.random() > 0.1
        document = json.loads(json.dumps(self.boards[name]))
        self.log.say("customspec", f"devices={name}", CustomObjectObserved(object=document))

    def pod(self, uid: str) -> Pod:
        chance = self.chance
        match chance.randrange(8):
            case 0:
                return pod(uid, {"cpu": chance.choice(["1", "2", "1500m"]), "memory": "1Gi"})
            case 1 | 2:
                gpus = chance.choice([1, 1, 2, 4])
                wants = {"nvidia.com/gpu": str(gpus), RDMA: "1", "cpu": "1"}
                return asking(uid, wants, joint=JOINT, hints=chance.choice([None, VF_HINT]))
            case 3:
                return asking(uid, {CORE: "50", RATIO: "50", "cpu": "1"})
            case 4:
                foreign = pod(uid, {"cpu": "2"}, nodeName=f"n{chance.randrange(3)}")
                first = chance.randrange(8)
                status = json.dumps({"cpuset": f"{first}-{first + chance.randrange(3)}"})
                return with_metadata(foreign, annotations={keys.RESOURCE_STATUS: status})
            case _:
                return lsr_pod(
                    uid,
                    chance.choice([1, 1, 2, 2, 3, 4, 5, 6, 8]),
                    memory=chance.choice(["1Gi", "4Gi", "20Gi"]),
                    bind=chance.choice(["", "FullPCPUs", "SpreadByPCPUs"]),
                    required=chance.choice(["", "", "FullPCPUs", "SpreadByPCPUs"]),
                    exclusive=chance.choice(["", "", "PCPULevel", "NUMANodeLevel"]),
                    policy=chance.choice(POLICIES),
                    more=chance.choice([{}, {}, {"nvidia.com/gpu": "1"}, {CORE: "30", RATIO: "30"}]),
                )

    def step(self, number: int) -> None:
        chance = self.chance
        if chance.random() < 0.08:
            self.say(f"n{chance.randrange(3)}")
        elif self.alive and chance.random() < 0.35:
            self.log.remove_pod(self.alive.pop(chance.randrange(len(self.alive))))
        else:
            self.alive.append(f"p{number}")
            self.log.add_pod(self.pod(f"p{number}"))
        if chance.random() < 0.5:
            self.scheduler.run(now=30.0 * number)


@pytest.mark.parametrize("seed", seeds(40, few=3))
def test_no_node_that_the_filters_admit_refuses_the_pod_at_reserve(seed: int) -> None:
    for round_ in range(repeats(5, few=1)):
        history = History(100 * seed + round_)
        for number in range(60):
            history.step(number)
        history.scheduler.run(now=10_000.0)
        told = [each.event for each in history.scheduler.explanations]
        messages = [event.message for event in told if isinstance(event, PodUnschedulable)]
        assert [message for message in messages if not message.startswith("0/3 nodes are available")] == []
        for index in range(3):
            holders = history.scheduler.state.assumed.ledgers.holders(f"n{index}")
            own = {uid: info for uid, info in holders.items() if history.scheduler.state.pods[uid].bound_node == ""}
            assert violations(own) == []
