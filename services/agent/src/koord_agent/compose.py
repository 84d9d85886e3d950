"""The composition root: the only module of the agent that names concrete adapters."""

import asyncio
import math
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
from koordcore.bus.connection import BusConnection, ConnectRefused, NotConnected
from koordcore.bus.factory import open_bus
from koordcore.service.bus import bus_settings
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.values.timestamps import rfc3339

from koord_agent.cycle import Cycle
from koord_agent.domain.audit import AuditEvent
from koord_agent.domain.monitor import NodeMonitor
from koord_agent.domain.prediction.model import HalfLives
from koord_agent.domain.prediction.predictor import PeakPredictor, PredictionSettings
from koord_agent.domain.series import SeriesStore
from koord_agent.gates import AUDIT_EVENTS, AUDIT_EVENTS_HTTP
from koord_agent.settings import AgentSettings
from koord_agent.shell.audit_log import AuditLog, AuditQueries, AuditSink, no_audit
from koord_agent.shell.audit_routes import audit_routes
from koord_agent.shell.checkpoints import CheckpointFolder
from koord_agent.shell.collecting import CollectOptions
from koord_agent.shell.desired_state import DesiredStates
from koord_agent.shell.host.inotify import CgroupEvent
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.kept import Kept
from koord_agent.shell.kubelet import Kubelet, KubeletAddress
from koord_agent.shell.link import Link, Ports
from koord_agent.shell.node_agent import NodeAgent
from koord_agent.shell.node_series import NodeSeries
from koord_agent.shell.nodes_file import read_nodes, shard_of
from koord_agent.shell.observing import MOST_NODES, AgentMetrics, KubeletRequests
from koord_agent.shell.outbox import Outbox
from koord_agent.shell.own_facts import AgentFacts
from koord_agent.shell.pod_events import PodEvents
from koord_agent.shell.predicting import Predicting
from koord_agent.shell.series_archive import SeriesArchive
from koord_agent.shell.states import KubeletStates
from koord_agent.shell.topology import TopologyReporter

if TYPE_CHECKING:
    from koord_agent.shell.host.simulated import SimulatedFleet

LINUX_TICK_SECONDS = 1.0
SIMULATED_TICK_SECONDS = 2.0
REFUSED_PAUSE_SECONDS = 30.0
FLUSH_SECONDS = 5.0
LONGEST_WINDOW_MS = 1_800_000
"""The longest window of a report (agent spec, 7)."""
FLEET_WINDOW_MS = 330_000
"""A simulated node of many keeps its default aggregate window; longer windows are reported as cold."""
FLEET_SAMPLES = 150
FLEET_TRAINED_EVERY_ROUND = 300
"""Nodes of a process whose models learn at the full pace."""
OBJECT_WINDOW_MS = 660_000
"""Samples of pods and containers: reports look back 5 minutes, the search for antagonists 10 (agent spec, 7, 18)."""


async def compose(shell: Shell[AgentSettings]) -> None:
    """Adds the agent's components: the bus once it answers, the outbox, desired state, the rounds."""
    link = Link()
    shell.health.add_readiness("bus", link.trouble)

    async def hold_bus() -> None:
        # The agents enforce what they were told last; so this may take as long as it likes.
        while True:
            try:
                async with open_bus(bus_settings(shell.settings), metrics=shell.metrics.bus) as bus:
                    connection = bus.connection
                    assert connection is not None, "a bus of a server has a connection"
                    link.connect(
                        Ports(
                            facts=AgentFacts(connection, bus.names, metrics=shell.metrics.bus),
                            reports=bus.observations,
                            desired=bus.desired,
                            pushes=bus.pushes,
                        ),
                        is_connected=partial(_is_connected, connection),
                    )
                    await asyncio.Event().wait()
            except (NotConnected, ConnectRefused) as error:
                link.refuse(str(error))
                shell.log.warning("bus_away", reason=str(error))
                await asyncio.sleep(REFUSED_PAUSE_SECONDS if isinstance(error, ConnectRefused) else 1.0)

    shell.service.add(Component(name="bus", run=hold_bus))
    assemble(shell, link)


def assemble(shell: Shell[AgentSettings], link: Link) -> Cycle:
    """The agent over any bus.

    raises    InvalidInput, OSError for a nodes file or a machine that cannot be read
    """
    settings, clock = shell.settings, shell.clock
    fleet = _fleet(settings, clock.unix())
    tick_seconds = settings.tick_seconds or (LINUX_TICK_SECONDS if fleet is None else SIMULATED_TICK_SECONDS)
    real_second = clock.real_seconds(1.0)
    interval_ms = round(1000 * (tick_seconds / real_second if math.isfinite(real_second) else tick_seconds))
    kept = Kept(settings.state_dir)
    if kept.set_aside is not None:
        shell.log.warning("state_set_aside", file=str(kept.set_aside))
    if kept.unusable:
        shell.log.error("state_not_kept", reason=kept.unusable)
    announced = kept.announced()
    audit_log = _audit_log(shell)
    audit = no_audit if audit_log is None else _audit_sink(audit_log, shell)
    name = node_name(settings, os.environ)
    if fleet is None:
        said = kept.topologies().get(name, "")
        agents = {name: _linux_agent(shell, name, interval_ms, announced.get(name, set()), audit, said)}
    else:
        agents = {
            node.name: _simulated_agent(settings, fleet, node.name, interval_ms, announced.get(node.name, set()), audit)
            for node in fleet.nodes
        }
    changed, wakeup = set[str](), asyncio.Event()

    def change(node: str) -> None:
        changed.add(node)
        wakeup.set()

    states = DesiredStates(
        tuple(agents),
        link,
        logger=shell.log,
        jitter=lambda: random.uniform(0.8, 1.2),  # noqa: S311 - spreads load, not a secret
        changed=change,
    )
    wanted, problems = kept.desired(int(clock.unix() * 1000), settings.desired_max_age * 1000)
    for problem in problems:
        shell.log.warning("kept_desired_refused", reason=problem)
    states.restore(wanted)
    outbox = Outbox(kept, link, limit=settings.outbox_facts, logger=shell.log)
    metrics = AgentMetrics(shell.metrics.registry, len(agents))
    metrics.watch(lambda: len(outbox), lambda: outbox.dropped)
    if len(agents) <= MOST_NODES:
        shell.metrics.registry.register(NodeSeries(agents.values))
    cycle = Cycle(
        agents=agents,
        fleet=fleet,
        states=states,
        outbox=outbox,
        kept=kept,
        link=link,
        clock=clock,
        tracer=shell.tracer,
        metrics=metrics,
        logger=shell.log,
        tick_seconds=tick_seconds,
        start_id=str(uuid.uuid4()),
        version=version("koord-agent"),
        changed=changed,
        wakeup=wakeup,
        audit=audit_log,
    )

    def looked_at_all() -> str | None:
        looked, nodes = len(states.read_once), len(agents)
        return None if looked == nodes else f"the desired state of {looked} of {nodes} nodes has been read"

    async def flush() -> None:
        if link.ports is not None:
            await outbox.flush(FLUSH_SECONDS)

    async def farewell() -> None:
        cycle.end()

    async def close() -> None:
        if audit_log is not None:
            audit_log.close()
        kept.close()

    if fleet is None:
        _follow_machine(shell, agents[name], change)
    shell.health.add_readiness("desired", looked_at_all)
    # Stopped in reverse: no more rounds, no more changes, then what is left to say is said.
    shell.service.add(Component(name="kept", close=close))
    shell.service.add(Component(name="outbox", run=outbox.run))
    shell.service.add(Component(name="outbox-flush", stop=flush))
    shell.service.add(Component(name="farewell", stop=farewell))
    shell.service.add(Component(name="desired", run=states.run))
    shell.service.add(Component(name="cycle", run=cycle.run))
    return cycle


def _follow_machine(shell: Shell[AgentSettings], agent: NodeAgent, change: Callable[[str], None]) -> None:
    """Adds what tells a real node's agent about its pods: the kubelet, if there is one, and their cgroups."""
    settings = shell.settings
    states: KubeletStates | None = None
    if settings.kubelet_address:
        insecure = settings.kubelet_insecure_tls
        address = KubeletAddress(
            host=settings.kubelet_address,
            port=settings.kubelet_read_only_port if insecure else settings.kubelet_port,
            insecure=insecure,
            token_file=settings.kubelet_token_file,
            timeout_seconds=settings.kubelet_sync_timeout,
        )
        requests = KubeletRequests(shell.metrics.registry, agent.node)

        def listed() -> None:
            assert states is not None, "it lists only once it exists"
            agent.known = states.known
            agent.kubelet_static = states.configuration is not None and states.configuration.is_static
            if agent.topology is not None:
                agent.topology.kubelet = states.configuration
                agent.topology.kubelet_entries = states.cpu_entries
            change(agent.node)

        states = KubeletStates(
            Kubelet(address, now=time.monotonic, observe=requests.observe),
            folder=settings.var_lib_kubelet_dir,
            sync_seconds=settings.kubelet_sync_interval,
            asks_configuration=not settings.disable_query_kubelet_config,
            now_ms=lambda: int(shell.clock.unix() * 1000),
            monotonic=time.monotonic,
            logger=shell.log,
            changed=listed,
        )
        shell.service.add(Component(name="kubelet", run=states.run))
        shell.health.add_readiness("kubelet", states.trouble)

    def told(event: CgroupEvent) -> None:
        if states is not None and event.container_id is None:
            states.sync_soon()
        change(agent.node)

    layout, version = agent.host.layout, agent.host.cgroup_version
    root = settings.cgroup_root / "cpu" if version == 1 else settings.cgroup_root
    shell.service.add(Component(name="pod-events", run=PodEvents(str(root), layout, told=told, logger=shell.log).run))


def _is_connected(connection: BusConnection) -> bool:
    return connection.is_connected


def node_name(settings: AgentSettings, environ: Mapping[str, str]) -> str:
    """This machine's node: the flag, else $NODE_NAME, else the host's name."""
    return settings.node_name or environ.get("NODE_NAME", "") or os.uname().nodename.lower()


def _fleet(settings: AgentSettings, now: float) -> "SimulatedFleet | None":
    file = settings.simulated_nodes_file
    if settings.host_mode == "linux" or (settings.host_mode == "auto" and file is None):
        return None
    if file is None:
        raise ValueError("simulated_nodes_file: needed with host_mode=simulated")
    # the arrays that it brings along are 15 MiB that a real node keeps for its pods
    from koord_agent.shell.host.simulated import SimulatedFleet

    return SimulatedFleet(shard_of(read_nodes(file), settings.shard), start_seconds=now)


def _audit_log(shell: Shell[AgentSettings]) -> AuditLog | None:
    """The audit log with its route, as the gates say; without a folder that can be written there is none."""
    settings = shell.settings
    if not settings.feature_gates.enabled(AUDIT_EVENTS):
        return None
    try:
        log = AuditLog(
            settings.audit_log_dir,
            verbose=settings.audit_verbose,
            max_disk_mb=settings.audit_max_disk_space_mb,
            now=shell.clock.now,
        )
    except OSError as error:
        shell.log.error("audit_log_unusable", reason=str(error))
        return None
    if settings.feature_gates.enabled(AUDIT_EVENTS_HTTP):
        queries = AuditQueries(
            settings.audit_log_dir,
            readers=settings.audit_max_concurrent_readers,
            largest_page=settings.audit_max_events_limit,
        )
        shell.http.routes.extend(audit_routes(log, queries, time.monotonic))
    return log


def _audit_sink(log: AuditLog, shell: Shell[AgentSettings]) -> AuditSink:
    def write(event: AuditEvent, verbosity: int) -> None:
        log.write(msgspec.structs.replace(event, created_at=rfc3339(shell.clock.now())), verbosity, time.monotonic())

    return write


def _collect_options(settings: AgentSettings) -> CollectOptions:
    gates = settings.feature_gates
    return CollectOptions(
        psi=gates.enabled("PSICollector"),
        sched_delay=gates.enabled("PSICollector"),
        cpi=gates.enabled("CPICollector"),
        resctrl=gates.enabled("ResctrlCollector") and settings.enable_resctrl_collector,
        cold_pages=gates.enabled("ColdPageCollector"),
        psi_interval_ms=round(settings.psi_collector_interval * 1000),
        cpi_interval_ms=round(settings.cpi_collector_interval * 1000),
        cpi_window_ms=round(settings.collect_cpi_timewindow * 1000),
        resctrl_interval_ms=round(settings.resctrl_collector_interval * 1000),
        cold_page_interval_ms=round(settings.coldpage_collector_interval * 1000),
    )


def _predictor(settings: AgentSettings, nodes: int) -> PeakPredictor:
    return PeakPredictor(
        PredictionSettings(
            half_lives=HalfLives(
                cpu=settings.prediction_cpu_histogram_decay_halflife,
                memory=settings.prediction_memory_histogram_decay_halflife,
            ),
            cold_start_seconds=settings.prediction_cold_start_duration,
            safety_margin_percent=settings.prediction_safety_margin_percent,
            # a process of very many nodes learns about each of them less often
            training_seconds=settings.prediction_training_interval * max(1, nodes // FLEET_TRAINED_EVERY_ROUND),
            expiration_seconds=settings.prediction_model_expiration_duration,
            checkpoint_seconds=settings.prediction_model_checkpoint_interval,
            checkpoints_per_step=settings.prediction_model_checkpoint_max_per_step,
        )
    )


def _linux_agent(
    shell: Shell[AgentSettings], node: str, interval_ms: int, announced: set[str], audit: AuditSink, topology_said: str
) -> NodeAgent:
    settings, gates = shell.settings, shell.settings.feature_gates
    host = LinuxHost(
        monotonic_ns=time.monotonic_ns,
        roots=HostRoots(cgroup=settings.cgroup_root, proc=settings.proc_root, sys=settings.sys_root),
    )
    store = SeriesStore(
        retention_ms=round(settings.tsdb_retention_duration * 1000), object_retention_ms=OBJECT_WINDOW_MS
    )
    agent = NodeAgent(
        node,
        host,
        interval_ms=interval_ms,
        monitor=NodeMonitor(collect_interval_ms=interval_ms, store=store),
        announced=announced,
        options=_collect_options(settings),
        gates=settings.feature_gates,
        audit=audit,
        draw=random.random,
        predicting=Predicting(
            _predictor(settings, 1),
            CheckpointFolder(settings.state_dir / "predictions") if settings.state_dir is not None else None,
        ),
        archive=_archive(shell, store),
        topology=TopologyReporter(
            host,
            host.cpu_topology(),
            reports=gates.enabled("NodeTopologyReport"),
            report_hugepages=gates.enabled("HugePageReport"),
            said=topology_said,
        ),
    )
    if gates.enabled("ColdPageCollector") and not host.start_cold_page_scans():
        shell.log.warning("cold_pages_unusable", reason="kidled is not there, or may not be set")
    # `koord node doctor` tells the files and the reasons
    shell.log.info("host_features", missing=", ".join(finding.feature for finding in agent.features.missing()))
    return agent


def _archive(shell: Shell[AgentSettings], store: SeriesStore) -> SeriesArchive | None:
    """The samples of the last process, and where those of this one go."""
    settings = shell.settings
    if settings.state_dir is None:
        return None
    archive = SeriesArchive(
        settings.state_dir / "series",
        retention_ms=round(settings.tsdb_retention_duration * 1000),
        max_bytes=settings.tsdb_max_bytes,
    )
    try:
        restored = archive.restore(store, int(shell.clock.unix() * 1000))
    except OSError as error:
        shell.log.error("series_not_kept", reason=str(error))
        return None
    shell.log.info("series_restored", samples=restored)
    return archive


def _simulated_agent(
    settings: AgentSettings,
    fleet: "SimulatedFleet",
    node: str,
    interval_ms: int,
    announced: set[str],
    audit: AuditSink,
) -> NodeAgent:
    host = fleet.host(node)
    retention_ms = max(FLEET_WINDOW_MS, min(LONGEST_WINDOW_MS, FLEET_SAMPLES * interval_ms))
    store = SeriesStore(retention_ms=retention_ms)
    return NodeAgent(
        node,
        host,
        interval_ms=interval_ms,
        monitor=NodeMonitor(collect_interval_ms=interval_ms, store=store, with_page_cache=False),
        runner=host,
        announced=announced,
        options=_collect_options(settings),
        gates=settings.feature_gates,
        audit=audit,
        draw=random.random,
        predicting=Predicting(_predictor(settings, len(fleet.nodes))),
    )
