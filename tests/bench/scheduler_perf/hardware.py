"""Workloads of pods that get whole cores, one NUMA zone, parts of GPUs, or GPUs with the RDMA devices beside them.

Nodes have 2 sockets with 2 zones of 26 cores with 2 threads, or 8 GPUs below as many PCIe switches in 2 zones.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec
import yaml
from bench.scheduler_perf.checks import Check, NotWhatItIsAbout, Run
from bench.scheduler_perf.cluster import sealed
from bench.scheduler_perf.objects import node_name
from bench.scheduler_perf.workloads import BASIC, MakePod, Workload
from koord_scheduler.configuration import shipped_configuration
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Node, Pod
from koordcore.values.allocation import Allocation
from support.scheduler.devices import RATIO, RDMA, VF_HINT, asking, board, device
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.scheduling import node

CPUS: Final = 208
_FILLERS: Final = (48, 48, 48, 44)
"""CPUs of the pods that fill the four zones of 52 CPUs: 90 % of the node. One zone has 8 CPUs left."""
_MORE: Final = {
    "hugepages-2Mi": "64Gi",
    RATIO: "800",
    RDMA: "400",
    "koordinator.sh/gpu-core": "800",
    "nvidia.com/gpu": "8",
}
_JOINT: Final = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
_JOINT_HINTS: Final = {"rdma": {**VF_HINT["rdma"], "allocateStrategy": "RequestsAsCount"}}


def big_node(number: int) -> Node:
    """A node of 208 CPUs."""
    return node(node_name(number), cpu=str(CPUS), memory="1Ti", pods="500", more=_MORE)


def topologies(nodes: int) -> list[NewEvent]:
    """The NodeResourceTopology of each node."""
    resources = {"memory": "256Gi", "hugepages-2Mi": "16Gi"}
    parts: dict[str, Any] = {"sockets": 2, "cores_per_zone": 26, "zone_resources": resources}
    return [_custom("noderesourcetopologies", node_topology(node_name(number), **parts)) for number in range(nodes)]


def devices(nodes: int) -> list[NewEvent]:
    """The Device object of each node: 8 GPUs and 8 RDMA devices with 8 virtual functions each."""
    cards = board(per_switch=1, functions=8)
    return [_custom("devices", device(node_name(number), cards)) for number in range(nodes)]


def _custom(plural: str, document: dict[str, Any]) -> NewEvent:
    return sealed(custom_ref(plural, "", document["metadata"]["name"]), CustomObjectObserved(object=document))


def copies(*templates: Pod) -> MakePod:
    """Pods like these in turn, with names of their own."""

    def make(uid: str, number: int) -> Pod:
        template = templates[number % len(templates)]
        meta = msgspec.structs.replace(template.metadata, name=uid, uid=uid)
        spec = msgspec.structs.replace(template.spec, scheduler_name="koord-scheduler")
        return Pod(metadata=meta, spec=spec)

    return make


def cores(cpus: int) -> Pod:
    """A pod that binds whole cores."""
    return lsr_pod("cores", cpus, required="FullPCPUs")


def _zone(cpus: int) -> Pod:
    more = {"hugepages-2Mi": f"{64 * cpus}Mi"}
    return lsr_pod("zone", cpus, memory=f"{cpus}Gi", policy="SingleNUMANode", more=more)


def shares() -> list[Pod]:
    """Pods that ask for 20 to 80 percent of one GPU, in random order."""
    random = Random(1)
    percents = [percent for percent in range(20, 81) for _ in range(4)]
    random.shuffle(percents)
    return [asking("share", {"cpu": "1", RATIO: str(percent)}) for percent in percents]


def _joint() -> Pod:
    requests = {"cpu": "8", "nvidia.com/gpu": "4", RDMA: "4"}
    asked = asking("job", requests, hints=_JOINT_HINTS, joint=_JOINT)
    policy = lsr_pod("aligned", 8, policy="Restricted").metadata.annotations
    meta = msgspec.structs.replace(asked.metadata, annotations={**asked.metadata.annotations, **policy})
    return msgspec.structs.replace(asked, metadata=meta)


class _Placed(msgspec.Struct):
    allocation: Allocation = Allocation()


def _given(*, cpus: int = 0, zones: int = 0, cards: int = 0) -> Check:
    """The last measured pod got at least this."""

    async def check(run: Run) -> None:
        last = await run.cluster.bus.events.last_of(AggregateRef("pod", run.measured[-1].uid))
        assert last is not None, "it was placed"
        found = msgspec.json.decode(last.body, type=_Placed).allocation
        if bool(cpus) > bool(found.cpuset) or zones > len(found.zones) or cards > len(found.devices):
            raise NotWhatItIsAbout(f"the last pod got {found}")

    return check


def _filled(make: Any) -> Sequence[tuple[int, MakePod]]:
    return [(5000, copies(make(cpus))) for cpus in _FILLERS]


def _by_fragmentation() -> str:
    """The shipped profile, with scores by FGD."""
    document = yaml.safe_load(shipped_configuration())
    typical = [(1000, 300, 0.5), (4000, 500, 0.3), (8000, 1000, 0.2)]
    pods = [{"milliCPU": cpu, "gpuMilli": milli, "numGPU": 1, "frequency": part} for cpu, milli, part in typical]
    args = {"gpuFragmentation": {"enabled": True, "policy": "FGD", "typicalPods": pods}}
    document["profiles"][0]["pluginConfig"].append({"name": "DeviceShare", "args": args})
    return json.dumps(document)


HARDWARE: Sequence[Workload] = (
    Workload(
        key="cores",
        title="LSR pods of 4 whole cores, FullPCPUs, nodes filled to 90 %",
        node=big_node,
        before=topologies,
        initial=_filled(cores),
        measured=4000,
        pod=copies(cores(8)),
        engine_target=8000,
        check=_given(cpus=8),
    ),
    Workload(
        key="zone",
        title="SingleNUMANode with CPU, memory and huge pages, nodes filled to 90 %",
        node=big_node,
        before=topologies,
        initial=_filled(_zone),
        measured=5000,
        pod=copies(_zone(4)),
        engine_target=5000,
        check=_given(zones=1),
    ),
    Workload(
        key="gpu-shares",
        title="GPU shares of 20 to 80 percent, 8 GPUs a node",
        node=big_node,
        before=devices,
        initial=[(1000, copies(*shares()))],
        measured=10_000,
        pod=copies(*shares()),
        engine_target=8000,
        check=_given(cards=1),
    ),
    Workload(
        key="gpu-joint",
        title="4 GPUs and 4 RDMA functions under the same switches, aligned to NUMA zones",
        node=big_node,
        before=lambda nodes: topologies(nodes) + devices(nodes),
        initial=[(400, copies(_joint()))],
        measured=4000,
        pod=copies(_joint()),
        engine_target=3000,
        check=_given(zones=1, cards=8),
    ),
)

FRAGMENTATION: Final = Workload(
    key="gpu-fragmentation",
    title="GPU shares of 20 to 80 percent, scored by fragmentation (FGD, 3 typical pods)",
    node=big_node,
    before=devices,
    measured=2000,
    pod=copies(*shares()),
    configuration=_by_fragmentation(),
)

BOUND: Final = Workload(
    key="restart-hardware",
    title="a third of the pods with cpusets, 20,000 with devices",
    node=big_node,
    before=lambda nodes: topologies(nodes) + devices(nodes),
    measured=1,
    pod=BASIC,
)


def bound() -> MakePod:
    """Of 15 pods, 5 bind 2 cores, 2 share a GPU, and the others are plain."""
    templates = [cores(4)] * 5 + [asking("share", {"cpu": "1", RATIO: "50"})] * 2
    special = copies(*templates)
    return lambda uid, number: special(uid, number % 15) if number % 15 < len(templates) else BASIC(uid, number)
