"""From a service's settings to its bus: how it reaches the log, and how it stands for election without Kubernetes.

Imported by composition roots only.
"""

from koordcore.bus.connection import TlsClientFiles
from koordcore.bus.factory import Bus, BusSettings
from koordcore.service.clock import SystemClock
from koordcore.service.leadership import KvLeadership, LeaseTimes, unique_holder
from koordcore.service.settings import ServiceSettings


def bus_settings(settings: ServiceSettings) -> BusSettings:
    """How the service reaches the log; its principal is the service's name."""
    tls = None
    if settings.nats_ca_file is not None:
        tls = TlsClientFiles(ca=settings.nats_ca_file, certificate=settings.nats_cert_file, key=settings.nats_key_file)
    return BusSettings(
        urls=settings.nats_urls,
        cluster=settings.cluster,
        user=settings.service,
        instance=f"{settings.service}/{settings.instance}",
        nkey_seed_file=settings.nats_seed_file,
        tls=tls,
    )


def kv_leadership(settings: ServiceSettings, bus: Bus, times: LeaseTimes) -> KvLeadership:
    """Election among the instances of the service, in the host's time: a scaled clock would renew too rarely."""
    assert bus.connection is not None, "leadership by a key needs a server"
    return KvLeadership(
        bus.connection.client.jetstream(),  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
        bucket=bus.names.leader_bucket,
        key=f"leader.{settings.service}",
        holder=unique_holder(settings.instance),
        clock=SystemClock(),
        times=times,
    )
