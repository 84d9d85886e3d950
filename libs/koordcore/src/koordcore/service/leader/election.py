"""Leader election over a lease: a record with a version that only a writer who saw its last version can change.

    candidate   reads every `retry`, and when it hears of a release; takes the lease if it is absent, released, or
                unchanged for its whole duration
    leader      renews every `retry`; gives up after failing for `renew_deadline`, before another may take the lease

Clocks of different hosts are never compared. A candidate measures the time since it first saw a version, a leader the
time since it began its last successful write. So two candidates never lead at once if their clocks run at about the
same rate. Epochs fence off former leaders otherwise.

Where the lease is kept: `koordcore.service.leader.lease_kv` (JetStream), `koordcore.service.leader.lease_kubernetes`
(coordination.k8s.io). Give it the host's clock unless the test is about leadership: at speed 60 a lease of 15 s is a
quarter of a real second.

Source: Kubernetes' client-go leaderelection, whose rules and default durations these are; protocol spec, 11.4.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from koordcore.ports.clock import Clock
from koordcore.ports.leadership import OnAcquired, OnLost, Term
from koordcore.service.leader import lease
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.leadership")


class LeaseElection:
    """One candidate in an election by a lease: whoever holds the lease leads. The port `Leadership` has the methods.

    Args:
        holder: Name that is unique among all candidates, also after restarts (`unique_holder`).
        clock: Clock for the durations.
        times: Durations of lease, renewal and retry; None: 15 s, 10 s and 2 s.
        jitter: Random numbers that spread the reads of candidates that started together.
        released: Returns when the store reports that the lease was released, so that a candidate reads it at once. It
            may miss a release. None: the store does not report.
        must_not_lead: Returns why this process must not lead now, or None if it may. Its lease then expires.
    """

    def __init__(
        self,
        store: lease.LeaseStore,
        *,
        holder: str,
        clock: Clock,
        times: lease.LeaseTimes | None = None,
        jitter: Random | None = None,
        released: Callable[[], Awaitable[None]] | None = None,
        must_not_lead: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.name = holder
        self._must_not_lead = must_not_lead
        self._store = store
        self._clock = clock
        self._times = times or lease.LeaseTimes()
        self._jitter = jitter or Random()  # noqa: S311  spreading load, not a secret
        self._released = released
        self._acquired: list[OnAcquired] = []
        self._lost: list[OnLost] = []
        self._term: Term | None = None
        self._renewed_at = -math.inf
        self._version = ""
        self._highest = 0  # epoch seen so far: a lease that somebody has deleted does not know it any more
        self._seen_version: str | None = None
        self._seen_at = 0.0
        self._holder: str | None = None
        self._resigned = False
        # Whether the campaign has ended. Cancelling is not enough: until Python 3.12, asyncio.wait_for, with which NATS
        # clients wait, ignores a cancellation that meets the answer.
        self._over = False
        self._withdrawn = False
        self._to_release: Term | None = None
        self._complained = False
        self._changed = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None
        self._lost_reasons: dict[int, str] = {}

    @property
    def term(self) -> Term | None:
        """The term if this candidate leads and its last renewal is younger than the renew deadline now; else None."""
        return self._term if self._clock.monotonic() < self._renewed_at + self._times.renew_deadline else None

    @property
    def holder(self) -> str | None:
        """Name of the leader in the lease when it was last read; None if there was none or the store did not answer."""
        return self._holder

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """Add functions that are called at the begin and end of each later term. They must not block."""
        if acquired is not None:
            self._acquired.append(acquired)
        if lost is not None:
            self._lost.append(lost)

    async def acquired(self) -> Term:
        """Return the term of this candidate. If it does not lead, wait until it does."""
        while (term := self.term) is None:
            await self._next_change()
        return term

    async def lost(self, term: Term) -> str:
        """Wait until the given term is over, and return the reason.

        Raises:
            AssertionError: This candidate never led in that term.
        """
        while term.epoch not in self._lost_reasons:
            if self._term != term:
                raise AssertionError(f"{term} was never led in by {self.name}")
            await self._next_change()
        return self._lost_reasons[term.epoch]

    async def campaign(self) -> None:
        """Try to get the lease, and renew it, until `resign`. If cancelled, the term ends, but the lease must expire.
        After `resign` it returns at once: a candidate stands for one campaign.
        """
        if self._resigned:
            return
        self._stepping = asyncio.create_task(self._steps())
        watching = asyncio.create_task(self._watch_deadline())
        try:
            done, _ = await asyncio.wait((self._stepping, watching), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()
        finally:
            self._over = True
            self._stepping.cancel()
            watching.cancel()
            self._lose("resigned" if self._resigned else "the campaign ended")

    def withdraw(self, reason: str) -> None:
        """End the term now, or let none begin. The next step of the campaign releases the lease. It takes no new lease
        until `stand` is called. If it is taking the lease, no term begins and the lease is released at once.
        """
        self._withdrawn = True
        self._to_release = self._term or self._to_release
        self._lose(reason)

    def stand(self) -> None:
        """Let the campaign compete for the lease again."""
        self._withdrawn = False

    async def resign(self) -> None:
        """End campaign and term, and release the lease. If the store does not answer, the next leader must wait until
        it expires.
        """
        self._resigned = self._over = True
        term = self._term or self._to_release
        if self._stepping is not None:
            # Its write may be under way; if that still arrives the version is another one and the release is refused.
            self._stepping.cancel()
            await asyncio.wait((self._stepping,))
        term = self._to_release or term  # the write may have taken the lease
        if term is None:
            return
        self._lose("resigned")
        try:
            await self._release(term)
        except (lease.LeaseConflict, lease.LeaseUnavailable) as error:
            _log.warning("lease_not_released", holder=self.name, epoch=term.epoch, error=str(error))

    async def _release(self, term: Term) -> None:
        now = self._clock.unix()
        released = lease.LeaseRecord(
            holder="", epoch=term.epoch, acquired_at_unix=now, renewed_at_unix=now, duration_seconds=1.0
        )
        await self._bounded_write(released, self._version, acquiring=False)

    async def _steps(self) -> None:
        while not self._over:
            await self._step()
            if self._over:
                return
            spread = 1.0 if self._term is not None else 1.0 + 0.2 * self._jitter.random()
            await self._pause(self._times.retry * spread)

    async def _pause(self, seconds: float) -> None:
        """Wait this long. A candidate waits only until it hears that the lease was released."""
        if self._released is None or self._term is not None:
            await self._clock.sleep(seconds)
            return
        waiting = (asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._released()))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _step(self) -> None:
        try:
            hindrance = self._must_not_lead()
            if hindrance is not None:
                self._lose(hindrance)
            if self._term is not None and self.term is None:
                self._lose(self._late())
            if self._term is not None:
                await self._renew(self._term)
            elif self._withdrawn or hindrance is not None:
                await self._leave_to_others()
            else:
                await self._try_to_take()
        except lease.LeaseConflict:
            # Somebody was faster, or our own write of which we never heard arrived: the next look tells.
            await self._look_after_conflict()
        except lease.LeaseUnavailable as error:
            self._complain(error)
        else:
            self._complained = False

    def _complain(self, error: lease.LeaseUnavailable) -> None:
        """Log an outage of the lease store once, and not at every read."""
        if not self._complained:
            _log.warning("lease_unavailable", holder=self.name, leading=self._term is not None, error=str(error))
        self._complained = True

    async def _renew(self, term: Term) -> None:
        began = self._clock.monotonic()
        record = self._record(term.epoch, term.acquired_at_unix)
        written = await self._bounded_write(record, self._version, acquiring=False)
        self._version = written.version
        if self._term == term:  # else it was lost while the answer was under way
            self._renewed_at = began
            self._changed_now()

    async def _leave_to_others(self) -> None:
        """Release the lease of the term that was withdrawn, once. Then only read who leads."""
        term, self._to_release = self._to_release, None
        if term is not None:
            await self._release(term)
        self._note(await self._bounded_read())

    async def _try_to_take(self) -> None:
        began = self._clock.monotonic()
        seen = await self._bounded_read()
        self._note(seen)
        record = seen.record
        mine = record is not None and record.holder == self.name
        if self._over or (record is not None and record.holder and not mine and not self._expired(record)):
            return
        now = self._clock.unix()
        wanted = self._record(self._highest + 1, now)
        written = await self._bounded_write(wanted, seen.version, acquiring=True)
        self._version, self._highest = written.version, written.epoch
        self._holder = self.name
        term = Term(self.name, written.epoch, now)
        if self._over or self._withdrawn:  # while the answer was under way
            self._to_release = term
            if not self._over:
                await self._leave_to_others()
            return
        self._renewed_at = began
        self._term, self._to_release = term, None
        _log.info(
            "leadership_acquired", holder=self.name, epoch=written.epoch, before=record.holder if record else None
        )
        self._changed_now()
        for tell in self._acquired:
            tell(term)

    async def _look_after_conflict(self) -> None:
        try:
            seen = await self._bounded_read()
        except lease.LeaseUnavailable as error:
            self._complain(error)
            return
        self._note(seen)
        term, record = self._term, seen.record
        if term is None:
            return
        if record is not None and record.holder == self.name and record.epoch == term.epoch:
            self._version = seen.version  # our own write, whose answer was lost; the next renewal builds on it
        else:
            self._lose(f"taken over by {record.holder}" if record and record.holder else "the lease was removed")

    def _record(self, epoch: int, acquired_at_unix: float) -> lease.LeaseRecord:
        return lease.LeaseRecord(
            holder=self.name,
            epoch=epoch,
            acquired_at_unix=acquired_at_unix,
            renewed_at_unix=self._clock.unix(),
            duration_seconds=self._times.duration,
        )

    def _note(self, seen: lease.SeenLease) -> None:
        if seen.version != self._seen_version:
            self._seen_version = seen.version
            self._seen_at = self._clock.monotonic()
        self._holder = (seen.record.holder or None) if seen.record is not None else None
        if seen.record is not None:
            self._highest = max(self._highest, seen.record.epoch)

    def _expired(self, record: lease.LeaseRecord) -> bool:
        return self._clock.monotonic() >= self._seen_at + record.duration_seconds

    def _late(self) -> str:
        return f"not renewed for {self._times.renew_deadline:g} s"

    def _lose(self, reason: str) -> None:
        term = self._term
        if term is None:
            return
        self._term = None
        self._renewed_at = -math.inf
        self._lost_reasons[term.epoch] = reason
        _log.warning("leadership_lost", holder=self.name, epoch=term.epoch, reason=reason)
        self._changed_now()
        for tell in self._lost:
            tell(term, reason)

    async def _watch_deadline(self) -> None:
        """End the term at its deadline, even if a renewal hangs."""
        while True:
            if self._term is None:
                await self._next_change()
                continue
            left = self._renewed_at + self._times.renew_deadline - self._clock.monotonic()
            if left > 0:
                await self._clock.sleep(left)
            else:
                self._lose(self._late())

    async def _bounded_read(self) -> lease.SeenLease:
        try:
            async with asyncio.timeout(self._patience()):
                return await self._store.read()
        except TimeoutError as error:
            raise lease.LeaseUnavailable("no answer in time") from error

    async def _bounded_write(self, record: lease.LeaseRecord, version: str, *, acquiring: bool) -> lease.WrittenLease:
        try:
            async with asyncio.timeout(self._patience()):
                return await self._store.write(record, version, acquiring=acquiring)
        except TimeoutError as error:
            raise lease.LeaseUnavailable("no answer in time") from error

    def _patience(self) -> float | None:
        """Return the timeout of one call in real seconds, so that a second call fits before the deadline."""
        real = self._clock.real_seconds(self._times.renew_deadline / 2)
        return real if math.isfinite(real) else None

    def _changed_now(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()
