"""Settings of a service's connection to the log, and the leader election of services without Kubernetes.

Composition roots use it, and settings of services with leader election.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from koordcore.bus.client.connection import ConnectRefused, NotConnected, TlsClientFiles
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, BusSettings, open_bus
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.setup.bootstrap import ServerTooOld
from koordcore.ports.leadership import Leadership
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import LeaseTimes, LeaseUnavailable, SoleLeader, unique_holder
from koordcore.service.leader.lease_kv import KvLeadership, lease_key
from koordcore.service.leader.lease_thread import STUCK_SECONDS, MustNotLead, OpenElection, ThreadedLeadership
from koordcore.service.settings import Flag, Seconds, ServiceSettings
from koordcore.service.telemetry.logging import Logger

AWAY_SECONDS: Final = 1.0
REFUSED_SECONDS: Final = 30.0


class ElectedSettings(ServiceSettings):
    """Settings of a service with several instances, of which one leads: whether to elect, and the lease's times."""

    leader_elect: Annotated[bool, Flag("enable-leader-election")] = Field(
        True, description="Stand for election; without it this instance always leads."
    )
    lease_duration: Annotated[Seconds, Flag("leader-elect-lease-duration")] = Field(
        15.0, gt=0, description="How long others wait for a leader that does not renew, in the host's time."
    )
    lease_renew_deadline: Annotated[Seconds, Flag("leader-elect-renew-deadline")] = Field(
        10.0, gt=0, description="When a leader that could not renew stops leading, in the host's time."
    )
    lease_retry: Annotated[Seconds, Flag("leader-elect-retry-period")] = Field(
        2.0, gt=0, description="How often a leader renews and others look, in the host's time."
    )
    lease_stuck_limit: Annotated[Seconds, Flag("leader-elect-stuck-limit")] = Field(
        STUCK_SECONDS,
        gt=0,
        description="How long the work of a leader may block its event loop until it renews no more, in the host's "
        "time.",
    )

    def lease_times(self) -> LeaseTimes:
        return LeaseTimes(
            duration=self.lease_duration, renew_deadline=self.lease_renew_deadline, retry=self.lease_retry
        )


def bus_settings(settings: ServiceSettings) -> BusSettings:
    """Return the settings of a service's connection to the log. A service waits for streams that are missing."""
    tls = None
    if settings.nats_ca_file is not None:
        tls = TlsClientFiles(ca=settings.nats_ca_file, certificate=settings.nats_cert_file, key=settings.nats_key_file)
    return BusSettings(
        urls=settings.nats_urls,
        cluster=settings.cluster,
        user=settings.nats_user or settings.service,
        instance=f"{settings.service}/{settings.instance}",
        nkey_seed_file=settings.nats_seed_file,
        token_file=settings.nats_token_file,
        tls=tls,
        awaits_streams=True,
        archive=settings.archive,
    )


async def hold_bus(
    settings: ServiceSettings,
    connected: Callable[[Bus], None],
    refused: Callable[[str], None],
    *,
    metrics: BusMetrics,
    logger: Logger,
) -> None:
    """Connect to the log and keep the connection, for a process that must also work while the log is unavailable.

    The agent and the CRI proxy use it: without them, nodes are not protected and containers do not start. The call
    never returns; cancel it to close the connection. The first connection is attempted without end. The next attempt
    follows after 30 s if an operator has to act: the server is too old or refuses the client, or a file of a key or
    certificate is not usable. Otherwise, it follows after 1 s. After a success, the NATS client reconnects by itself.
    If the server closes the connection for good, for example because a key is revoked, a new one is attempted, with
    the files of keys as they are then. The call does not wait for the streams, because such a process may have no
    right to read them.

    Args:
        settings: Settings of the service: addresses of the servers, credentials, name of the cluster.
        connected: Called with the adapters of each new connection. Those of an earlier one are of no more use.
        refused: Called with the reason after each failed attempt, also if the server was only unreachable.
        metrics: Receives measurements of the bus.
        logger: Logs the reason of a failed attempt if it differs from that of the attempt before.

    Raises:
        InvalidName: The cluster id contains characters that a subject cannot have.
        PlaceTrouble: The place of the archive does not exist.
    """
    reason = ""
    while True:
        try:
            async with open_bus(replace(bus_settings(settings), awaits_streams=False), metrics=metrics) as bus:
                assert bus.connection is not None, "a bus of a server has a connection"
                connected(bus)
                reason = ""
                raise NotConnected(f"the connection was closed: {await bus.connection.closed()}")
        except (NotConnected, ConnectRefused, ServerTooOld) as error:
            refused(str(error))
            if str(error) != reason:
                reason = str(error)
                logger.warning("bus_away", reason=reason)
            await asyncio.sleep(AWAY_SECONDS if isinstance(error, NotConnected) else REFUSED_SECONDS)


def leadership_of(settings: ElectedSettings, bus: Bus) -> Leadership:
    """Return the leader election of a service, which uses a key in a KV bucket of the NATS server. If `leader_elect` is
    False, there is no election, and this instance always leads. The election runs in a thread with a connection of its
    own, and uses the host's clock. On the accelerated clock of a run, a lease would expire before its renewal.

    `settings`: settings of the service, with the times of the lease. `bus`: adapters whose connection need not be open
    yet. An election needs a server, so the log in memory does not do.
    """
    if not settings.leader_elect:
        return SoleLeader(settings.instance)
    assert bus.connection is not None, "leadership by a key needs a server"
    holder, times, bucket = unique_holder(settings.instance), settings.lease_times(), bus.names.leader_bucket
    own = replace(bus.connection.settings, name=f"{bus.connection.settings.name} lease")

    @contextlib.asynccontextmanager
    async def opens(must_not_lead: MustNotLead) -> AsyncGenerator[OpenElection]:
        try:
            connection = await connect(own)
        except (NotConnected, ConnectRefused) as error:
            raise LeaseUnavailable(str(error)) from error
        try:
            election = KvLeadership(
                connection.client.jetstream(prefix=connection.api_prefix),  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
                bucket=bucket,
                key=lease_key(settings.service),
                holder=holder,
                clock=SystemClock(),
                times=times,
                client=connection.client,
                must_not_lead=must_not_lead,
            )
            yield OpenElection(election, connection.closed)
        finally:
            await connection.drain_and_close()

    return ThreadedLeadership(holder, opens, clock=SystemClock(), stuck_seconds=settings.lease_stuck_limit)
