"""Run a leader election in a thread of its own, so that no work of the process delays the renewal of the lease.

    main loop      decides; sets a sign of life every second
    lease thread   an event loop and a connection of its own: reads, takes and renews the lease

A round of minutes, or an input that blocks the main loop for 20 s, does not end the term. Without a sign of life for a
longer time (60 s), the main loop is stuck: the thread renews no more, the term ends, and another instance leads. If the
whole process is stopped, the thread is, too. `term` compares the last renewal with the clock at each access. So work
that goes on after the end of its term writes nothing, and the epoch fences off what is on its way.

A term begins for the main loop when it hears of it, and ends at once for it when the thread ends it.
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from koordcore.ending import end_tasks
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import OnAcquired, OnLost, Term
from koordcore.service.leader.election import LeaseElection
from koordcore.service.leader.lease import LeaseUnavailable
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.leadership")
_SIGN_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 60.0


class OpenElection(NamedTuple):
    """An election over an open connection."""

    election: LeaseElection
    closed: Callable[[], Awaitable[object]]  # Waits until the connection is closed for good


MustNotLead: TypeAlias = Callable[[], str | None]
OpensElection: TypeAlias = Callable[[MustNotLead], AbstractAsyncContextManager[OpenElection]]
"""Opens a connection and makes the election, in the event loop of the thread. It raises LeaseUnavailable. The argument
returns why this process must not lead now, or None.
"""


class ThreadedLeadership:
    """A candidate whose election runs in a thread. The port `Leadership` has the methods.

    Args:
        holder: Name of the candidate.
        opens: Called in the thread, again after the connection was closed for good.
        clock: Clock of the host.
        stuck_seconds: Time without a sign of life of the main loop after which the lease is renewed no more.
    """

    def __init__(
        self, holder: str, opens: OpensElection, *, clock: Clock, stuck_seconds: float = STUCK_SECONDS
    ) -> None:
        self.name = holder
        self._opens = opens
        self._clock = clock
        self._stuck_seconds = stuck_seconds
        self._sign = -math.inf  # Time of the last sign of life of the main loop
        self._acquired: list[OnAcquired] = []
        self._lost: list[OnLost] = []
        self._term: Term | None = None  # The term as the main loop knows it
        self._lost_reasons: dict[int, str] = {}
        self._changed = asyncio.Event()
        self._withdrawn: str | None = None  # Reason of `withdraw`, until `stand`
        self._resigned = False
        self._ending = False  # Whether the thread has to end
        self._ended: asyncio.Future[None] | None = None
        # Written by the thread, read by the main loop.
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._election: LeaseElection | None = None

    @property
    def term(self) -> Term | None:
        """The term if both the main loop has heard of it and the lease is held now; else None."""
        term, election = self._term, self._election
        return term if term is not None and election is not None and election.term is term else None

    @property
    def holder(self) -> str | None:
        """Name of the leader in the lease when it was last read; None if there was none or it is unknown."""
        election = self._election
        return None if election is None else election.holder

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """Add functions that the main loop calls at the begin and end of each later term. They must not block."""
        if acquired is not None:
            self._acquired.append(acquired)
        if lost is not None:
            self._lost.append(lost)

    async def acquired(self) -> Term:
        """Return the term of this candidate. If it does not lead, wait until it does."""
        while (term := self.term) is None:
            await self._changed.wait()
        return term

    async def lost(self, term: Term) -> str:
        """Wait until the given term is over, and return the reason.

        Raises:
            AssertionError: This candidate never led in that term.
        """
        while term.epoch not in self._lost_reasons:
            if self._term != term:
                raise AssertionError(f"{term} was never led in by {self.name}")
            await self._changed.wait()
        return self._lost_reasons[term.epoch]

    async def campaign(self) -> None:
        """Run the election in a thread until `resign`. If cancelled, the term ends, and the lease must expire."""
        if self._resigned:
            return
        main = asyncio.get_running_loop()
        self._ended = main.create_future()
        self._sign = self._clock.monotonic()
        threading.Thread(target=self._run, args=(main, self._ended), name="lease", daemon=True).start()
        signs = asyncio.create_task(self._give_signs())
        try:
            await asyncio.shield(self._ended)
        finally:
            signs.cancel()
            await self._end_thread(self._ended)
            self._lose(self._term, "resigned" if self._resigned else "the campaign ended")

    def withdraw(self, reason: str) -> None:
        """End the term now, and leave the lease to others until `stand`."""
        self._withdrawn = reason
        self._lose(self._term, reason)
        self._in_thread(partial(self._with_election, lambda election: election.withdraw(reason)))

    def stand(self) -> None:
        """Let the campaign compete for the lease again."""
        self._withdrawn = None
        self._in_thread(partial(self._with_election, LeaseElection.stand))

    async def resign(self) -> None:
        """End campaign and term, and release the lease."""
        self._resigned = True
        self._lose(self._term, "resigned")
        if self._ended is not None:
            await self._end_thread(self._ended)

    async def _end_thread(self, ended: "asyncio.Future[None]") -> None:
        self._ending = True
        self._in_thread(self._stop)
        await asyncio.wait((ended,))

    async def _give_signs(self) -> None:
        while True:
            self._sign = self._clock.monotonic()
            await self._clock.sleep(min(_SIGN_SECONDS, self._stuck_seconds / 5))

    def _begin(self, term: Term) -> None:
        if self._withdrawn is not None or self._resigned:
            return
        self._term = term
        self._change()
        for tell in self._acquired:
            tell(term)

    def _lose(self, term: Term | None, reason: str) -> None:
        if term is None or term.epoch in self._lost_reasons:
            return
        self._lost_reasons[term.epoch] = reason
        if self._term is not term:
            return  # the main loop never heard of it
        self._term = None
        self._change()
        for tell in self._lost:
            tell(term, reason)

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _in_thread(self, action: Callable[[], None]) -> None:
        """Let the loop of the thread call a function. No-op before the thread runs, and after its end."""
        loop = self._thread_loop
        if loop is not None:
            _call(loop, action)

    # The methods below run in the thread.

    def _run(self, main: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._elect(main))
        except BaseException as found:  # noqa: BLE001  the main loop raises it
            error = found
        _call(main, _end, ended, error)

    async def _elect(self, main: asyncio.AbstractEventLoop) -> None:
        self._stopping = asyncio.Event()
        self._thread_loop = asyncio.get_running_loop()
        campaigns = asyncio.create_task(self._campaigns(main))
        stop = asyncio.create_task(self._stopping.wait())
        try:
            if not self._ending:  # else the main loop did not find `_thread_loop`
                await asyncio.wait((campaigns, stop), return_when=asyncio.FIRST_COMPLETED)
            election = self._election
            if self._resigned and election is not None:
                await election.resign()
        finally:
            self._thread_loop = None
            await end_tasks(stop, campaigns)
        if not campaigns.cancelled():
            campaigns.result()

    async def _campaigns(self, main: asyncio.AbstractEventLoop) -> None:
        complained = ""
        while not self._ending:
            try:
                async with self._opens(self._must_not_lead) as opened:
                    complained = ""
                    await self._campaign(opened, main)
            except LeaseUnavailable as error:
                if str(error) != complained:
                    complained = str(error)
                    _log.warning("lease_unavailable", holder=self.name, leading=False, error=complained)
                await self._clock.sleep(_AGAIN_SECONDS)

    async def _campaign(self, opened: OpenElection, main: asyncio.AbstractEventLoop) -> None:
        """Campaign until the election has resigned, or until the connection is closed for good."""
        election = opened.election
        election.subscribe(
            acquired=lambda term: _call(main, self._begin, term),
            lost=lambda term, reason: _call(main, self._lose, term, reason),
        )
        if self._withdrawn is not None:
            election.withdraw(self._withdrawn)
        self._election = election
        tasks = [asyncio.ensure_future(election.campaign()), asyncio.ensure_future(opened.closed())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._election = None
            await end_tasks(*tasks)

    def _stop(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def _with_election(self, action: Callable[[LeaseElection], None]) -> None:
        if self._election is not None:
            action(self._election)

    def _must_not_lead(self) -> str | None:
        silent = self._clock.monotonic() - self._sign
        return f"the event loop has been stuck for {silent:.0f} s" if silent > self._stuck_seconds else None


def _end(ended: "asyncio.Future[None]", error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _call(loop: asyncio.AbstractEventLoop, action: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(action, *arguments)
