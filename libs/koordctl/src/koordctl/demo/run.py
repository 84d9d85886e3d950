"""The course of the demo: start a fresh stack, register the trace's nodes, submit its pods, summarise.

Every result comes from the log and from the reports of the services; `run` itself only measures times.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor

from koordctl.access.clients import state_file
from koordctl.access.log import OpenLog, open_log
from koordctl.demo.invariants import BATCH_CPU
from koordctl.demo.real_container import HostKubelet, RealContainer, prepare_cgroups
from koordctl.demo.submitting import (
    REPORT_REAL_SECONDS,
    WARM_UP_SECONDS,
    Watching,
    register_nodes,
    settle,
    slo_controller_config,
    submit_pods,
    wait_until,
)
from koordctl.demo.summary import (
    Summary,
    count_reasons,
    newest_reports,
    percentile,
    protection_of,
    reckon,
    share_percent,
    usage_of,
)
from koordctl.demo.tail import Tail
from koordctl.demo.trace import TraceNode, TracePod, node_manifest
from koordctl.render.units import duration_text
from koordctl.stack.containers import unusable
from koordctl.stack.nodes import Manifest, host_manifest, host_node_name, submit, write_nodes
from koordctl.stack.processes import PROXY_SOCKET, SIMULATOR, StackOptions, manager_url, shared_clock, specs, wipe

NOT_FOUND: Final = 404
HEARD_SECONDS: Final = 2.1 * REPORT_REAL_SECONDS
"""Time until every agent has applied a change and reported a whole interval of it."""
RELEASE_SECONDS: Final = 90.0
RELEASED_SHARE: Final = 0.95
LOOK_SECONDS: Final = 2.0
NO_LIMIT: Final = -1
RUSH: Final = {"latencySensitiveLoad": 1.5, "bestEffortLoad": 4.0}
"""Factors on the usual use of pods: more users, and batch work that takes all it can get."""
USUAL_LOAD: Final = {"latencySensitiveLoad": 1.0, "bestEffortLoad": 1.0}
FAULT: Final = "Xid79"
"""Code of the fault of a GPU that has fallen off the bus."""
FAILING_NODES: Final = 3
FAILURES: Final = 2
"""Failures of GPU 0 on each failing node."""
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    var: Path  # Folder of the demo's data; emptied first
    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]  # Pods of the trace, in order
    speed: float  # Simulated seconds per real second
    seconds: float  # Real time during which pods arrive
    simulators: int = 1  # Number of agent processes that share the simulated nodes
    port_base: int | None = None  # First of consecutive ports, or None for free ports


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStack:
    processes: Sequence[ProcessSpec]
    urls: Mapping[str, str]  # Name of a process -> URL of its HTTP server; "" without one
    client: httpx.AsyncClient
    log: OpenLog
    tail: Tail  # Counts of pods; a task follows the log
    startup_s: float  # Real seconds until every process was ready

    async def simulate(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a change to all agents that simulate nodes. Those that do not simulate its node ignore it."""
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            for spec in self.processes:
                if spec.name.startswith(SIMULATOR):
                    answer = await client.put(f"{spec.urls['http']}{path}", json=body)
                    if answer.status_code != NOT_FOUND:
                        answer.raise_for_status()


def fresh(options: DemoOptions, nodes: Sequence[Manifest]) -> StackOptions:
    """Empty the folder of the demo. Return the options of a stack in this folder that simulates the given nodes."""
    file = options.var / "simulated-nodes.json"
    stack = StackOptions(var=options.var, port_base=options.port_base, simulated=file, simulators=options.simulators)
    wipe(stack)
    write_nodes(file, nodes)
    return replace(stack, clock=shared_clock(options.speed, options.var))


async def start(stack: StackOptions, watching: Watching, resources: AsyncExitStack) -> RunningStack:
    """Start the stack and follow its log. It runs until `resources` is closed."""
    began = time.monotonic()
    processes = specs(stack)
    await resources.enter_async_context(
        Supervisor(processes, state_file=state_file(stack.var), log=lambda line: watching.step(f"  {line}"))
    )
    startup_s = time.monotonic() - began
    urls = {spec.name: spec.urls.get("http", "") for spec in processes}
    watching.step(f"ready after {duration_text(startup_s)}; dashboard {urls['projector']}/")
    client = await resources.enter_async_context(
        httpx.AsyncClient(base_url=manager_url(processes), timeout=60, trust_env=False)
    )
    log = await resources.enter_async_context(open_log(stack.var))
    tail = Tail()
    tailing = asyncio.create_task(tail.follow(log))
    resources.callback(tailing.cancel)
    return RunningStack(processes=processes, urls=urls, client=client, log=log, tail=tail, startup_s=startup_s)


async def run(options: DemoOptions, watching: Watching, resources: AsyncExitStack) -> tuple[Summary, str]:
    """Start a fresh stack, submit the trace's pods and check the log. Return the summary and the URL of the dashboard.

    The stack runs until `resources` is closed.

    Raises:
        EmbeddedError, LogTrouble: The stack failed, or the log cannot be used.
    """
    began = time.monotonic()
    host = host_node_name()

    # 1. a fresh stack
    watching.step("starting the stack")
    containers = options.var / "containers"
    missing = unusable(containers)
    stack = _fresh(options, host, None if missing else containers)
    running = await start(stack, watching, resources)
    kubelet = HostKubelet(containers, host, containers / PROXY_SOCKET)
    if not missing:
        resources.push_async_callback(kubelet.remove)
    urls, client, log, tail = running.urls, running.client, running.log, running.tail

    # 2. configuration and nodes; best-effort pods need reports of the nodes before they can be placed
    watching.step(f"registering {len(options.nodes):,} simulated nodes and this host ({host})")
    await register_nodes(client, options.nodes, options.speed, [host_manifest(host)])
    with_gpus = sum(bool(node.gpus) for node in options.nodes)
    await wait_until(
        lambda: len(tail.overcommit) > len(options.nodes) and len(tail.devices) >= with_gpus, tail, WARM_UP_SECONDS
    )
    watching.step(
        f"batch resources are published for {len(tail.overcommit):,} nodes, devices for {len(tail.devices):,}"
    )

    # 3. the pods, in the trace's order
    watching.step(f"sending {len(options.pods):,} pods")
    loading = time.monotonic()
    events_before = (await log.bus.events.head()).last_seq
    faults = device_faults([node.name for node in options.nodes if node.gpus], len(options.pods))

    async def sent(pods: int) -> None:
        """Show the progress. Meanwhile GPUs fail and recover: their pods stay, and they take no new pods."""
        watching.progress(tail.counts(pods, len(options.pods)))
        while faults and pods >= faults[0].at_pod:
            fault = faults.pop(0)
            await _set_fault(running, fault.node, fault.fault, watching)

    await submit_pods(client, options.pods, options.seconds, sent)
    await settle(len(options.pods), tail, watching)
    loaded_s = time.monotonic() - loading
    events_after = (await log.bus.events.head()).last_seq

    reports = await newest_reports(log, [node.name for node in options.nodes])
    rushing = await _rush(running, watching)

    # 4. the reckoning: three folds, every invariant from the events alone
    found = await reckon(log, urls["manager"], watching.step)
    audit, findings = found.audit, found.findings
    real = await newest_reports(log, [host])

    # 5. what protection is worth in the rush: the same load with it on, and switched off
    usage, capacity = usage_of(reports), sum(node.cpu_milli for node in options.nodes)
    await asyncio.sleep(max(0.0, rushing + HEARD_SECONDS - time.monotonic()))
    protected = await newest_reports(log, [node.name for node in options.nodes])
    watching.step("switching the protection off for comparison")
    await submit(client, [slo_controller_config(options.speed, protect=False)])
    await _released(log, [node.name for node in options.nodes])
    await asyncio.sleep(HEARD_SECONDS - REPORT_REAL_SECONDS)
    unprotected = await newest_reports(log, [node.name for node in options.nodes])
    watching.step("ending the load peak, and switching the protection on again")
    await submit(client, [slo_controller_config(options.speed)])
    await running.simulate("/simulation", USUAL_LOAD)

    # 6. one real container on this host
    real_container = RealContainer(missing=missing)
    if not missing:
        watching.step("starting a real container on this host, through containerd and the CRI proxy")
        real_container = await kubelet.run_pod(client, log)

    # 7. the summary
    waits, asked = audit.waits_ms, audit.requests_on_nodes
    gpus = audit.gpu_use()
    real_usage = real[0].node_usage if real else None
    summary = Summary(
        pods_submitted=findings.submitted,
        pods_placed=findings.placed,
        pods_started=findings.started,
        pods_pending=len(findings.pending),
        pods_evicted=audit.by_type.get("PodEvicted", 0),
        pending_reasons=count_reasons(findings.pending, found.reasons),
        **found.checks(),
        submit_to_placed_p50_ms=round(percentile(waits, 50), 2),
        submit_to_placed_p99_ms=round(percentile(waits, 99), 2),
        first_placement_ms=round(audit.first_placement_ms, 2),
        nodes=len(options.nodes) + 1,
        requested_cpu_percent=share_percent(asked.get(CPU, 0), capacity),
        requested_cpu_with_overcommit_percent=share_percent(asked.get(CPU, 0) + asked.get(BATCH_CPU, 0), capacity),
        utilisation_requested_only_percent=share_percent(usage.total_milli - usage.best_effort_milli, capacity),
        utilisation_with_overcommit_percent=share_percent(usage.total_milli, capacity),
        real_node=host,
        real_node_cpu_milli=real_usage.cpu_milli if real_usage else 0,
        real_container=real_container,
        gpu_pods=gpus.pods,
        shared_gpus=gpus.shared,
        gpu_allocated_percent=share_percent(gpus.held, gpus.offered),
        device_reports_after_start=max(0, audit.by_type.get("DeviceInventoryChanged", 0) - with_gpus),
        suppressions=audit.by_type.get("BeCpuSuppressed", 0),
        protected=protection_of(protected, capacity),
        unprotected=protection_of(unprotected, capacity),
        events=audit.events,
        events_per_s=round((events_after - events_before) / loaded_s, 1) if loaded_s > 0 else 0.0,
        replay_events_per_s=round(found.verification.folded.events_per_second, 1),
        startup_s=round(running.startup_s, 2),
        wall_s=round(time.monotonic() - began, 2),
        speed=options.speed,
    )
    return summary, f"{urls['projector']}/"


async def _released(log: OpenLog, nodes: Sequence[str]) -> None:
    """Wait until nearly every node reports that its best-effort pods are not limited, or until the time is over."""
    end = time.monotonic() + RELEASE_SECONDS
    while time.monotonic() < end:
        reports = await newest_reports(log, nodes)
        if sum(report.be_quota_us == NO_LIMIT for report in reports) >= RELEASED_SHARE * len(reports):
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _rush(running: RunningStack, watching: Watching) -> float:
    """Raise the load of every simulated pod, and return the time at which that happened."""
    watching.step(
        f"load peak: {RUSH['latencySensitiveLoad']:g} times the users, best-effort work that wants"
        f" {RUSH['bestEffortLoad']:g} times its requests"
    )
    await running.simulate("/simulation", RUSH)
    return time.monotonic()


def _fresh(options: DemoOptions, host: str, containers: Path | None) -> StackOptions:
    """The stack's options on an emptied folder. `containers`: folder of its containerd; None for none."""
    stack = fresh(options, [node_manifest(node) for node in options.nodes])
    if containers is not None:
        containers.mkdir(parents=True, exist_ok=True)  # mounts of a killed demo keep the folder
        prepare_cgroups()
    return replace(stack, host_node=host, containers=containers)


class DeviceFault(NamedTuple):
    at_pod: int  # Number of submitted pods at which it happens
    node: str
    fault: str  # Error code such as `Xid79`; "" makes the GPU healthy again


def device_faults(nodes: Sequence[str], pods: int) -> list[DeviceFault]:
    """The failures and recoveries of a demo, in order: each of the first nodes fails several times.

    Args:
        nodes: Names of the nodes with GPUs.
    """
    broken = nodes[:FAILING_NODES]
    turns = [node for _ in range(FAILURES) for node in broken]
    steps = 2 * len(turns) + 1
    faults: list[DeviceFault] = []
    for turn, node in enumerate(turns):
        faults.append(DeviceFault(pods * (2 * turn + 1) // steps, node, FAULT))
        faults.append(DeviceFault(pods * (2 * turn + 2) // steps, node, ""))
    return faults


async def _set_fault(running: RunningStack, node: str, fault: str, watching: Watching) -> None:
    """Let the first GPU of a simulated node fail, or make it healthy again if the fault is empty."""
    watching.step(f"GPU 0 of {node} fails ({fault})" if fault else f"GPU 0 of {node} is healthy again")
    await running.simulate("/simulation/devices", {"node": node, "minor": 0, "fault": fault})
