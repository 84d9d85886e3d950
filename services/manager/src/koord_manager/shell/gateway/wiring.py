"""Create the gateway, its client and the leader election from the settings."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from koordcore.bus.factory import Bus
from koordcore.ports.leadership import Leadership
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import LeaseUnavailable, SoleLeader, unique_holder
from koordcore.service.leader.lease_kubernetes import LeaseLeadership
from koordcore.service.leader.lease_thread import MustNotLead, OpenElection, ThreadedLeadership
from koordcore.service.run import Shell

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.resources import mirrored_resources
from koord_manager.settings import LEASE_NAME, KubernetesSettings
from koord_manager.shell.gateway.api import KubernetesApi, LeaseHttp, Unreachable, connect_api
from koord_manager.shell.gateway.metrics import GatewayMetrics
from koord_manager.shell.gateway.outbox import Writes
from koord_manager.shell.gateway.running import Gateway, GatewayContext, GatewaySettings
from koord_manager.shell.intake import FieldError, Intake, Result

S = TypeVar("S", bound=KubernetesSettings)

MOST_REFUSED = 500


async def open_api(settings: KubernetesSettings) -> KubernetesApi:
    """Return a client of the API server that the settings name.

    Raises:
        Unreachable: There are no credentials.
    """
    return await connect_api(
        settings.kubeconfig,
        context=settings.kube_context,
        qps=settings.rest_config_qps,
        burst=settings.rest_config_burst,
    )


def lease_leadership(settings: KubernetesSettings) -> Leadership:
    """Return the election with the Lease `koordinator-manager`; if it is off, this instance always leads.

    The election runs in a thread with a client of its own.
    """
    if not settings.leader_elect:
        return SoleLeader(settings.instance)
    holder, times = unique_holder(settings.instance), settings.lease_times()

    @asynccontextmanager
    async def opens(must_not_lead: MustNotLead) -> AsyncGenerator[OpenElection]:
        try:
            api = await open_api(settings)
        except Unreachable as error:
            raise LeaseUnavailable(str(error)) from error
        try:
            election = LeaseLeadership(
                namespace=settings.leader_election_namespace,
                name=LEASE_NAME,
                holder=holder,
                clock=SystemClock(),
                http=LeaseHttp(api),
                times=times,
                must_not_lead=must_not_lead,
            )
            yield OpenElection(election, asyncio.Event().wait)
        finally:
            await api.close()

    return ThreadedLeadership(holder, opens, clock=SystemClock(), stuck_seconds=settings.lease_stuck_limit)


def make_gateway(
    shell: Shell[S],
    bus: Bus,
    leadership: Leadership,
    api: KubernetesApi,
    view: ManagerView,
    folded: Callable[[int], Awaitable[None]],
    *,
    slo_config: tuple[str, str],
    other_configs: tuple[tuple[str, str], ...] = (),
    wrote: Callable[[str, str], None],
    taken: Callable[[str, float], None] | None = None,
) -> Gateway:
    """Create the gateway of this instance.

    Args:
        folded: Waits until the event at a position is folded.
        slo_config: Namespace and name of slo-controller-config.
        other_configs: Namespace and name of further ConfigMaps to mirror.
        wrote: Called for each write with its purpose and the meaning of its answer.
        taken: Called for each key that is taken from the work queue, with its controller and the seconds that it was
            ready.
    """
    settings = shell.settings
    return Gateway(
        GatewayContext(
            api=api,
            view=view,
            log=bus.events,
            observations=bus.observations,
            explanations=bus.explanations,
            leadership=leadership,
            clock=shell.clock,
            tracer=shell.tracer,
            logger=shell.log,
            actor=f"manager/{settings.instance}",
            instance=settings.instance,
            folded=folded,
            metrics=GatewayMetrics(shell.metrics.registry, wrote),
            taken=taken,
            import_grew=gc.freeze,  # else the garbage collections of an import take a tenth of its time
        ),
        gateway_settings(settings, slo_config, other_configs),
    )


def gateway_settings(
    settings: KubernetesSettings, slo_config: tuple[str, str], other_configs: tuple[tuple[str, str], ...]
) -> GatewaySettings:
    return GatewaySettings(
        resources=mirrored_resources(
            slo_config=slo_config,
            other_configs=other_configs,
            take_node_metrics=settings.take_node_metrics,
            namespace=settings.namespace,
        ),
        writes=Writes(
            node_status=settings.write_node_status,
            node_slo=settings.write_node_slo,
            node_metric=settings.write_node_metric,
            object_status=settings.write_object_status,
        ),
        condition_reasons=settings.write_condition_reasons,
        node_metric_status=settings.write_node_metric_status and not settings.take_node_metrics,
        watch_seconds=settings.watch_timeout,
        idle_seconds=settings.watch_idle,
        resync_seconds=settings.sync_period,
        sweep_seconds=settings.sweep_period,
        namespace_bytes_per_minute=settings.namespace_bytes_per_minute,
        epoch_namespace=slo_config[0],
    )


async def refuse_documents(intake: Intake) -> None:
    """Refuse every waiting and later document of `koord apply`: with Kubernetes, objects come from the API server."""
    reason = "objects of this cluster come from its API server; use kubectl"
    while works := await intake.take(MOST_REFUSED):
        for work in works:
            if not work.done.done():
                work.done.set_result(Result("failed", errors=[FieldError("", reason, "")]))
