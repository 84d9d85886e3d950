"""The composition root: the only module of the scheduler that names concrete adapters."""

import asyncio
from contextlib import AsyncExitStack

from koordcore.bus.factory import open_bus
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Leadership
from koordcore.ports.observations import ObservationLog
from koordcore.service.bus import bus_settings, kv_leadership
from koordcore.service.leadership import LeaseTimes
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.sole_leader import SoleLeader

from koord_scheduler.cycle import Cycle
from koord_scheduler.domain.profile import default_profile
from koord_scheduler.domain.state import SchedulerState, Settings
from koord_scheduler.settings import SchedulerSettings
from koord_scheduler.shell.following import Following
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.publishing import Publisher
from koord_scheduler.shell.routes import routes


async def compose(shell: Shell[SchedulerSettings]) -> None:
    """Adds the scheduler's components: the log, leadership, the follower, the cycle."""
    resources = AsyncExitStack()
    bus = await resources.enter_async_context(open_bus(bus_settings(shell.settings), metrics=shell.metrics.bus))
    leadership = (
        kv_leadership(shell.settings, bus, _lease_times(shell.settings))
        if shell.settings.leader_elect
        else SoleLeader(shell.settings.instance)
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


def _lease_times(settings: SchedulerSettings) -> LeaseTimes:
    return LeaseTimes(
        duration=settings.lease_duration, renew_deadline=settings.lease_renew_deadline, retry=settings.lease_retry
    )
