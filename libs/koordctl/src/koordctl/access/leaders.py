"""The state of leader election in the embedded stack: the holder of each lease, and whether that process still runs.

The leases are in a KV bucket of the log. In a stack with an API server, the manager's is a Lease object there.

A killed process holds its lease until the lease expires. Until then the `/readyz` of its replacement already says
ready, because some instance holds the lease, although no instance decides.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from koordcore.embedded.identity import is_alive, running_seconds
from koordcore.embedded.stack import ProcessStatus, Stack
from koordcore.service.leader.lease import LeaseRecord, LeaseTimes, LeaseUnavailable
from koordcore.values.timestamps import rfc3339

from koordctl.access.log import open_log
from koordctl.access.trouble import LogTrouble
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
    """Return whether a service has a running leader, according to its lease.

    It has one if the lease has a holder, the holder's process runs and is not younger than the lease, and the lease was
    renewed within the renew deadline.

    Args:
        service: Name of the service.
        record: The lease. None or a lease without a holder means that it was released or has expired.
        holder_began_at: Unix seconds at which the process with the holder's name started, or None if no such process
            runs.
        now: Host time in Unix seconds; leases use this clock.
    """
    if record is None or not record.holder:
        return Leading(False, f"{service}: no leader (no lease is held)")
    gone = holder_began_at is None or record.acquired_at_unix < holder_began_at - _CLOCK_SECONDS
    late = now - record.renewed_at_unix >= LeaseTimes().renew_deadline
    if not gone and not late:
        for_long = duration_text(max(now - record.acquired_at_unix, 0.0))
        since = time_text(rfc3339(datetime.fromtimestamp(record.acquired_at_unix, UTC)))[:19]
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
        stack: The running stack.
        var: Folder of the stack.
        now: Host time in Unix seconds.
        lease_object: The manager's lease in a stack with an API server; None: it is in the log.
    """
    from koordcore.service.leader.lease_kv import KvLeaseStore, lease_key

    in_log = LED if lease_object is None else tuple(name for name in LED if name != MANAGER)
    records: dict[str, LeaseRecord | None] = {}
    try:
        if lease_object is not None:
            records[MANAGER] = (await lease_object.read()).record
        async with open_log(var) as log:
            js = log.connection.client.jetstream()  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
            bucket = log.names.leader_bucket
            for service in in_log:
                store = KvLeaseStore(js, bucket=bucket, key=lease_key(service), ttl_real_seconds=None)
                records[service] = (await store.read()).record
    except (LogTrouble, LeaseUnavailable) as error:
        return [Leading(False, f"the leases cannot be read: {error}")]
    return [
        judge_lease(service, record, _began_at(record, stack.processes, now), now)
        for service, record in records.items()
    ]


def _began_at(record: LeaseRecord | None, processes: Iterable[ProcessStatus], now: float) -> float | None:
    """Return the Unix time at which the process that holds the lease started, or None if no such process runs.

    If the kernel does not tell when it started, the time is minus infinity.
    """
    instance = record.holder.rpartition("_")[0] if record is not None else ""
    process = next((each.process for each in processes if each.name == instance), None)
    if process is None or not is_alive(process):
        return None
    seconds = running_seconds(process)
    return now - seconds if seconds is not None else float("-inf")
