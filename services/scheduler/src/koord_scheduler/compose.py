"""The composition root: the only module of the scheduler that names concrete adapters."""

import asyncio
from contextlib import AsyncExitStack

from koordcore.bus.connection import TlsClientFiles
from koordcore.bus.factory import Bus, BusSettings, open_bus
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Leadership
from koordcore.ports.observations import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.leadership import KvLeadership, LeaseTimes, unique_holder
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_scheduler.cycle import Cycle
from koord_scheduler.domain.profile import default_profile
from koord_scheduler.domain.state import SchedulerState, Settings
from koord_scheduler.settings import SchedulerSettings
from koord_scheduler.shell.following import Following
from koord_scheduler.shell.leading import SoleLeader
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.publishing import Publisher
from koord_scheduler.shell.routes import routes


async def compose(shell: Shell[SchedulerSettings]) -> None:
    """Adds the scheduler's components: the log, leadership, the follower, the cycle."""
    resources = AsyncExitStack()
    bus = await resources.enter_async_context(open_bus(bus_settings(shell.settings), metrics=shell.metrics.bus))
    leadership = (
        kv_leadership(shell.settings, bus) if shell.settings.leader_elect else SoleLeader(shell.settings.instance)
    )
    shell.service.add(Component(name="bus", close=resources.aclose))
    shell.service.add(Component(name="leadership", run=leadership.campaign, stop=leadership.resign))
    assemble(shell, bus.events, bus.verdicts, leadership)


def assemble(shell: Shell[SchedulerSettings], log: EventLog, verdicts: ObservationLog, leadership: Leadership) -> Cycle:
    """The scheduler over any log: adds its follower and its cycle to the service, and its pages to the server."""
    settings = shell.settings
    state = SchedulerState(
        default_profile(),
        Settings(
            scheduler_names=settings.names(),
            initial_backoff_seconds=settings.pod_initial_backoff,
            max_backoff_seconds=settings.pod_max_backoff,
        ),
    )
    wakeup = asyncio.Event()
    metrics = SchedulerMetrics(shell.metrics.registry, settings.scheduler_name[0])
    metrics.watch(state.queue)
    following = Following(
        state,
        log,
        ready=shell.health.readiness_condition("follower", "has not folded the log yet"),
        metrics=shell.metrics.bus,
        logger=shell.log,
        changed=wakeup.set,
    )
    publisher = Publisher(
        state,
        log,
        verdicts,
        clock=shell.clock,
        tracer=shell.tracer,
        metrics=metrics,
        logger=shell.log,
        actor=f"scheduler/{settings.instance}",
        epoch=lambda: term.epoch if (term := leadership.term) is not None else 0,
        changed=wakeup.set,
    )
    leadership.subscribe(acquired=lambda _: wakeup.set(), lost=lambda _, __: wakeup.set())
    cycle = Cycle(
        state=state,
        following=following,
        publisher=publisher,
        leadership=leadership,
        clock=shell.clock,
        metrics=metrics,
        logger=shell.log,
        wakeup=wakeup,
    )
    shell.http.routes.extend(routes(state))
    # Stopped in reverse: the cycle decides no more, appends in flight are answered, then the follower ends.
    shell.service.add(Component(name="follower", run=following.run))
    shell.service.add(Component(name="appends", stop=publisher.flush))
    shell.service.add(Component(name="cycle", run=cycle.run))
    return cycle


def bus_settings(settings: SchedulerSettings) -> BusSettings:
    """How to reach the log."""
    tls = None
    if settings.nats_ca_file is not None:
        tls = TlsClientFiles(ca=settings.nats_ca_file, certificate=settings.nats_cert_file, key=settings.nats_key_file)
    return BusSettings(
        urls=settings.nats_urls,
        cluster=settings.cluster,
        user="scheduler",
        instance=f"scheduler/{settings.instance}",
        nkey_seed_file=settings.nats_seed_file,
        tls=tls,
    )


def kv_leadership(settings: SchedulerSettings, bus: Bus) -> KvLeadership:
    """Election among the schedulers of the cluster, in the host's time."""
    assert bus.connection is not None, "leadership by a key needs a server"
    return KvLeadership(
        bus.connection.client.jetstream(),  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
        bucket=bus.names.leader_bucket,
        key="leader.scheduler",
        holder=unique_holder(settings.instance),
        clock=SystemClock(),
        times=LeaseTimes(
            duration=settings.lease_duration,
            renew_deadline=settings.lease_renew_deadline,
            retry=settings.lease_retry,
        ),
    )
