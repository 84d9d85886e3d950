"""The state of leader election: the holder of each lease, and in the embedded stack whether its process still runs.

The leases are in a KV bucket of the log. In a stack with an API server, the manager's is a Lease object there.

A killed process holds its lease until the lease expires. Until then the `/readyz` of its replacement already says
ready, because some instance holds the lease, although no instance decides.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from koordcore.embedded.identity import is_alive, running_seconds
from koordcore.embedded.stack import ProcessStatus, Stack
from koordcore.service.leader.lease import LeaseRecord, LeaseTimes, LeaseUnavailable
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import LEADER_SECONDS, LogTrouble, ask, find_service, named_addresses, refusal
from koordctl.access.log import open_log
from koordctl.render.units import duration_text, time_text

if TYPE_CHECKING:
    from koordcore.service.leader.lease_kubernetes import KubernetesLeaseStore

MANAGER: Final = "manager"
LED: Final = (MANAGER, "scheduler")
"""Services of which one instance leads."""
_CLOCK_SECONDS: Final = 1.0
"""Tolerance for the start time of a process."""


class Leading(NamedTuple):
    """Whether one service has a running leader (`leads`), and a sentence for the user that explains it."""

    leads: bool
    sentence: str


def judge_lease(service: str, record: LeaseRecord | None, holder_began_at: float | None, now: float) -> Leading:
    """Whether a service has a running leader.

    It has one if its lease has a holder, the holder's process runs and is not younger than the lease, and the lease was
    renewed within the renew deadline.

    Args:
        record: The lease. None or a lease without a holder means that it was released or has expired.
        holder_began_at: Unix seconds at which the process with the holder's name started; None if no such process runs.
        now: Host time in Unix seconds; leases use this clock.
    """
    if record is None or not record.holder:
        return Leading(False, f"{service}: no leader (no lease is held)")
    gone = holder_began_at is None or record.acquired_at_unix < holder_began_at - _CLOCK_SECONDS
    late = now - record.renewed_at_unix >= LeaseTimes().renew_deadline
    if not gone and not late:
        for_long = duration_text(max(now - record.acquired_at_unix, 0.0))
        since = time_text(f"{rfc3339(datetime.fromtimestamp(record.acquired_at_unix, UTC))[:19]}Z")
        return Leading(True, f"{service}: {record.holder} leads since {since} ({for_long})")
    left = record.renewed_at_unix + record.duration_seconds - now
    lease = f"lease expires in {duration_text(left)}" if left > 0 else "lease has expired"
    return Leading(False, f"{service}: no leader (the previous leader's {lease})")


async def leaders(
    stack: Stack, var: Path, now: float, lease_object: "KubernetesLeaseStore | None" = None
) -> list[Leading]:
    """Return for each service that elects a leader whether it has one.

    If the leases cannot be read, the list has one entry with the reason.

    Args:
        now: Host time in Unix seconds.
        lease_object: The manager's lease in a stack with an API server; None: it is in the log.
    """
    in_log = LED if lease_object is None else tuple(name for name in LED if name != MANAGER)
    records: dict[str, LeaseRecord | None] = {}
    try:
        if lease_object is not None:
            records[MANAGER] = (await lease_object.read()).record
        records |= await leases_in_log(in_log, var)
    except (LogTrouble, LeaseUnavailable) as error:
        return [Leading(False, f"the leases cannot be read: {error}")]
    return [
        judge_lease(service, record, _began_at(record, stack.processes, now), now)
        for service, record in records.items()
    ]


async def leaders_elsewhere(now: float) -> list[Leading]:
    """`leaders` for the services that KOORD_MANAGER and KOORD_SCHEDULER name. Their processes are not looked at.

    A manager is asked, because its lease may be an object of an API server.
    """
    found = [_manager_says(url)] if (url := find_service(MANAGER)) is not None else []
    if services := [name for name in LED if name != MANAGER and named_addresses(name)]:
        try:
            records = await leases_in_log(services, None)
        except (LogTrouble, LeaseUnavailable) as error:
            return [*found, Leading(False, f"the leases cannot be read: {error}")]
        found += [judge_lease(service, record, float("-inf"), now) for service, record in records.items()]
    return found


def _manager_says(url: str) -> Leading:
    """Ask the leading manager, or any one if none leads, whether it leads."""
    try:
        answer = ask(f"{url}/v1/leader", timeout=LEADER_SECONDS)
        if not answer.is_success:
            return Leading(False, f"{MANAGER}: {url} does not say who leads: {refusal(answer)}")
        leads, holder = answer.json()["leads"], answer.json()["leader"]
    except (OSError, HTTPException, ValueError) as error:
        return Leading(False, f"{MANAGER}: {url} does not answer: {error}")
    return Leading(leads, f"{MANAGER}: {holder} leads" if leads else f"{MANAGER}: no leader")


async def leases_in_log(services: Iterable[str], var: Path | None) -> dict[str, LeaseRecord | None]:
    """Read the leases of services, also expired ones; None: nobody ever held it, or it was removed.

    Raises:
        LogTrouble: There is no connection to the log.
        LeaseUnavailable: A lease cannot be read.
    """
    from koordcore.service.leader.lease_kv import KvLeaseStore, lease_key

    async with open_log(var) as log:
        js = log.connection.client.jetstream(prefix=log.connection.api_prefix)  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
        stores = {
            service: KvLeaseStore(js, bucket=log.names.leader_bucket, key=lease_key(service), ttl_real_seconds=None)
            for service in services
        }
        return {service: (await store.read()).record for service, store in stores.items()}


def _began_at(record: LeaseRecord | None, processes: Iterable[ProcessStatus], now: float) -> float | None:
    """The Unix time at which the process that holds the lease started, or None if no such process runs.

    If the kernel does not tell when it started, the time is minus infinity.
    """
    instance = record.holder.rpartition("_")[0] if record is not None else ""
    process = next((each.process for each in processes if each.name == instance), None)
    if process is None or not is_alive(process):
        return None
    seconds = running_seconds(process)
    return now - seconds if seconds is not None else float("-inf")
