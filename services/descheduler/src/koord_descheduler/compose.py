"""Assemble the descheduler; no other module of it names concrete adapters."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koordcore.bus.factory import Bus
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.read.report_gate import ReportGate
from koordcore.ports.leadership import Leadership
from koordcore.service.bus import leadership_of
from koordcore.service.clock import SystemClock
from koordcore.service.component import add_bus, serve_as_component
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.web.debugging import PROFILING, VERBOSITY
from koordcore.state.index import priority_classes
from koordcore.values.yaml_text import dump_yaml
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.config.arguments import selector_or_all
from koord_descheduler.domain.config.document import API_VERSION, KIND, DeschedulerConfiguration
from koord_descheduler.domain.config.loading import decode, load
from koord_descheduler.domain.config.profiles import eviction_limits, makeable_profiles, proving_profiles
from koord_descheduler.domain.config.validation import settings_without_effect
from koord_descheduler.domain.drain.passes import drain_policy
from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.framework.registry import Registry, SharedState, installed_kinds, registry_of
from koord_descheduler.domain.jobs.controller import job_controller
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.effects import migrating_profiles
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.settings import DeschedulerSettings
from koord_descheduler.shell.commands import Commands
from koord_descheduler.shell.drain_control import DrainControl
from koord_descheduler.shell.facts import FactWriter, RoundFacts
from koord_descheduler.shell.folding import ViewFold, follow_reports, keep_views_current, view_runner, views_are_current
from koord_descheduler.shell.job_control import JobControl
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.metrics import AuditCounter, DeschedulerMetrics, FoldMetrics
from koord_descheduler.shell.object_writer import ManagerWriter, ObjectWriter
from koord_descheduler.shell.operation import OperationRecorder
from koord_descheduler.shell.rounds.deciding import RoundDecider
from koord_descheduler.shell.rounds.execution import RoundEffects, RoundExecution
from koord_descheduler.shell.rounds.proving import Prover, scheduler_on
from koord_descheduler.shell.rounds.reporting import RoundExplanations, RoundReporter

_EMPTY = f"apiVersion: {API_VERSION}\nkind: {KIND}\n".encode()


async def compose(shell: Shell[DeschedulerSettings]) -> None:
    """Add the connection to the log and all components of the descheduler to the service.

    If the settings name a file for the effective configuration, write that file and stop the service instead.

    Raises:
        ConfigurationRefused: The configuration is invalid.
        InvalidInput: An installed plugin is invalid, or has the name of another one.
        OSError: The configuration cannot be read.
    """
    registry = registry_of([*BUILT_IN.values(), *installed_kinds()])
    configuration = load_configuration(shell.settings.config, registry)
    if shell.settings.write_config_to is not None:
        shell.settings.write_config_to.write_text(dump_yaml(configuration.as_json()))
        shell.service.stop("the effective configuration is written")
        return
    written = decode(_EMPTY if shell.settings.config is None else shell.settings.config.read_bytes())
    for path, why in settings_without_effect(written, configuration):
        shell.log.warning("configuration_without_effect", path=path, why=why)
    serve_as_component(shell, shell.settings.plain_addresses_with(written, configuration))
    settings = shell.settings.with_leader_election(configuration)
    bus = add_bus(shell)
    leadership = leadership_of(settings, bus)
    rounds = assemble(shell, bus, leadership, configuration, writer_of(bus), registry)

    async def campaign() -> None:
        """Not before the log is folded and the views are built."""
        await rounds.runner.caught_up()
        await views_are_current(rounds.builder)
        await leadership.campaign()

    shell.service.add(Component(name="leadership", run=campaign, stop=leadership.resign))


def load_configuration(file: Path | None, registry: Registry) -> DeschedulerConfiguration:
    """The effective configuration of a file; without one, the defaults.

    Raises:
        ConfigurationRefused: The configuration is invalid. Its text has one line per problem.
        OSError: The file cannot be read.
    """
    return load(_EMPTY if file is None else file.read_bytes(), registry)


def writer_of(bus: Bus) -> ObjectWriter:
    """For a bus that is connected to a server."""
    assert bus.connection is not None, "a log in memory has no manager"
    return ManagerWriter(bus.connection, bus.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What most components of the descheduler need."""

    shell: Shell[DeschedulerSettings]
    bus: Bus
    configuration: DeschedulerConfiguration
    registry: Registry
    builder: ViewBuilder
    leading: Leading
    facts: FactWriter
    effects: RoundEffects
    metrics: DeschedulerMetrics
    actor: str  # name of this instance in the facts that it writes
    shared: SharedState
    drains_wanted: asyncio.Event

    def with_priorities(self) -> SharedState:
        """The state that plugins share, with the PriorityClasses of this moment."""
        self.shared.priority_classes = priority_classes(self.builder.state)
        return self.shared


def assemble(
    shell: Shell[DeschedulerSettings],
    bus: Bus,
    leadership: Leadership,
    configuration: DeschedulerConfiguration,
    writer: ObjectWriter,
    registry: Registry = BUILT_IN,
) -> Rounds:
    """Add fold, reports, rounds, jobs, drains and pages of the descheduler to a service, and return its main loop."""
    builder = ViewBuilder(replaces_priority=shell.settings.feature_gates.enabled("PriorityTransformer"))
    metrics = DeschedulerMetrics(shell.metrics.registry, builder, SystemClock())
    shell.metrics.registry.register(FoldMetrics(builder))
    audit = AuditCounter(leadership, metrics)
    runner = view_runner(builder, bus, shell.metrics.bus, audit)
    leading = Leading(leadership, runner, bus.events, shell.log)
    leading.at_each_beginning(audit.begin)
    actor = f"descheduler/{shell.settings.instance}"
    facts = FactWriter(builder, leading, bus.events, shell.clock, shell.log, actor)
    effects = RoundEffects(
        leading=leading,
        facts=facts,
        writer=writer,
        migrating=migrating_profiles(configuration, registry),
        installation=shell.settings.cluster,
        logger=shell.log,
    )
    parts = _Parts(
        shell=shell,
        bus=bus,
        configuration=configuration,
        registry=registry,
        builder=builder,
        leading=leading,
        facts=facts,
        effects=effects,
        metrics=metrics,
        actor=actor,
        shared=SharedState(interval=configuration.descheduling_interval),
        drains_wanted=asyncio.Event(),
    )
    rounds, jobs, drains = _rounds(parts, runner), _jobs(parts), _drains(parts)
    leading.at_each_beginning(jobs.begin)

    async def reports() -> None:
        await runner.caught_up()
        await follow_reports(builder, bus.observations, ReportGate(shell.clock, runner.refusals))

    shell.health.add_readiness("fold", runner.trouble)
    _add_pages(shell, bus, configuration)
    # Stopped in reverse: first no more rounds, at last the fold.
    shell.service.add(Component(name="fold", run=runner.run))
    shell.service.add(Component(name="snapshot", stop=runner.save_at_end))
    shell.service.add(Component(name="reports", run=reports))
    shell.service.add(Component(name="rounds", run=rounds.run))
    operation = OperationRecorder(builder, leading, facts, configuration, shell.settings.config)
    after_the_fold = {
        "views": lambda: keep_views_current(builder, shell.log),
        "jobs": jobs.run,
        "drains": drains.run,
        "operation": operation.run,
    }
    if bus.connection is not None:
        commands = Commands(
            bus.connection,
            bus.names,
            run_round=rounds.run_now,
            builder=builder,
            writer=writer,
            leading=leading,
            operation=operation,
            configuration=configuration,
            registry=registry,
            clock=shell.clock,
            logger=shell.log,
            audit=shell.http.audit.record,
        )
        after_the_fold["commands"] = commands.run
    for name, run in after_the_fold.items():
        shell.service.add(Component(name=name, run=_after(runner.caught_up, run)))
    return rounds


def _rounds(parts: _Parts, runner: FoldRunner[ViewFold]) -> Rounds:
    shell, bus, configuration = parts.shell, parts.bus, parts.configuration
    facts = RoundFacts(builder=parts.builder, leading=parts.leading, writer=parts.facts)
    limiter = EvictionLimiter(eviction_limits(configuration))
    question = None if bus.connection is None else scheduler_on(bus.connection, bus.names)
    decider = RoundDecider(
        builder=parts.builder,
        facts=facts,
        effects=parts.effects,
        clock=shell.clock,
        logger=shell.log,
        metrics=parts.metrics,
        shared=parts.shared,
        nodes=selector_or_all(configuration.node_selector),
        limiter=limiter,
        prover=Prover(proving_profiles(configuration), question, shell.log),
        watch=shell.health.watch_work("round", shell.clock.real_seconds(configuration.descheduling_interval)),
        is_dry_run=configuration.dry_run,
    )
    execution = RoundExecution(
        builder=parts.builder,
        facts=facts,
        effects=parts.effects,
        clock=shell.clock,
        logger=shell.log,
        drains_wanted=parts.drains_wanted,
    )
    reporter = RoundReporter(
        facts=facts,
        explanations=RoundExplanations(bus.explanations, shell.clock, parts.actor),
        metrics=parts.metrics,
        logger=shell.log,
        limiter=limiter,
        is_dry_run=configuration.dry_run,
    )
    return Rounds(
        builder=parts.builder,
        runner=runner,
        leading=parts.leading,
        clock=shell.clock,
        logger=shell.log,
        interval=configuration.descheduling_interval,
        make=lambda: makeable_profiles(configuration, parts.registry, parts.with_priorities()),
        facts=facts,
        decider=decider,
        execution=execution,
        reporter=reporter,
    )


def _jobs(parts: _Parts) -> JobControl:
    shell = parts.shell
    return JobControl(
        builder=parts.builder,
        leading=parts.leading,
        facts=parts.facts,
        clock=shell.clock,
        logger=shell.log,
        metrics=parts.metrics,
        writer=parts.effects.writer,
        make=lambda: job_controller(
            parts.configuration, parts.registry, parts.with_priorities(), parts.effects.installation
        ),
        without_claims=shell.settings.feature_gates.enabled("DisablePVCReservation"),
    )


def _drains(parts: _Parts) -> DrainControl:
    shell = parts.shell
    return DrainControl(
        builder=parts.builder,
        leading=parts.leading,
        log=parts.bus.events,
        clock=shell.clock,
        logger=shell.log,
        actor=parts.actor,
        writer=parts.effects.writer,
        make_policy=lambda: drain_policy(parts.configuration, parts.registry, parts.with_priorities()),
        wanted=parts.drains_wanted,
    )


def _add_pages(shell: Shell[DeschedulerSettings], bus: Bus, configuration: DeschedulerConfiguration) -> None:
    async def show(_: Request) -> JSONResponse:
        return JSONResponse(configuration.as_json())

    shell.http.audit.publish_to(bus.audit)
    profiling = PROFILING if configuration.enable_profiling else ()
    shell.http.routes.extend((Route("/configz", show), VERBOSITY, *profiling))


def _after(
    first: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], Coroutine[Any, Any, None]]
) -> Callable[[], Coroutine[Any, Any, None]]:
    async def both() -> None:
        await first()
        await then()

    return both
