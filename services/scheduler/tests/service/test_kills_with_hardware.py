"""A scheduler is killed at every failpoint between Reserve and PodPlaced while pods get cores, GPUs and RDMA functions.

Real processes on a real server. Every pod gets what it requests, once, and nothing is given twice.
"""

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import koord_scheduler
import pytest
from koordcore.bus.factory import Bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded
from koordcore.events.pod import PodPlaced
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Pod
from koordcore.state.allocation_rules import violations
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import parse_cpuset
from support.depth import first_of
from support.scheduler.devices import CORE, MEMORY, RATIO, RDMA, VF_HINT, asking, board, device
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.processes import cluster, end, say, send, start
from support.scheduler.scheduling import node
from support.until import until

pytestmark = pytest.mark.nats

NODES: Final = 24
MOST_PODS: Final = 288
"""So many fit, wherever each of them is: a third of them shares GPUs, a third takes whole ones, and there are 192."""
A_FEW: Final = 6
POLL_SECONDS: Final = 0.1
"""The whole log is read each time."""
CPUS_PER_ZONE: Final = 32
BEFORE_PLACED: Final = ("after_reserve_before_seal", "before_append", "after_append_before_confirm")
AFTER_REFUSED: Final = "after_refold_before_redecide"
JOINT: Final = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
SWITCH_OF_GPU: Final = {minor: minor // 2 for minor in range(8)}
SWITCH_OF_ADAPTER: Final = {minor: minor - 1 for minor in range(1, 5)}


@contextlib.asynccontextmanager
async def hardware(server: NatsServer, name: str) -> AsyncGenerator[Bus]:
    """Nodes, each with 64 CPUs in two zones, 8 GPUs, and an RDMA adapter at each of the 4 switches."""
    amounts = {CORE: "800", RATIO: "800", MEMORY: "640Gi", RDMA: "400"}
    nodes = [node(f"n{number}", cpu="64", memory="128Gi", more=amounts) for number in range(NODES)]
    async with cluster(server, name, nodes) as bus:
        for each in nodes:
            known_as = each.metadata.name
            topology = node_topology(known_as, cores_per_zone=CPUS_PER_ZONE // 2, zone_resources={"memory": "64Gi"})
            await say(bus, "customspec", f"devices={known_as}", CustomObjectObserved(object=device(known_as, board())))
            await say(bus, "customspec", f"noderesourcetopologies={known_as}", CustomObjectObserved(object=topology))
        yield bus


def pod_of(number: int) -> Pod:
    """A pod with two whole cores of one zone, with 30 % of a GPU, or with a GPU and a function of its RDMA adapter."""
    uid = f"p{number}"
    match number % 3:
        case 0:
            return lsr_pod(uid, 4, required="FullPCPUs", policy="SingleNUMANode")
        case 1:
            return asking(uid, {"cpu": "100m", CORE: "30", RATIO: "30"})
        case _:
            return asking(uid, {"cpu": "100m", CORE: "100", RATIO: "100", RDMA: "1"}, hints=VF_HINT, joint=JOINT)


def require_as_requested(number: int, allocation: Allocation) -> None:
    """Check that the pod has what `pod_of` requests, and nothing else."""
    given = [(each.type, each.amounts.get(CORE, 0), len(each.virtual_functions)) for each in allocation.devices]
    match number % 3:
        case 0:
            cpus = parse_cpuset(allocation.cpuset)
            assert len(cpus) == 4
            assert {cpu ^ 1 for cpu in cpus} == set(cpus), "whole cores"
            assert {cpu // CPUS_PER_ZONE for cpu in cpus} == {part.zone for part in allocation.zones}
            assert given == []
        case 1:
            assert given == [("gpu", 30, 0)]
        case _:
            assert sorted(given) == [("gpu", 100, 0), ("rdma", 0, 1)]
            places = {each.type: each.minor for each in allocation.devices}
            assert SWITCH_OF_GPU[places["gpu"]] == SWITCH_OF_ADAPTER[places["rdma"]]


async def submit(bus: Bus, first: int) -> int:
    """Submit a few pods in one append, beginning with the number `first`, and return the number of all pods."""
    numbers = range(first, first + A_FEW)
    assert numbers.stop <= MOST_PODS
    drafts = [
        Draft(AggregateRef("podspec", f"p{number}"), PodSpecAdded(object=pod_of(number)), 0) for number in numbers
    ]
    origin = Origin(causation_id="all", correlation_id="all", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    assert isinstance(await bus.events.append(CATALOGUE.seal(drafts, origin)), Appended)
    return numbers.stop


async def submit_until_killed(
    bus: Bus, process: asyncio.subprocess.Process, *rivals: asyncio.subprocess.Process
) -> int:
    """Submit a few pods again and again until the process has killed itself. Return the number of submitted pods.

    With rivals, all of them are paused while the pods are submitted. So they begin to decide at the same time.
    """
    submitted = 0
    while process.returncode is None:
        deciding = (process, *rivals) if rivals else ()
        for one in deciding:
            send(one, signal.SIGSTOP)
        submitted = await submit(bus, submitted)
        for one in deciding:
            send(one, signal.SIGCONT)

        async def is_answered(submitted: int = submitted) -> bool:
            return process.returncode is not None or await placed(bus) >= submitted

        await until(is_answered, every=POLL_SECONDS)
    assert process.returncode == -signal.SIGKILL
    await placed(bus)
    return submitted


async def placed(bus: Bus) -> int:
    """The number of placed pods. Pods and ledgers agree, each pod has its request, and nothing is given twice."""

    async def agreed() -> tuple[dict[str, Allocation], dict[str, dict[str, PodOnNode]]] | None:
        by_pod, by_node = await read(bus)
        held = {uid: pod.allocation for pods in by_node.values() for uid, pod in pods.items()}
        return (by_pod, by_node) if by_pod == held else None  # else the head is that of a batch which is being stored

    by_pod, by_node = await until(agreed, every=POLL_SECONDS)
    for uid, allocation in by_pod.items():
        require_as_requested(int(uid[1:]), allocation)
    assert [each for pods in by_node.values() for each in violations(pods)] == []
    return len(by_pod)


async def read(bus: Bus) -> tuple[dict[str, Allocation], dict[str, dict[str, PodOnNode]]]:
    """What pods hold as their own events say, and as the events of the nodes say."""
    by_pod: dict[str, Allocation] = {}
    by_node: dict[str, dict[str, PodOnNode]] = {}
    head = await bus.events.head()
    async for batch in bus.events.history(0, head.last_seq, kinds=("pod", "node")):
        for stored in batch:
            match CATALOGUE.read(stored):
                case PodPlaced(allocation=allocation):
                    assert stored.ref.id not in by_pod, "placed twice"
                    by_pod[stored.ref.id] = allocation
                case NodeResourcesTaken(pods=pods):
                    by_node.setdefault(stored.ref.id, {}).update({pod.uid: pod for pod in pods})
                case _:
                    pass
    return by_pod, by_node


def test_every_failpoint_of_the_scheduler_is_tested() -> None:
    source = Path(str(koord_scheduler.__file__)).parent
    found = {name for file in source.rglob("*.py") for name in re.findall(r'failpoint\("(\w+)"\)', file.read_text())}
    assert found == {*BEFORE_PLACED, AFTER_REFUSED}


@pytest.mark.parametrize("failpoint", first_of(BEFORE_PLACED))
async def test_a_kill_before_the_placement_loses_and_doubles_no_hardware(
    nats_server: NatsServer, failpoint: str
) -> None:
    async with hardware(nats_server, f"hardware-{failpoint.replace('_', '-')}") as bus:
        name = bus.names.cluster
        first = await start(nats_server, name, "--leader-elect=false", failpoint=f"{failpoint}:2")
        submitted = await submit(bus, await submit_until_killed(bus, first))
        second = await start(nats_server, name, "--leader-elect=false")
        await until(lambda: _are_placed(bus, submitted), every=POLL_SECONDS)
        assert await end(second) == 0


@pytest.mark.deep
async def test_a_kill_after_a_refused_placement_loses_and_doubles_no_hardware(nats_server: NatsServer) -> None:
    async with hardware(nats_server, "hardware-refold") as bus:
        name = bus.names.cluster
        victim = await start(nats_server, name, "--leader-elect=false", failpoint=f"{AFTER_REFUSED}:1")
        other = await start(nats_server, name, "--leader-elect=false")
        # Both decide the same pods, so the log refuses a placement of the victim sooner or later.
        submitted = await submit(bus, await submit_until_killed(bus, victim, other))
        again = await start(nats_server, name, "--leader-elect=false")
        await until(lambda: _are_placed(bus, submitted), every=POLL_SECONDS)
        assert [await end(one) for one in (other, again)] == [0, 0]


async def _are_placed(bus: Bus, count: int) -> bool:
    return await placed(bus) == count
