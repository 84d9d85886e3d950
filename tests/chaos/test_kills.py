"""kill -9 under load: no pod lost, none placed twice, no node over its allocatable, and every fold equal at the end.

Some pods own cores of one NUMA zone, share a GPU, or hold a GPU with a virtual function of an RDMA adapter. No core,
share, function or zone may be given twice. Some pods use a Reservation, or become the owners of one while they run.

Real processes of the embedded stack; the supervisor brings back what dies. The audit recomputes every rule from the
log alone (`koordctl.demo.invariants`).
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor
from koordcore.events import CATALOGUE
from koordcore.protocol import keys
from koordctl.access.log import LogTrouble, open_log
from koordctl.demo.invariants import Audit
from koordctl.replay.verify import verify_now
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import Sender, url_of, var_folder, write_nodes
from support.hardware import device_document, topology_document
from support.until import until

KILLS = 30
NODES = 20
CORES_PER_ZONE = 32
NODE_CPU = 2 * 2 * CORES_PER_ZONE
GPUS = 8
PROD = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-prod"},
    "value": 9500,
}
PATIENCE_SECONDS = 420.0
PER_REQUEST = 20
MOST_PODS = 1_000
"""Live pods from which the load submits no more. The GPUs of `NODES` have room for 1,280."""

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres]


def node_manifest(number: int) -> dict[str, Any]:
    amounts = {"cpu": NODE_CPU, "memory": "256Gi", "pods": 500}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "status": {"capacity": amounts}}


def hardware_manifests(number: int) -> list[dict[str, Any]]:
    """Two NUMA zones, 8 GPUs, and an RDMA adapter at each of the 4 switches."""
    name = f"node-{number}"
    topology = topology_document(name, cores=CORES_PER_ZONE)
    for zone in topology["zones"]:
        zone["resources"][1] |= dict.fromkeys(("capacity", "allocatable", "available"), "128Gi")
    return [topology, device_document(name, gpus=GPUS)]


def pod_manifest(number: int) -> dict[str, Any]:
    """One of the pods of the load: most are small, every seventh is large, three of 16 hold hardware."""
    # every seventh pod is large, so that nodes really fill and refusals happen
    cpu = "3" if number % 7 == 0 else "250m"
    requests = {"cpu": cpu, "memory": "256Mi"}
    metadata: dict[str, Any] = {"name": f"pod-{number}"}
    annotations: dict[str, str] = {}
    match number % 16:
        case 3:
            requests["cpu"] = "2"
            metadata["labels"] = {keys.QOS_CLASS: "LSR"}
            annotations[keys.RESOURCE_SPEC] = '{"requiredCPUBindPolicy":"FullPCPUs"}'
            annotations[keys.NUMA_TOPOLOGY_SPEC] = '{"numaTopologyPolicy":"SingleNUMANode"}'
        case 7:
            requests |= {"koordinator.sh/gpu-core": "30", "koordinator.sh/gpu-memory-ratio": "30"}
        case 11:
            requests |= {"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "1"}
            annotations[keys.DEVICE_JOINT_ALLOCATE] = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
            annotations[keys.DEVICE_ALLOCATE_HINT] = '{"rdma":{"vfSelector":{}}}'
        case 13:
            metadata["labels"] = {"reserved": str(number // PER_REQUEST)}
        case _:
            pass
    container = {"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"priorityClassName": "koord-prod", "containers": [container]},
    }


def reservation_manifest(number: int) -> dict[str, Any]:
    """A Reservation for the pods of one request with a label. Every other one takes the place of a running pod."""
    takes_place = bool(number % 2)
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": f"reserved-{number}"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"reserved": str(number)}}}],
            "template": {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}},
            "allocateOnce": not takes_place,
            "allocatePolicy": "Restricted",
            "preAllocation": takes_place,
        },
    }


class Load(Sender):
    """Submits and deletes pods whatever dies meanwhile."""

    def __init__(self, manager: str) -> None:
        super().__init__(manager)
        self.next_pod = 0
        self.live: set[str] = set()

    async def submit(self) -> None:
        """One request of new pods."""
        numbers = range(self.next_pod, self.next_pod + PER_REQUEST)
        self.next_pod += PER_REQUEST
        reserved = reservation_manifest(numbers[0] // PER_REQUEST)
        await self.send("/v1/apply", [reserved, *(pod_manifest(number) for number in numbers)])
        self.live.update(f"pod-{number}" for number in numbers)

    async def delete(self, rng: random.Random) -> None:
        """One request that deletes a few live pods."""
        names = rng.sample(sorted(self.live), min(4, len(self.live)))
        await self.send("/v1/delete", [{"kind": "Pod", "namespace": "default", "name": name} for name in names])
        self.live.difference_update(names)

    async def run(self, rng: random.Random, stop: asyncio.Event) -> None:
        """Until told to stop. There are never more pods than the GPUs have room for."""
        while not stop.is_set():
            if len(self.live) < MOST_PODS:
                await self.submit()
            if rng.random() < 0.4:
                await self.delete(rng)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def stack(
    var: Path, *, arm: dict[str, str] | None = None, log: Callable[[str], None] | None = None
) -> AsyncGenerator[tuple[Supervisor, list[ProcessSpec], Load]]:
    """The stack with simulated nodes; `arm`: process -> failpoint that kills it at every so many passages.

    log: is told in sentences what the supervisor does
    """
    manifests = [node_manifest(number) for number in range(NODES)]
    nodes = write_nodes(var, manifests)
    options = StackOptions(var=var, simulated=nodes)
    processes = [
        replace(spec, env={**spec.env, "KOORD_FAILPOINT": arm[spec.name]}) if arm and spec.name in arm else spec
        for spec in specs(options)
    ]
    async with Supervisor(processes, state_file=var / "run" / "stack.json", log=log) as supervisor:
        load = Load(url_of(processes, "manager"))
        try:
            await load.send("/v1/apply", manifests)
            await load.send("/v1/apply", [PROD])
            await load.send("/v1/apply", [each for number in range(NODES) for each in hardware_manifests(number)])
            yield supervisor, processes, load
        finally:
            await load.close()


async def require_everything_right(var: Path, processes: list[ProcessSpec], load: Load) -> Audit:
    """Waits until every live pod is placed (there is room for all), then audits the log and compares the folds."""
    audit = Audit()
    position = 0

    async def all_placed() -> bool:
        nonlocal position
        try:
            async with open_log(var) as log:
                head = await log.bus.events.head()
                async for batch in log.bus.events.history(position, head.last_seq):
                    for stored in batch:
                        event = CATALOGUE.read(stored)
                        assert event is not None
                        audit.see(stored, event)
                        position = stored.seq
        except LogTrouble:
            return False
        found = audit.findings(())
        return not found.pending and found.submitted == len(load.live)

    await until(all_placed, "every live pod is placed", seconds=PATIENCE_SECONDS, every=0.2)
    findings = audit.findings(())
    assert not findings.sentences()
    assert {audit.name_of(uid) for uid in audit.live_pods()} == {f"default/{name}" for name in load.live}
    if load.next_pod > PER_REQUEST:
        held = audit.allocations()
        assert any(each.cpuset and each.zones for each in held)
        assert any(each.amounts.get("koordinator.sh/gpu-core") == 30 for one in held for each in one.devices)
        assert any(each.virtual_functions for one in held for each in one.devices)
        assert any(each.reservation is not None for each in held)

    async with open_log(var) as log:
        verdict = await verify_now(log.bus, manager=url_of(processes, "manager"), seconds=PATIENCE_SECONDS)
    assert verdict.equal, verdict
    return audit


async def load_until_restarted(
    names: Collection[str], supervisor: Supervisor, var: Path, processes: list[ProcessSpec], load: Load
) -> None:
    """Audits the log, and adds pods until each of these processes was killed and started again.

    A busy process handles many requests in one passage of its failpoint, so the load before may not have killed it.
    """
    await require_everything_right(var, processes, load)
    while not all(process.restarts for process in supervisor.status().processes if process.name in names):
        await load.submit()
        await require_everything_right(var, processes, load)


@pytest.mark.deep
async def test_thirty_kills_at_random_lose_nothing() -> None:
    rng = random.Random(20261121)
    sentences: list[str] = []
    with var_folder() as var:
        async with stack(var, log=sentences.append) as (supervisor, processes, load):
            stop = asyncio.Event()
            loading = asyncio.create_task(load.run(rng, stop))
            killed = 0
            while killed < KILLS:
                await asyncio.sleep(rng.uniform(0.1, 0.8))
                ready = [found.name for found in supervisor.status().processes if found.state == "ready"]
                if ready:
                    await supervisor.kill(rng.choice(ready))
                    killed += 1
                assert not loading.done() or loading.exception() is None
            stop.set()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await loading
            audit = await require_everything_right(var, processes, load)
            # What was killed last may still wait for its restart: the audit does not need every process.
            await until(
                lambda: sum(process.restarts for process in supervisor.status().processes) >= KILLS,
                "every killed process is started again",
            )

    # Nothing ended by itself; a start that failed because of another's death was tried again.
    ends = [sentence for sentence in sentences if " ended with exit code" in sentence.partition(":")[0]]
    assert len(ends) == KILLS, "\n".join(sentences)
    assert all(sentence.endswith("exit code -9") for sentence in ends), sentences
    assert audit.by_type["PodPlaced"] >= 100


@pytest.mark.deep
async def test_a_kill_at_every_named_failpoint_loses_nothing() -> None:
    rng = random.Random(7)
    arm = {
        "manager": "documents_appended_before_answer:9",
        "scheduler": "after_append_before_confirm:7",
        "projector": "rows_written_before_commit:11",
    }
    with var_folder() as var:
        async with stack(var, arm=arm) as (supervisor, processes, load):
            for _ in range(40):
                await load.submit()
                if rng.random() < 0.3:
                    await load.delete(rng)
            await load_until_restarted(arm, supervisor, var, processes, load)


@pytest.mark.parametrize("failpoint", ["documents_decided_before_append", "after_reserve_before_seal", "before_append"])
@pytest.mark.deep
async def test_a_kill_before_an_append_loses_nothing(failpoint: str) -> None:
    victim = "manager" if failpoint.startswith("documents") else "scheduler"
    with var_folder() as var:
        async with stack(var, arm={victim: f"{failpoint}:6"}) as (supervisor, processes, load):
            for _ in range(15):
                await load.submit()
            await load_until_restarted({victim}, supervisor, var, processes, load)
