"""A lease in one key of a JetStream KV bucket, written with an expected version and read at the stream's leader.

Source: event-bus spec, 4.1 and 4.3 (10071, 10164), 13.7 (never read an expectation through a direct get).
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec
import nats.errors
import nats.js.errors

from koordcore.ports.clock import Clock
from koordcore.retry import Backoff
from koordcore.service.leader import lease
from koordcore.service.leader.election import LeaseElection

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

_WRONG_SEQUENCE: Final = frozenset((10071, 10164))
_TTL_DISABLED: Final = 10166
_PUBLISH_REAL_SECONDS: Final = 2.0  # Time after which a write without an answer is given up
_FIRST_PAUSE_REAL_SECONDS: Final = 0.005
# Nominal pauses between reads until a release that was heard is stored: the first one, and the longest.
_LONGEST_PAUSE_REAL_SECONDS: Final = 0.2


class _Body(msgspec.Struct, frozen=True):
    """Content of the key. Epoch 0 stands for the revision, which is not known when a term begins."""

    holder: str
    epoch: int
    acquired_at_unix: float
    renewed_at_unix: float
    duration_seconds: float


def lease_key(service: str) -> str:
    """Return the key of a service's lease in the KV bucket: `leader.<service>`."""
    return f"leader.{service}"


class KvLeaseStore:
    """One key of a JetStream KV bucket as storage of a lease.

    Args:
        ttl_real_seconds: Real seconds after which the server removes a key that is not renewed; None: never.
    """

    def __init__(self, js: "JetStreamContext", *, bucket: str, key: str, ttl_real_seconds: int | None) -> None:
        self._js = js
        self._stream = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}.{key}"
        self._ttl = ttl_real_seconds

    async def read(self) -> lease.SeenLease:
        """Read the key of the lease. If it was removed, the record is None and the version is that of the removal."""
        try:
            message = await self._js.get_last_msg(self._stream, self._subject)
        except nats.js.errors.NotFoundError as error:
            if error.err_code not in (10037, None):  # 10037: no message; others mean that the bucket is missing
                raise lease.LeaseUnavailable(f"{self._stream}: {error}") from error
            return lease.SeenLease(None, "0")
        except (nats.errors.Error, nats.js.errors.Error, OSError) as error:
            raise lease.LeaseUnavailable(f"{type(error).__name__}: {error}") from error
        revision = message.seq or 0
        if not message.data:  # removed by hand (KV-Operation) or by its time to live (Nats-Marker-Reason)
            return lease.SeenLease(None, str(revision))
        try:
            body = msgspec.json.decode(message.data, type=_Body)
        except msgspec.DecodeError as error:
            raise lease.LeaseUnavailable(f"{self._subject} holds something else than a lease: {error}") from error
        record = lease.LeaseRecord(
            holder=body.holder,
            epoch=body.epoch or revision,
            acquired_at_unix=body.acquired_at_unix,
            renewed_at_unix=body.renewed_at_unix,
            duration_seconds=body.duration_seconds,
        )
        return lease.SeenLease(record, str(revision))

    async def write(self, record: lease.LeaseRecord, version: str, *, acquiring: bool) -> lease.WrittenLease:
        """Write the key at this version.
        The epoch of a term is the revision of the key after the term's first write.
        """
        body = _Body(
            holder=record.holder,
            epoch=0 if acquiring else record.epoch,
            acquired_at_unix=record.acquired_at_unix,
            renewed_at_unix=record.renewed_at_unix,
            duration_seconds=record.duration_seconds,
        )
        headers = {"Nats-Expected-Last-Subject-Sequence": version}
        if self._ttl is not None:
            headers["Nats-TTL"] = f"{self._ttl}s"
        try:
            stored = await self._js.publish(
                self._subject, msgspec.json.encode(body), headers=headers, timeout=_PUBLISH_REAL_SECONDS
            )
        except nats.js.errors.APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                raise lease.LeaseConflict(f"{self._subject} is not at revision {version}") from error
            if error.err_code == _TTL_DISABLED and self._ttl is not None:
                self._ttl = None  # the bucket was made without; leases then only expire for those who watch them
                return await self.write(record, version, acquiring=acquiring)
            raise lease.LeaseUnavailable(f"{type(error).__name__}: {error}") from error
        except (nats.errors.Error, nats.js.errors.Error, OSError) as error:
            raise lease.LeaseUnavailable(f"{type(error).__name__}: {error}") from error
        return lease.WrittenLease(str(stored.seq), stored.seq if acquiring else record.epoch)


class KeyReleases:
    """Hears when a leader releases its lease: the server passes the message to subscribers while it stores it. Without
    the right to subscribe, nothing is heard, and candidates find the release when they read the lease.

    Args:
        client: Connection on which the releases are heard.
        store: Storage of the lease. It is read after a release was heard, until the release is stored.
    """

    def __init__(self, client: "Client", store: lease.LeaseStore, *, bucket: str, key: str) -> None:
        self._client = client
        self._store = store
        self._subject = f"$KV.{bucket}.{key}"
        self._subscribed = False
        self._released = asyncio.Event()
        self._epoch = 0
        """Epoch of the term that ended with the last release that was heard.

        It is 0 if the key was removed. Then `next` does not wait until the removal is stored.
        """

    async def next(self) -> None:
        """Wait until the lease is released and the release is stored. A release after the last call counts. If a call
        is cancelled, the release that it heard is not reported again: the caller reads the lease then. The first call
        returns as soon as the server has the subscription, because an earlier release was not heard.
        """
        if not self._subscribed:
            # After an error the next call subscribes. Until then the candidate reads the lease.
            with contextlib.suppress(nats.errors.Error):
                await self._client.subscribe(self._subject, cb=self._hear)  # pyright: ignore[reportUnknownMemberType]
                self._subscribed = True
                await self._client.flush()
                return
        await self._released.wait()
        self._released.clear()
        await self._stored()

    async def _stored(self) -> None:
        """Wait until a read no longer shows the term that has ended, because the message is heard before it is stored.
        If the server refuses the release, wait until the caller cancels.
        """
        backoff = Backoff(_FIRST_PAUSE_REAL_SECONDS, _LONGEST_PAUSE_REAL_SECONDS)
        while True:
            try:
                record = (await self._store.read()).record
            except lease.LeaseUnavailable:
                return
            if record is None or not record.holder or record.epoch != self._epoch:
                return
            await backoff.wait()

    async def _hear(self, message: "Msg") -> None:
        try:
            body = msgspec.json.decode(message.data, type=_Body) if message.data else None
        except msgspec.DecodeError:
            return
        if body is None or not body.holder:
            self._epoch = body.epoch if body is not None else 0
            self._released.set()


class KvLeadership(LeaseElection):
    """Leader election with one key of a JetStream KV bucket. The bootstrap job creates the bucket. If the bucket allows
    it (`allow_msg_ttl`), the server removes a key that is not renewed. So a later candidate does not wait for the lease
    of a leader that ended long ago. The epoch is the revision of the key at the start of the term. It grows even if the
    key was removed.

    Args:
        key: Name of the key, for example `leader.manager`.
        client: Connection on which a candidate hears of releases. None: it only reads the lease.
    """

    def __init__(
        self,
        js: "JetStreamContext",
        *,
        bucket: str,
        key: str,
        holder: str,
        clock: Clock,
        times: lease.LeaseTimes | None = None,
        jitter: Random | None = None,
        client: "Client | None" = None,
        must_not_lead: Callable[[], str | None] = lambda: None,
    ) -> None:
        times = times or lease.LeaseTimes()
        real = clock.real_seconds(times.duration)
        # The server counts whole seconds, from 1. Longer than the lease is safe; shorter never happens.
        ttl = max(1, math.ceil(real)) if math.isfinite(real) else None
        store = KvLeaseStore(js, bucket=bucket, key=key, ttl_real_seconds=ttl)
        released = None if client is None else KeyReleases(client, store, bucket=bucket, key=key).next
        super().__init__(
            store,
            holder=holder,
            clock=clock,
            times=times,
            jitter=jitter,
            released=released,
            must_not_lead=must_not_lead,
        )
