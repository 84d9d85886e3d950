"""The composition root: the only module of the scheduler that names concrete adapters."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import Folded, FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.read.log_size import LogRoom, watch_log_size
from koordcore.bus.read.report_gate import ReportGate
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Leadership
from koordcore.service.bus import leadership_of
from koordcore.service.clock import SystemClock
from koordcore.service.component import add_bus, serve_as_component
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.telemetry.logging import set_level
from koordcore.service.web.debugging import PROFILING

from koord_scheduler.configuration import installed_makers, load_configuration
from koord_scheduler.cycle import Cycle
from koord_scheduler.domain.loop.controllers import chosen_controllers
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import schema_fingerprint
from koord_scheduler.settings import SchedulerSettings
from koord_scheduler.shell.burst import Decider
from koord_scheduler.shell.collectors import StateFigures
from koord_scheduler.shell.debugging import DebugFlags, DecisionLog
from koord_scheduler.shell.folding import StateFold, follow_reports
from koord_scheduler.shell.monitoring import Monitor
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.publishing import Publisher
from koord_scheduler.shell.questions import Questions
from koord_scheduler.shell.routes import routes

LEAST_BACKOFF: Final = 0.1
"""Least part of a back-off that has to pass on the host, if the run is accelerated."""


def backoff_stretch(clock: Clock) -> float:
    """Return the factor by which back-offs of an accelerated run are longer. They limit the work of the scheduler,
    which is not accelerated: at speed 360, a back-off of 10 s would be 28 ms.
    """
    return max(1.0, LEAST_BACKOFF / clock.real_seconds(1.0))


async def compose(shell: Shell[SchedulerSettings]) -> None:
    """Add the connection to the log, and the scheduler's tasks, pages and metrics to the service."""
    settings = shell.settings
    serve_as_component(shell, settings.plain_addresses)
    bus = add_bus(shell)
    assemble(shell, bus, leadership_of(settings, bus))


def assemble(shell: Shell[SchedulerSettings], bus: Bus, leadership: Leadership) -> Cycle:
    """Build the scheduler over any bus, and add its tasks, pages and metrics to the service. Return its main loop."""
    settings = shell.settings
    configuration = load_configuration(settings.config)
    for ignored in configuration.ignored if settings.config is not None else ():
        shell.log.warning("configuration_without_effect", path=ignored.path, why=ignored.why)
    frameworks = frameworks_of(
        configuration,
        settings.gates(),
        more=installed_makers(),
        aliases=settings.scheduler_name,
        optimisations=settings.optimisations(),
    )
    stretch = backoff_stretch(shell.clock)
    initial = settings.pod_initial_backoff or configuration.pod_initial_backoff_seconds
    longest = settings.pod_max_backoff or configuration.pod_max_backoff_seconds
    state = SchedulerState(
        frameworks,
        Settings(
            initial_backoff_seconds=stretch * initial,
            max_backoff_seconds=stretch * longest,
            controllers=chosen_controllers(
                settings.controller_plugins, {plugin.name for plugin in frameworks.controllers.values()}
            ),
            tells_topology=settings.enable_network_topology_manager,
        ),
    )
    wakeup = asyncio.Event()
    room = LogRoom()

    async def news(_fold: StateFold, _events: Sequence[Folded]) -> None:
        wakeup.set()

    metrics = SchedulerMetrics(shell.metrics.registry, [profile.scheduler_name for profile in configuration.profiles])
    fold = StateFold(state, metrics)
    runner = FoldRunner(
        "scheduler",
        bus.events,
        FoldSource(fold.fresh, fold.restore, schema_fingerprint(frameworks.cluster, frameworks.folding)),
        SystemClock(),
        snapshots=bus.snapshots,
        on_batch=news,
        metrics=shell.metrics.bus,
    )
    shell.metrics.registry.register(StateFigures(state))
    monitor = Monitor(
        clock=SystemClock(),
        metrics=metrics,
        logger=shell.log,
        period_seconds=settings.scheduler_monitor_period,
        timeout_seconds=settings.scheduling_timeout,
        profile_of=state.profile_of,
    )
    decision_log = DecisionLog(
        DebugFlags(
            top_scores=settings.debug_scores,
            filters=settings.debug_filters,
            diagnosis=settings.debug_diagnosis,
            blocking=settings.debug_diagnosis_blocking,
        ),
        frameworks,
        shell.log,
        queue_size=settings.debug_diagnosis_queue_size,
        set_level=set_level,
    )
    publisher = Publisher(
        state,
        bus.events,
        bus.explanations,
        clock=shell.clock,
        tracer=shell.tracer,
        metrics=metrics,
        monitor=monitor,
        logger=shell.log,
        actor=f"scheduler/{settings.instance}",
        epoch=lambda: term.epoch if (term := leadership.term) is not None else 0,
        changed=wakeup.set,
    )
    leadership.subscribe(lost=lambda _, __: wakeup.set())
    cycle = Cycle(
        state=state,
        fold=runner,
        log=bus.events,
        decider=Decider(
            state=state,
            publisher=publisher,
            clock=shell.clock,
            metrics=metrics,
            decision_log=decision_log,
            logger=shell.log,
        ),
        publisher=publisher,
        leadership=leadership,
        clock=shell.clock,
        logger=shell.log,
        wakeup=wakeup,
        room=room,
    )

    shell.health.add_readiness("fold", runner.trouble)
    shell.health.add_readiness("leader", lambda: None if leadership.holder else "no instance leads yet")
    shell.http.audit.publish_to(bus.audit)
    shell.http.routes.extend(PROFILING if configuration.enable_profiling else ())
    shell.http.routes.extend(
        routes(
            state,
            configuration=configuration.as_json(),
            decision_log=decision_log,
            is_leader=lambda: leadership.term is not None,
        )
    )

    async def campaign() -> None:
        """Apply for leadership once the log is folded. While it loads a snapshot, an instance would lose the lease
        anyway.
        """
        await runner.caught_up()
        await leadership.campaign()

    # Stopped in reverse: the cycle decides no more, and appends in flight are answered. Then another instance leads,
    # while this one saves a snapshot and ends its fold.
    shell.service.add(Component(name="fold", run=runner.run))
    shell.service.add(Component(name="snapshot", stop=runner.save_at_end))
    reports = partial(
        follow_reports,
        state,
        runner.caught_up,
        bus.observations,
        ReportGate(shell.clock, runner.refusals),
        wakeup.set,
    )
    shell.service.add(Component(name="reports", run=reports))
    shell.service.add(Component(name="monitor", run=monitor.run))
    if bus.connection is not None:
        size = partial(watch_log_size, bus.connection, bus.names, shell.metrics.bus, room)
        shell.service.add(Component(name="log-size", run=size))
        questions = Questions(
            state,
            fold,
            runner.trouble,
            leadership,
            clock=shell.clock,
            metrics=metrics,
            logger=shell.log,
            instance=settings.instance,
        )
        shell.service.add(
            Component(name="questions", run=partial(questions.run, bus.connection, bus.names, shell.http.audit.record))
        )
    shell.service.add(Component(name="diagnoses", run=decision_log.write_diagnoses))
    shell.service.add(Component(name="leadership", run=campaign, stop=leadership.resign))
    shell.service.add(Component(name="appends", stop=publisher.flush))
    shell.service.add(Component(name="cycle", run=cycle.run))
    return cycle
