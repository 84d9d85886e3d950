"""A day of the demo on which devices fail and come back: GPUs, RDMA adapters, and the devices of whole nodes.

    wave 1:  devices of some nodes fail -> facts for their pods -> pods arrive and end
             the devices are back       -> facts for their pods -> pods arrive and end
    wave 2:  the same with other nodes ...
    the end: the log is checked; all pods end; every share is free again

Pods with whole GPUs also take a virtual function of the RDMA adapter at each PCIe switch of their GPUs. A pod runs for
a third of the day. `device_health` checks the rules of this demo, `invariants` the rules of every demo.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import httpx
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, StoredEvent

from koordctl.access.folding import fold_to
from koordctl.demo.device_health import DeviceAudit, DeviceDaySummary, DeviceId
from koordctl.demo.invariants import Audit
from koordctl.demo.run import DemoOptions, RunningStack, fresh, start
from koordctl.demo.submitting import (
    WARM_UP_SECONDS,
    Watching,
    delete_pods,
    register_nodes,
    settle,
    submit_pods,
    wait_until,
)
from koordctl.demo.summary import VERIFY_SECONDS, count_reasons, newest_explanations
from koordctl.demo.trace import WHOLE_GPU_MILLI, TraceNode, TracePod, node_manifest, pod_manifest, with_rdma
from koordctl.replay.verify import Verification, verify_now
from koordctl.stack.nodes import Manifest

WAVES: Final = 3
NODES_PER_KIND: Final = 8
"""Nodes of which a GPU, an RDMA adapter or everything fails in one wave, at most."""
RDMA_FUNCTIONS: Final = 4
GPUS_PER_SWITCH: Final = 2
PARTS_OF_A_LIFE: Final = 2
"""A pod ends after so many parts of the day have passed since it came; the day has 2 x WAVES parts."""
TOLD_SECONDS: Final = 180.0
FREE_SECONDS: Final = 180.0
GPU_FAULT: Final = "Xid79"
"""Code of a GPU that has fallen off the bus."""
RDMA_FAULT: Final = "PortInactive"
GPU: Final = "gpu"
RDMA: Final = "rdma"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    single: tuple[tuple[str, DeviceId], ...]  # (node, device) of each single device that fails
    vanishing: dict[str, tuple[DeviceId, ...]]  # Nodes whose devices all vanish: node -> its devices

    def devices(self) -> list[tuple[str, DeviceId]]:
        return [*self.single, *((node, device) for node, gone in self.vanishing.items() for device in gone)]

    def sentence(self) -> str:
        gpus = sum(device.type == GPU for _, device in self.single)
        return f"{gpus} GPUs, {len(self.single) - gpus} RDMA adapters, and the devices of {len(self.vanishing)} nodes"


def waves(nodes: Sequence[TraceNode]) -> list[Wave]:
    """Plan the failures of the day in `WAVES` waves.

    In each wave, some nodes lose one GPU, some lose one RDMA adapter, and some lose all devices: at most
    `NODES_PER_KIND` nodes each. Each node with GPUs belongs to one wave at most.
    """
    found: list[Wave] = []
    with_gpus = [node for node in nodes if node.gpus]
    for number in range(WAVES):
        turn = with_gpus[number::WAVES]
        cards, adapters, whole = (turn[kind::3][:NODES_PER_KIND] for kind in range(3))
        found.append(
            Wave(
                single=(
                    *((node.name, DeviceId(GPU, number % node.gpus)) for node in cards),
                    *((node.name, DeviceId(RDMA, number % _adapters(node))) for node in adapters),
                ),
                vanishing={
                    node.name: (
                        *(DeviceId(GPU, minor) for minor in range(node.gpus)),
                        *(DeviceId(RDMA, minor) for minor in range(_adapters(node))),
                    )
                    for node in whole
                },
            )
        )
    return found


async def run_failing_devices(
    options: DemoOptions, watching: Watching, resources: AsyncExitStack
) -> tuple[DeviceDaySummary, str]:
    """Run the day on a fresh stack and check the log. Return the summary and the URL of the dashboard.

    The stack runs until `resources` is closed.

    Raises:
        EmbeddedError, LogTrouble: The stack failed, or the log cannot be used.
    """
    began = time.monotonic()
    watching.step("starting the stack")
    manifests = [node_manifest(node, rdma_functions=RDMA_FUNCTIONS) for node in options.nodes]
    running = await start(fresh(options, manifests), watching, resources)
    day = _Day(options, running, watching)
    following = asyncio.create_task(day.follow(running.log.bus.events.follow(0, kinds=("pod", "customspec"))))
    resources.callback(following.cancel)

    # 1. the nodes; best-effort pods need reports of the nodes before they can be placed
    watching.step(f"registering {len(options.nodes):,} simulated nodes")
    await register_nodes(running.client, options.nodes, options.speed, rdma_functions=RDMA_FUNCTIONS)
    with_gpus = sum(bool(node.gpus) for node in options.nodes)
    tail = running.tail
    await wait_until(
        lambda: len(tail.overcommit) >= len(options.nodes) and len(tail.devices) >= with_gpus, tail, WARM_UP_SECONDS
    )

    # 2. the day
    for number, wave in enumerate(waves(options.nodes)):
        watching.step(f"{wave.sentence()} fail")
        await day.fail(wave)
        await day.part(2 * number)
        watching.step("they are back")
        await day.recover(wave)
        await day.part(2 * number + 1)
    await settle(len(options.pods), tail, watching)

    # 3. the reckoning: three folds at one position, every rule from the events alone
    watching.step("recomputing every rule from the log, and comparing the folds")
    evening = await _audited(running)
    reasons = await newest_explanations(running.log)

    # 4. all pods end
    watching.step("ending all pods")
    await day.end(len(options.pods))
    night = await _audited(running)
    findings, devices = night.audit.findings(reasons), night.devices
    used = await day.used_devices()
    left = [
        *(f"{count} pods hold something after all pods ended" for count in (len(night.audit.allocations()),) if count),
        *(f"the scheduler counts used devices of {node} after all pods ended" for node in used),
    ]
    untold = [*day.late, *devices.missed, *evening.devices.untold(), *devices.untold()]
    verification = night.verification
    return (
        DeviceDaySummary(
            pods=len(options.pods),
            placed=evening.audit.by_type.get("PodPlaced", 0),
            pods_with_devices=devices.placed,
            pending_reasons=count_reasons(evening.audit.findings(reasons).pending, reasons),
            failed=dict(sorted(devices.failed.items())),
            recovered=dict(sorted(devices.recovered.items())),
            vanished_nodes=sum(len(wave.vanishing) for wave in waves(options.nodes)),
            told=devices.told,
            given_unhealthy=len(devices.on_unhealthy),
            given_twice=len(findings.allocations),
            untold_pods=len(untold),
            not_returned=len(left),
            double_placements=len(findings.double_placements),
            overcommitted_nodes=findings.overcommitted_nodes,
            ledger_differences=len(findings.ledger_differences),
            unexplained_pods=len(evening.audit.findings(reasons).unexplained),
            position=verification.position,
            folds_agree=verification.equal,
            folds=verification.sentence,
            events=night.audit.events,
            startup_s=round(running.startup_s, 2),
            wall_s=round(time.monotonic() - began, 2),
            speed=options.speed,
            violations=[
                *evening.audit.findings(reasons).sentences(),
                *findings.sentences(),
                *devices.on_unhealthy,
                *untold,
                *left,
                *(
                    f"the folds differ at position {each.position}"
                    for each in (evening.verification, verification)
                    if not each.equal
                ),
            ],
        ),
        f"{running.urls['projector']}/",
    )


class _Day:
    """The course of the day: what fails, which pods come and end, and a view of the log to wait for answers."""

    def __init__(self, options: DemoOptions, running: RunningStack, watching: Watching) -> None:
        self.late: list[str] = []  # A sentence for each wave whose pods were not told in time
        self._options = options
        self._running = running
        self._watching = watching
        self._seen = DeviceAudit()
        self._moved = asyncio.Event()
        self._ended = 0

    async def follow(self, batches: AsyncIterator[list[StoredEvent]]) -> None:
        """Apply each event of the log to the audit of device health, until the task is cancelled."""
        async for batch in batches:
            for stored in batch:
                event = CATALOGUE.read(stored)
                if event is not None:
                    self._seen.see(stored, event)
            self._moved.set()

    async def fail(self, wave: Wave) -> None:
        """Let the devices of a wave fail, and wait until the log says so and their pods are told."""
        await self._set(wave, is_healthy=False)

    async def recover(self, wave: Wave) -> None:
        await self._set(wave, is_healthy=True)

    async def part(self, number: int) -> None:
        """Submit the pods of one part of the day, and end those that have run long enough."""
        pods, parts = self._options.pods, 2 * WAVES
        begin, end = (len(pods) * each // parts for each in (number, number + 1))

        async def sent(pods_of_part: int) -> None:
            self._watching.progress(self._running.tail.counts(begin + pods_of_part, len(pods)))

        await submit_pods(self._running.client, pods[begin:end], self._options.seconds / parts, sent, _manifest)
        await self._end_pods(len(pods) * max(0, number - PARTS_OF_A_LIFE) // parts)

    async def end(self, pods: int) -> None:
        """End all pods, and wait until their nodes have everything back."""
        await self._end_pods(pods)
        tail = self._running.tail
        await wait_until(lambda: not tail.placed, tail, FREE_SECONDS)
        await self._until(lambda: not self._seen.holders, FREE_SECONDS)

    async def used_devices(self) -> list[str]:
        """Nodes of which the scheduler counts devices as used."""
        async with httpx.AsyncClient(base_url=self._running.urls["scheduler"], timeout=60, trust_env=False) as client:
            answer = await client.get("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries")
            answer.raise_for_status()
            summaries = answer.json()
        assert summaries, "the scheduler has devices of the nodes"
        return [
            node
            for node, found in sorted(summaries.items())
            if found["pods"] or any(amount for amounts in found["used"].values() for amount in amounts.values())
        ]

    async def _end_pods(self, upto: int) -> None:
        if upto > self._ended:
            await delete_pods(self._running.client, self._options.pods[self._ended : upto])
            self._ended = upto

    async def _set(self, wave: Wave, *, is_healthy: bool) -> None:
        for node, device in wave.single:
            fault = "" if is_healthy else GPU_FAULT if device.type == GPU else RDMA_FAULT
            body = {"node": node, "type": device.type, "minor": device.minor, "fault": fault}
            await self._running.simulate("/simulation/devices", body)
        for node in wave.vanishing:
            await self._running.simulate("/simulation/inventory", {"node": node, "found": is_healthy})
        seen = self._seen

        def is_told() -> bool:
            stated = all(seen.is_healthy(node, device) == is_healthy for node, device in wave.devices())
            return stated and not seen.untold()

        if not await self._until(is_told, TOLD_SECONDS):
            what = "came back" if is_healthy else "failed"
            self.late += [
                f"{TOLD_SECONDS:g} s after {wave.sentence()} {what}: {sentence}"
                for sentence in seen.untold() or ["the Device objects do not say so"]
            ]

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds for the live look at the log. False if the time is over first."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reckoning:
    """The whole log, checked up to the position of a comparison of the folds."""

    verification: Verification
    audit: Audit
    devices: DeviceAudit


async def _audited(running: RunningStack) -> _Reckoning:
    manager = running.urls["manager"]
    verification = await verify_now(running.log.bus, manager=manager, seconds=VERIFY_SECONDS)
    audit, devices = Audit(), DeviceAudit()

    def see(stored: StoredEvent, event: Event) -> None:
        audit.see(stored, event)
        devices.see(stored, event)

    await fold_to(running.log.bus.events, verification.position, see=see)
    return _Reckoning(verification=verification, audit=audit, devices=devices)


def _adapters(node: TraceNode) -> int:
    return -(-node.gpus // GPUS_PER_SWITCH)


def _manifest(pod: TracePod) -> Manifest:
    """A pod of the trace. If it has whole GPUs, it takes RDMA functions beside them."""
    manifest = pod_manifest(pod)
    return with_rdma(manifest) if pod.gpus and pod.gpu_milli == WHOLE_GPU_MILLI else manifest
