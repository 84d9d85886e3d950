"""Assemble the manager; no other module of it names concrete adapters."""

import random
import uuid
from functools import partial
from importlib.metadata import version

from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import Folded
from koordcore.bus.read.log_size import LogRoom, watch_log_size
from koordcore.bus.read.report_gate import ReportGate
from koordcore.ports.leadership import Leadership
from koordcore.service.bus import leadership_of
from koordcore.service.clock import SystemClock
from koordcore.service.component import add_bus
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.web.debugging import PROFILING
from koordcore.state.aggregates import NamespaceState
from koordcore.values.timestamps import rfc3339

from koord_manager.cycle import run_cycles
from koord_manager.domain.admission.concerned import changes_concern
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import COLOCATION_PROFILE, CONTROLLERS, PLUGINS, enabled_of
from koord_manager.domain.controllers.colocation_profiles import ProfileUpdates
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.domain.controllers.quota_profiles import QuotaProfileController
from koord_manager.domain.controllers.recommender.apply import apply_to_new_pod
from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.registry import Controllers
from koord_manager.settings import (
    ManagerSettings,
    admission_options,
    config_names,
    mirrored_configs,
    node_quota,
    recommender_settings,
)
from koord_manager.shell.colocation_profiles import run_profile_controller
from koord_manager.shell.context import ManagerContext, TermState
from koord_manager.shell.controller_metrics import ControllerMetrics, QueueMetrics
from koord_manager.shell.documents.api import ManagerApi
from koord_manager.shell.documents.object_changes import ObjectChanges
from koord_manager.shell.documents.processing import serve_documents
from koord_manager.shell.folding import follow_reports, view_runner
from koord_manager.shell.gateway.api import KubernetesApi
from koord_manager.shell.gateway.running import Gateway
from koord_manager.shell.gateway.wiring import lease_leadership, make_gateway, open_api, refuse_documents
from koord_manager.shell.intake import Intake
from koord_manager.shell.node_facts import take_in_node_facts
from koord_manager.shell.ports import add_ports
from koord_manager.shell.recommender_history import keep_checkpoints, recall
from koord_manager.shell.refused_messages import tell_refusals
from koord_manager.shell.webhooks.certificates import WebhookEnvironment
from koord_manager.shell.webhooks.server import Webhooks, add_webhooks, are_wanted


async def compose(shell: Shell[ManagerSettings]) -> None:
    """Read the settings, and add the connection to the log and all components of the manager to the service."""
    settings = shell.settings
    api = await open_api(settings) if settings.with_kubernetes else None
    if api is not None:
        shell.service.add(Component(name="kubernetes", close=api.close))
    bus = add_bus(shell)
    leadership = lease_leadership(settings) if api is not None else leadership_of(settings, bus)
    add_ports(shell, leadership)
    assemble(shell, bus, leadership, api)


def is_mirrored(view: ManagerView) -> bool:
    """Return whether the log contains the objects of an API server: at least one namespace, which every API server has.

    Until then, admission has no cluster state to decide on, so the webhooks are not ready.
    """
    return bool(view.state.of_kind(NamespaceState))


def assemble(
    shell: Shell[ManagerSettings],
    bus: Bus,
    leadership: Leadership,
    api: KubernetesApi | None = None,
    *,
    webhooks: WebhookEnvironment | None = None,
) -> Webhooks | None:
    """Add the fold, the loops and the HTTP API of the manager to a service.

    Args:
        api: API server whose objects are mirrored, or None if objects come by `koord apply`.
        webhooks: Where and with which certificate webhooks are served. If None, the environment variables of the
            process decide.

    Returns:
        The webhook server, or None if the settings switch webhooks off.
    """
    settings = shell.settings
    view = ManagerView(config_names=config_names(settings))
    gateways: list[Gateway] = []
    added: Webhooks | None = None

    async def news(events: list[Folded]) -> None:
        for gateway in gateways:
            await gateway.news(events)
        if added is not None and any(changes_concern(item.stored.ref) for item in events):
            added.keeper.wake()

    runner = view_runner(view, bus, news, shell.metrics.bus)
    room = LogRoom()
    intake = Intake(room=room)

    def halted() -> str | None:
        return str(runner.halted) if runner.halted else None

    async def folded(seq: int) -> str | None:
        halt = await runner.reached_or_halted(seq)
        return None if halt is None else str(halt)

    options = admission_options(settings)
    metrics = ControllerMetrics(shell.metrics.registry, writes_objects=api is not None)
    plugins = enabled_of(PLUGINS, settings.noderesource_plugins)
    metrics.set_up(sorted(plugins))
    queue_metrics = QueueMetrics(shell.metrics.registry)
    queue_metrics.add(lambda: view.queue)
    view.queue.on_take = queue_metrics.taken
    context = ManagerContext(
        view=view,
        intake=intake,
        log=bus.events,
        desired=bus.desired,
        clock=shell.clock,
        leadership=leadership,
        tracer=shell.tracer,
        logger=shell.log,
        actor=f"manager/{settings.instance}",
        folded=folded,
        halted=halted,
        new_uid=lambda: str(uuid.uuid4()),
        control_seconds=settings.control_interval,
        desired_seconds=settings.desired_interval,
        term_state=TermState(),
        conflict_pause=lambda: random.uniform(0.005, 0.05),  # noqa: S311 - jitter, not a secret
        options=options,
        explanations=bus.explanations,
        standalone=api is None,
        metrics=metrics,
        is_importing=lambda: any(gateway.importing is not None for gateway in gateways),
    )
    controllers = Controllers(
        enabled=enabled_of(CONTROLLERS, settings.controllers),
        policies=NodePolicies(
            sync_shared_gpus=options.enabled("EnableSyncGPUSharedResource"),
            plugins=plugins,
        ),
        quotas=QuotaProfileController(keeps_objects=api is None),
        recommender=RecommenderController(RecommenderBook(recommender_settings(settings)), can_resize=api is not None),
    )
    book = controllers.recommender.book
    apply = partial(apply_to_new_pod, view, book.targets)
    view.recommend_with(partial(apply, tells_usage=options.recommended_usage, boosts=options.startup_boost))

    async def observe() -> None:
        await runner.caught_up()
        gate = ReportGate(shell.clock, runner.refusals)
        await recall(controllers.recommender, view, bus.snapshots, bus.observations, gate, shell.log)
        await follow_reports(view, book, bus.observations, gate, shell.log)

    async def checkpoints() -> None:
        await runner.caught_up()
        await keep_checkpoints(
            controllers.recommender,
            bus.snapshots,
            lambda: leadership.term is not None,
            lambda: rfc3339(shell.clock.now()),
            shell.log,
            code_version=version("koord-manager"),
        )

    async def campaign() -> None:
        """Apply for leadership, but not before the log is folded."""
        await runner.caught_up()
        await leadership.campaign()

    async def control() -> None:
        await runner.caught_up()
        await run_cycles(context, controllers)

    shell.health.add_readiness("fold", runner.trouble)
    shell.http.audit.publish_to(bus.audit)
    shell.http.routes.extend(PROFILING if settings.enable_pprof else ())
    shell.http.routes.extend(ManagerApi(view, intake, leadership, standalone=api is None).routes())
    # Stopped in reverse: first no more documents, then the control rounds. Then another instance leads, while this one
    # saves a snapshot and ends its fold.
    shell.service.add(Component(name="fold", run=runner.run))
    shell.service.add(Component(name="snapshot", stop=runner.save_at_end))
    shell.service.add(Component(name="reports", run=observe))
    shell.service.add(Component(name="recommender-checkpoints", run=checkpoints))
    shell.service.add(Component(name="leadership", run=campaign, stop=leadership.resign))
    shell.service.add(Component(name="control", run=control))
    shell.service.add(
        Component(
            name="refusals",
            run=lambda: tell_refusals(
                runner.refusals, bus.explanations, shell.clock, context.actor, lambda: leadership.term is not None
            ),
        )
    )
    if COLOCATION_PROFILE in controllers.enabled and options.enabled("ColocationProfileController"):

        async def profiles() -> None:
            await runner.caught_up()
            updates = ProfileUpdates(
                force_update=settings.colocation_profile_force_update_pod_duration,
                forget=settings.colocation_profile_expire_pod_cache_duration,
                qps=settings.colocation_profile_update_pod_qps,
                burst=settings.colocation_profile_update_pod_qps_burst,
            )
            await run_profile_controller(
                context,
                updates,
                api,
                SystemClock().monotonic,
                interval=settings.colocation_profile_reconcile_interval,
                by_default=settings.colocation_profile_reconcile_by_default,
            )

        shell.service.add(Component(name="profiles", run=profiles))
    if are_wanted(settings, options, api):
        added = add_webhooks(
            shell,
            bus,
            view,
            options,
            api,
            unready=lambda: None if runner.is_caught_up else "the log is not folded yet",
            leads=lambda: leadership.term is not None,
            environment=webhooks,
        )
    if bus.connection is not None:
        changes = ObjectChanges(view, intake, leadership, api)
        shell.service.add(
            Component(
                name="object-changes", run=partial(changes.run, bus.connection, bus.names, shell.http.audit.record)
            )
        )
        size = partial(watch_log_size, bus.connection, bus.names, shell.metrics.bus, room)
        shell.service.add(Component(name="log-size", run=size))
        intake_of_nodes = partial(take_in_node_facts, bus, shell.clock, room, runner.refusals, node_quota(settings))
        shell.service.add(Component(name="node-facts", run=intake_of_nodes))
    if api is None:
        # documents are taken by the leader only; webhooks answer whoever leads
        shell.health.add_readiness("leader", lambda: None if leadership.holder else "no instance leads yet")
        shell.service.add(Component(name="documents", run=lambda: serve_documents(context), stop=intake.close))
        return added
    slo_config, *other_configs = mirrored_configs(settings)
    gateway = make_gateway(
        shell,
        bus,
        leadership,
        api,
        view,
        runner.reached,
        slo_config=slo_config,
        other_configs=tuple(other_configs),
        wrote=metrics.wrote,
        taken=queue_metrics.taken,
    )
    queue_metrics.add(lambda: gateway.queue)
    gateways.append(gateway)

    async def mirror() -> None:
        await runner.caught_up()
        await gateway.run()

    shell.health.add_readiness("epoch", lambda: gateway.outdated)
    shell.health.add_readiness(
        "mirror", lambda: gateway.importing or (None if is_mirrored(view) else "nothing has been mirrored yet")
    )
    shell.service.add(Component(name="gateway", run=mirror))
    shell.service.add(Component(name="documents", run=lambda: refuse_documents(intake), stop=intake.close))
    return added
