"""Create the agent of a node from the settings: of this machine, or of a simulated one. Part of `compose`."""

import asyncio
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.prediction.model import HalfLives
from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.domain.reporting.topology_report import DEVICES_OF
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.devices import DeviceReporter, MachineDevices, PciBus, XpuFolder
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.grpc.container_runtime import ContainerRuntimes
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import host_roots
from koord_agent.shell.metrics.agent_metrics import ReconcilerMetrics, ResourceUpdates
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl, StopContainers
from koord_agent.shell.node.predicting import CheckpointFolder, Predicting
from koord_agent.shell.node.protect import Protection
from koord_agent.shell.store.audit_log import AuditSink
from koord_agent.shell.store.series_archive import SeriesArchive

if TYPE_CHECKING:
    from koord_agent.shell.collect.nvidia_gpus import NvidiaGpus
    from koord_agent.simulator.host import SimulatedFleet

LONGEST_WINDOW_MS = 1_800_000
"""The longest window of a report (agent spec, 7)."""
FLEET_WINDOW_MS = 330_000
"""Retention of samples on a simulated node: the default aggregate window. Longer windows are cold."""
FLEET_SAMPLES = 150
FLEET_TRAINED_EVERY_CYCLE = 300
"""Largest number of nodes of a process whose models are trained every minute."""
OBJECT_WINDOW_MS = 660_000
"""Retention of samples of pods and containers. Reports need 5 minutes, antagonists 10 (agent spec, 7, 18)."""


def _predictor(settings: AgentSettings, nodes: int) -> PeakPredictor:
    return PeakPredictor(
        half_lives=HalfLives(
            cpu=settings.prediction_cpu_histogram_decay_halflife,
            memory=settings.prediction_memory_histogram_decay_halflife,
        ),
        cold_start_seconds=settings.prediction_cold_start_duration,
        safety_margin_percent=settings.prediction_safety_margin_percent,
        # a process of very many nodes learns about each of them less often
        training_seconds=settings.prediction_training_interval * max(1, nodes // FLEET_TRAINED_EVERY_CYCLE),
        expiration_seconds=settings.prediction_model_expiration_duration,
        checkpoint_seconds=settings.prediction_model_checkpoint_interval,
        checkpoints_per_step=settings.prediction_model_checkpoint_max_per_step,
    )


def _stop_containers(settings: AgentSettings) -> StopContainers | None:
    """None: evictions remain requests."""
    if settings.only_evict_by_api:
        return None
    given = {
        "containerd": settings.containerd_endpoint,
        "docker": settings.docker_endpoint,
        "pouch": settings.pouch_endpoint,
    }
    return ContainerRuntimes(
        (settings.var_run_root, settings.run_root),
        given={runtime: path for runtime, path in given.items() if path is not None},
        default=settings.default_runtime_type,
        monotonic=time.monotonic,
    ).stop


def linux_agent(
    shell: Shell[AgentSettings],
    node: str,
    interval_ms: int,
    announced: set[str],
    audit: AuditSink,
    *,
    said: Mapping[str, str],
    extensions: Extensions,
) -> NodeAgent:
    """`announced` are UIDs of pods whose start is already in the log; `said` digests of the last reports."""
    settings, gates = shell.settings, shell.settings.feature_gates
    host = LinuxHost(
        monotonic_ns=time.monotonic_ns,
        roots=host_roots(settings),
    )
    store = SeriesStore(
        retention_ms=round(settings.tsdb_retention_duration * 1000), object_retention_ms=OBJECT_WINDOW_MS
    )
    gpus = _watched_gpus(shell)
    agent = NodeAgent(
        node,
        host,
        Measurement(
            monitor=NodeMonitor(
                collect_interval_ms=interval_ms,
                store=store,
                outdated_ms=round(settings.collect_sys_metric_outdated_interval * 1000),
            ),
            predicting=Predicting(_predictor(settings, 1), _checkpoints(settings)),
            archive=_archive(shell, store),
            topology=TopologyReporter(
                host,
                host.cpu_topology(),
                reports=gates.enabled("NodeTopologyReport"),
                report_hugepages=gates.enabled("HugePageReport"),
                said=said.get(node, ""),
                sync_ms=round(settings.node_topology_sync_interval * 1000),
                cpu_info_ms=round(settings.collect_node_cpu_info_interval * 1000),
            ),
            devices=_devices(shell, said.get(DEVICES_OF + node, ""), gpus),
            gpus=None if gpus is None else gpus.usage,
        ),
        interval_ms=interval_ms,
        settings=settings,
        extensions=extensions,
        pods=PodControl(announced=announced, stop=_stop_containers(settings)),
        protection=Protection(
            audit=audit,
            draw=random.random,
            observe_write=ResourceUpdates(shell.metrics.registry).observe,
            observe_reconciler=ReconcilerMetrics(shell.metrics.registry, node).observe,
        ),
    )
    if gates.enabled("ColdPageCollector") and not host.start_cold_page_scans():
        shell.log.warning("cold_pages_unusable", reason="kidled is missing, or the agent may not set it")
    # `koord node doctor` tells the files and the reasons
    shell.log.info(
        "host_features", missing=", ".join(finding.feature for finding in agent.measuring.features.missing())
    )
    return agent


def _devices(shell: Shell[AgentSettings], said: str, gpus: "NvidiaGpus | None") -> DeviceReporter | None:
    """None without the gate Accelerators. `said` is the digest of the last report, "" if there is none."""
    settings, gates = shell.settings, shell.settings.feature_gates
    if not gates.enabled("Accelerators"):
        return None
    sync_ms = round(settings.node_topology_sync_interval * 1000)
    pci = PciBus(host_roots(settings).sys)
    machine = MachineDevices(
        XpuFolder(settings.xpu_device_infos_dir),
        gpus=None if gpus is None else gpus.report,
        rdma=pci.rdma_devices if gates.enabled("RDMADevices") else None,
    )
    return DeviceReporter(machine.read, said=said, sync_ms=sync_ms)


def _watched_gpus(shell: Shell[AgentSettings]) -> "NvidiaGpus | None":
    """None if they are not watched. The bindings of NVML are loaded only here."""
    settings = shell.settings
    if not settings.feature_gates.enabled("Accelerators") or settings.xpu_enforce_collect_from_device_infos:
        return None
    from koord_agent.shell.collect.nvidia_gpus import NvidiaGpus

    every_ms = round(settings.node_topology_sync_interval * 1000)
    gpus = NvidiaGpus(PciBus(host_roots(settings).sys), every_ms=every_ms)

    async def start() -> None:
        await asyncio.to_thread(gpus.start)

    async def stop() -> None:
        await asyncio.to_thread(gpus.stop)

    shell.service.add(Component(name="nvidia-gpus", start=start, close=stop))
    return gpus


def _checkpoints(settings: AgentSettings) -> CheckpointFolder | None:
    folder = settings.prediction_checkpoint_filepath or _kept_in(settings, "predictions")
    return None if folder is None else CheckpointFolder(folder)


def _kept_in(settings: AgentSettings, name: str) -> Path | None:
    return None if settings.state_dir is None else settings.state_dir / name


def _archive(shell: Shell[AgentSettings], store: SeriesStore) -> SeriesArchive | None:
    """Restore the series from their archive and return the archive; None without a folder."""
    settings = shell.settings
    folder = settings.tsdb_path or _kept_in(settings, "series")
    if folder is None:
        return None
    archive = SeriesArchive(
        folder,
        retention_ms=round(settings.tsdb_retention_duration * 1000),
        max_bytes=settings.tsdb_max_bytes,
    )
    try:
        restored = archive.restore(store, int(shell.clock.unix() * 1000))
    except OSError as error:
        shell.log.error("series_not_stored", reason=str(error))
        return None
    shell.log.info("series_restored", samples=restored)
    return archive


def simulated_agent(
    settings: AgentSettings,
    fleet: "SimulatedFleet",
    node: str,
    interval_ms: int,
    announced: set[str],
    audit: AuditSink,
    *,
    said: Mapping[str, str],
) -> NodeAgent:
    """The arguments are those of `linux_agent`."""
    host = fleet.host(node)
    retention_ms = max(FLEET_WINDOW_MS, min(LONGEST_WINDOW_MS, FLEET_SAMPLES * interval_ms))
    store = SeriesStore(retention_ms=retention_ms)
    return NodeAgent(
        node,
        host,
        Measurement(
            monitor=NodeMonitor(collect_interval_ms=interval_ms, store=store, with_page_cache=False),
            predicting=Predicting(_predictor(settings, len(fleet.nodes))),
            devices=DeviceReporter(host.devices, said=said.get(DEVICES_OF + node, ""))
            if host.devices().devices
            else None,
        ),
        interval_ms=interval_ms,
        settings=settings,
        pods=PodControl(runner=host, announced=announced),
        protection=Protection(audit=audit, draw=random.random),
    )
