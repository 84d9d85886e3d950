"""The composition root of the agent: it chooses the adapters and the order in which components start and stop.

`compose_node` creates the agent of a node, `compose_machine` what follows a real machine: kubelet, cgroups, hooks.
"""

import asyncio
import math
import os
import random
import time
import uuid
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.factory import Bus
from koordcore.bus.setup.manifest import agent_name
from koordcore.bus.write.own_facts import OwnFactLog
from koordcore.service.bus import hold_bus
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.values.timestamps import rfc3339

from koord_agent.compose_machine import (
    answer_nri,
    follow_machine,
    hook_answers,
    publish_hook_facts,
    serve_hooks,
    serve_pod_resources,
    serve_proxy_facts,
)
from koord_agent.compose_node import linux_agent, simulated_agent
from koord_agent.cycle import Cycle, NodeCycles
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.gates import AUDIT_EVENTS, AUDIT_EVENTS_HTTP, NODE_METRIC_PROM_METRICS, PER_CPU_METRIC
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.bus.desired_state import DesiredStates
from koord_agent.shell.bus.fact_publisher import FactPublisher, Outbox
from koord_agent.shell.bus.report_publisher import ReportPublisher
from koord_agent.shell.extending.extension_controllers import controller_components
from koord_agent.shell.extending.extension_threads import ThreadGuard
from koord_agent.shell.extending.installed import extension_routes, installed_extensions
from koord_agent.shell.metrics.agent_metrics import (
    MOST_NODES,
    AgentMetrics,
    ExtensionFailures,
    ProblemLog,
    metrics_routes,
)
from koord_agent.shell.metrics.node_series import NodeSeries
from koord_agent.shell.store.audit_log import AuditLog, AuditQueries, AuditSink, audit_routes, no_audit
from koord_agent.shell.store.local_store import DesiredSaver, LocalStore
from koord_agent.simulator.nodes import read_nodes, shard_of

if TYPE_CHECKING:
    from koord_agent.simulator.host import SimulatedFleet

LINUX_CYCLE_SECONDS = 1.0
SIMULATED_CYCLE_SECONDS = 2.0
FLUSH_SECONDS = 5.0


def audit_log_of(shell: Shell[AgentSettings]) -> AuditLog | None:
    """None if its gates are off or its folder is not writable. It also adds the log's route."""
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


def audit_sink(log: AuditLog, shell: Shell[AgentSettings]) -> AuditSink:
    """Events get the time of the service's clock."""

    def write(event: AuditEvent, verbosity: int) -> None:
        log.write(msgspec.structs.replace(event, created_at=rfc3339(shell.clock.now())), verbosity, time.monotonic())

    return write


async def compose(shell: Shell[AgentSettings]) -> None:
    """Connect to the bus and assemble the agent. The bus may answer later; the agent starts without it."""
    link = BusLink()
    shell.health.add_readiness("bus", link.trouble)

    def connect(bus: Bus) -> None:
        connection = bus.connection
        assert connection is not None, "a bus of a server has a connection"
        link.connect(
            Ports(
                facts=OwnFactLog(connection, bus.names, metrics=shell.metrics.bus),
                reports=bus.observations,
                desired=bus.desired,
                pushes=bus.pushes,
            ),
            is_connected=partial(_is_connected, connection),
        )

    # The agents enforce what they were told last; so the connection may take as long as it likes.
    settings = _as_user_of_node(shell.settings)
    hold = partial(hold_bus, settings, connect, link.refuse, metrics=shell.metrics.bus, logger=shell.log)
    shell.service.add(Component(name="bus", run=hold))
    assemble(shell, link)


def assemble(shell: Shell[AgentSettings], link: BusLink) -> Cycle:
    """Add all parts of the agent, over a connection to any bus, to the service, and return the main loop.

    Raises:
        InvalidInput: A setting or the nodes file is malformed.
        OSError: The nodes file or the machine cannot be read.
    """
    settings, clock = shell.settings, shell.clock
    fleet = _fleet(settings, clock.unix())
    for note in settings.notes:
        shell.log.warning("flag_translated", note=note)
    of_machine = max(settings.collect_res_used_interval, LINUX_CYCLE_SECONDS)
    cycle_seconds = settings.cycle_seconds or (of_machine if fleet is None else SIMULATED_CYCLE_SECONDS)
    real_second = clock.real_seconds(1.0)
    interval_ms = round(1000 * (cycle_seconds / real_second if math.isfinite(real_second) else cycle_seconds))
    store = LocalStore(settings.state_dir)
    if store.set_aside is not None:
        shell.log.warning("state_set_aside", file=str(store.set_aside))
    if store.unusable:
        shell.log.error("state_not_stored", reason=store.unusable)
    announced = store.announced()
    audit_log = audit_log_of(shell)
    audit = no_audit if audit_log is None else audit_sink(audit_log, shell)
    name = node_name(settings, os.environ)
    said = store.topologies()
    if fleet is None:
        extensions = installed_extensions(shell.log, settings.qos_extension_plugins)
        extensions.guard = ThreadGuard()
        shell.metrics.registry.register(ExtensionFailures(extensions.failures))
        shell.http.routes.extend(extension_routes(extensions, shell.log))
        known = announced.get(name, set[str]())
        agents = {name: linux_agent(shell, name, interval_ms, known, audit, said=said, extensions=extensions)}
        for controller in controller_components(extensions, shell.log):
            shell.service.add(controller)
    else:
        agents = {
            node.name: simulated_agent(
                settings, fleet, node.name, interval_ms, announced.get(node.name, set()), audit, said=said
            )
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
    wanted, problems = store.desired(int(clock.unix() * 1000), settings.desired_max_age * 1000)
    for problem in problems:
        shell.log.warning("stored_desired_refused", reason=problem)
    states.restore(wanted)
    outbox = Outbox(store, link, limit=settings.outbox_facts, logger=shell.log)
    metrics = AgentMetrics(shell.metrics.registry, len(agents))
    metrics.watch(lambda: len(outbox), lambda: outbox.dropped, lambda: outbox.left_out)
    if len(agents) <= MOST_NODES:
        reported = settings.feature_gates.enabled(NODE_METRIC_PROM_METRICS)
        per_cpu = settings.feature_gates.enabled(PER_CPU_METRIC)
        shell.metrics.registry.register(NodeSeries(agents.values, reported=reported, per_cpu=per_cpu))
    shell.http.routes.extend(metrics_routes(shell.metrics.registry))
    if settings.enable_pprof:
        from koordcore.service.web.debugging import PROFILING

        shell.http.routes.extend(PROFILING)
    facts = FactPublisher(
        outbox=outbox,
        states=states,
        tracer=shell.tracer,
        clock=clock,
        logger=shell.log,
        start_id=str(uuid.uuid4()),
        refused=lambda node, fact: agents[node].pods.not_said((fact,)),
    )
    problem_log = ProblemLog(logger=shell.log, metrics=metrics)
    cycle = Cycle(
        agents=agents,
        nodes=NodeCycles(
            agents=agents,
            is_simulated=fleet is not None,
            facts=facts,
            problems=problem_log,
            metrics=metrics,
            logger=shell.log,
        ),
        advance=None if fleet is None else fleet.advance,
        states=states,
        facts=facts,
        reports=ReportPublisher(
            link=link,
            facts=facts,
            is_on=settings.enable_node_metric_report,
            problems=problem_log,
            in_thread=fleet is None,
        ),
        problems=problem_log,
        saver=DesiredSaver(store=store, unsaved=states.unsaved, not_saved=states.not_saved, logger=shell.log),
        audit=audit_log,
        clock=clock,
        metrics=metrics,
        logger=shell.log,
        cycle_seconds=cycle_seconds,
        version=version("koord-agent"),
        changed=changed,
        wakeup=wakeup,
        watch=shell.health.watch_work("cycle", cycle_seconds),
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
        try:
            if audit_log is not None:
                audit_log.close()
        finally:
            store.close()

    if fleet is None:
        follow_machine(shell, agents[name], change)
        serve_pod_resources(shell, agents[name])
        serve_proxy_facts(shell, name, link)
    else:
        from koord_agent.simulator.routes import simulation_routes

        shell.http.routes.extend(simulation_routes(fleet))
    shell.health.add_readiness("desired", looked_at_all)
    # Stopped in reverse: no more cycles, no more changes, then what is left to say is said.
    shell.service.add(Component(name="local-store", close=close))
    shell.service.add(Component(name="outbox", run=outbox.run))
    shell.service.add(Component(name="outbox-flush", stop=flush))
    shell.service.add(Component(name="farewell", stop=farewell))
    if fleet is None:
        answers = hook_answers(shell, agents[name], audit)
        publish_hook_facts(shell, agents[name], answers, facts)
        serve_hooks(shell, answers)
        answer_nri(shell, answers)
    shell.service.add(Component(name="desired", run=states.run))
    shell.service.add(Component(name="cycle", run=cycle.run))
    return cycle


def _is_connected(connection: BusConnection) -> bool:
    return connection.is_connected


def _as_user_of_node(settings: AgentSettings) -> AgentSettings:
    """The issuer of credentials gives the user of the node to an agent with a token."""
    if settings.nats_token_file is None or settings.nats_user:
        return settings
    return settings.model_copy(update={"nats_user": agent_name(node_name(settings, os.environ))})


def node_name(settings: AgentSettings, environ: Mapping[str, str]) -> str:
    """The flag --node, else the variable NODE_NAME, else the host name."""
    return settings.node_name or environ.get("NODE_NAME", "") or os.uname().nodename.lower()


def _fleet(settings: AgentSettings, now: float) -> "SimulatedFleet | None":
    file = settings.simulated_nodes_file
    if settings.host_mode == "linux" or (settings.host_mode == "auto" and file is None):
        return None
    if file is None:
        raise ValueError("simulated_nodes_file: needed with host_mode=simulated")
    # the arrays that it brings along are 15 MiB that a real node keeps for its pods
    from koord_agent.simulator.host import SimulatedFleet

    return SimulatedFleet(shard_of(read_nodes(file), settings.shard), start_seconds=now)
