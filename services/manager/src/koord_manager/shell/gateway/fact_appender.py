"""Append the facts of the gateway, and wait until they are folded.

No fact is kept here to be sent again. A fact that the log has not stored is dropped, and its caller decides again on
the new fold, which may lead to the same fact, to another one, or to none:

- If the log refuses it, because its aggregate has changed, the fold contains that change when `append` returns.
- If another fact of its aggregate is under way, it is not sent. The other one has its outcome when `append` returns.
- If the log is full or does not answer, `append` waits for a moment and until the log answers, and folds up to its
  head. While the log stays full, the moment is longer each time, up to 10 s. The fact may have been stored without an
  answer; then the fold contains it.
- If the log can never store it, for example because it is too large, `Unsendable` is raised.
- If the term of leadership ends, `NotLeading` is raised. The next leader decides from its own fold.

Source:
    event-bus spec, 4.1, 4.3
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, EventLog, Full
from koordcore.ports.leadership import Leadership, Term
from koordcore.retry import Backoff, retry
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer
from koordcore.values import codec
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.appender import Decision, append_decisions

REFOLDS: Final = 8
MOST_ENDED: Final = 1024
"""Maximum number of ended aggregates whose last position is remembered after a conflict."""
_PAUSES: Final = (0.5, 10.0)
"""First and longest pause after a fact was not stored, in real seconds."""
OVERTAKEN: Final = Conflict()
"""Outcome of a fact that was not sent, because another fact of its aggregate was under way. That one has its outcome
now; if it was stored, it is folded."""


class NotLeading(Exception):
    pass


class FactAppender:
    """Appends the facts of the gateway while this instance leads, and waits until they are folded.

    Many tasks may use it at once, because the log checks the expected position of each aggregate.

    Args:
        folded: Function that waits until the event at a position is folded.
    """

    def __init__(
        self,
        view: ManagerView,
        log: EventLog,
        leadership: Leadership,
        clock: Clock,
        tracer: Tracer,
        logger: Logger,
        folded: Callable[[int], Awaitable[None]],
        actor: str,
    ) -> None:
        self.view = view
        self.clock = clock
        self._log = log
        self._leadership = leadership
        self._tracer = tracer
        self._logger = logger
        self._folded = folded
        self._actor = actor
        self._ended = Newest[AggregateRef, int](MOST_ENDED)
        self._under_way: dict[AggregateRef, asyncio.Future[None]] = {}
        self._while_full = Backoff(*_PAUSES)

    async def write(self, decide: Callable[[], Draft | None]) -> bool:
        """Append the facts that `decide` returns, one after the other, until it returns None.

        `decide` is called again after each attempt, whether the fact was stored or not. After eight attempts this
        method gives up, and the last fact is dropped.

        Returns:
            True if `decide` returned None. False if it still returned a fact at the end: the caller has to try again.

        Raises:
            NotLeading: The term of leadership has ended, so that no more facts may be written.
            Unsendable: The log can never store one of the facts. The others may be stored.
            Misconfigured: The log can store nothing at all.
        """
        backoff = Backoff(0.01, 5.0)
        for _ in range(REFOLDS):
            draft = decide()
            if draft is None:
                return True
            (outcome,) = await self.append([draft])
            if not isinstance(outcome, Appended) and outcome is not OVERTAKEN:
                await backoff.wait()
        return decide() is None

    async def append(self, drafts: Sequence[Draft]) -> list[AppendOutcome]:
        """Append facts independently, and wait until the stored ones are folded.

        A fact that is not stored is not sent again. If the log is full or does not answer, this method waits for a
        moment and until the log answers. A fact is not sent if another fact of its aggregate is under way.

        Returns:
            The outcome of each fact. If it is not `Appended`, the fact is dropped, and the caller has to decide again
            on the new fold. It may have been stored all the same, if the log did not answer.

        Raises:
            NotLeading: The term of leadership has ended, so that no more facts may be written.
            Unsendable: The log can never store one of the facts. The others may be stored.
            Misconfigured: The log can store nothing at all.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        others: set[asyncio.Future[None]] = set()
        sent: list[Draft] = []
        outcomes: list[AppendOutcome] = [OVERTAKEN] * len(drafts)
        places: list[int] = []
        for place, draft in enumerate(drafts):
            other = self._under_way.get(draft.ref)
            if other is None:
                self._under_way[draft.ref] = mine
                sent.append(draft)
                places.append(place)
            elif other is not mine:
                others.add(other)
        try:
            if sent:
                for place, outcome in zip(places, await self._send(sent), strict=True):
                    outcomes[place] = outcome
        finally:
            for draft in sent:
                del self._under_way[draft.ref]
            mine.set_result(None)
        if others:
            await asyncio.wait(others)
        return outcomes

    async def _send(self, drafts: Sequence[Draft]) -> list[AppendOutcome]:
        """Append facts of different aggregates, and wait until the stored ones are folded."""
        drafts = [self._expecting(draft) for draft in drafts]
        now = rfc3339(self.clock.now())
        decisions = [self._decision(draft, now) for draft in drafts]
        outcomes = await append_decisions(self._log, decisions)
        reached = 0
        reasons: dict[AggregateRef, str] = {}
        for draft, outcome in zip(drafts, outcomes, strict=True):
            match outcome:
                case Appended(last_seq=seq):
                    reached = max(reached, seq)
                    self._while_full.reset()
                case Conflict(moved=moved):
                    reached = max([reached, *(seq for _, seq in moved)])
                    for ref, seq in moved:
                        if ref == draft.ref:
                            self._ended[ref] = seq
                case _:
                    reasons[draft.ref] = outcome.reason
        await self._folded(reached)
        for draft in drafts:
            if self.view.state.get(draft.ref) is not None:
                self._ended.pop(draft.ref, None)
        if reasons:
            first, reason = next(iter(reasons.items()))
            self._logger.warning("facts_not_stored", facts=len(reasons), first=str(first), reason=reason)
            is_full = any(isinstance(outcome, Full) for outcome in outcomes)
            await self._until_the_log_answers(self._while_full if is_full else Backoff(*_PAUSES))
        return outcomes

    def _expecting(self, draft: Draft) -> Draft:
        """Return the draft with the last position of an aggregate that has ended, because the fold has forgotten it."""
        if draft.expected_last or draft.ref not in self._ended:
            return draft
        return draft._replace(expected_last=self._ended[draft.ref])

    async def _until_the_log_answers(self, backoff: Backoff) -> None:
        """Wait until the log answers, then fold up to its head: an append without an answer may have been stored."""
        await backoff.wait()
        head = await retry(self._log.head, (NoAnswer, NotConnected), backoff=backoff)
        await self._folded(head.last_seq)

    def require_term(self) -> Term:
        """Return the present term of leadership. Call this before every write to the API server.

        Raises:
            NotLeading: This instance does not lead.
        """
        term = self._leadership.term
        if term is None:
            raise NotLeading
        return term

    def _decision(self, draft: Draft, now: str) -> Decision:
        term, position, body = self.require_term(), self.view.state.position, codec.encode(draft.event)
        digest = hashlib.blake2b(body, digest_size=8).hexdigest()
        trace = self._tracer.emit(f"gateway.{type(draft.event).__name__}", None)
        origin = Origin(
            # With the position: an object that returns may lead to an equal fact, which is another one.
            causation_id=f"gateway/{draft.ref}/{draft.expected_last}/{position}/{digest}",
            correlation_id=draft.ref.id,
            actor=self._actor,
            epoch=term.epoch,
            occurred_at=now,
            based_on=position,
            traceparent=trace.traceparent,
        )
        return Decision([draft], origin, (body,))


class ErrorBoundary:
    """Catches, logs and counts the errors of one part of the gateway.

    Call it with an object's name to get a context manager. `NotLeading` is not caught.

    Args:
        failed: Called with the name of the part for each error.
    """

    def __init__(self, part: str, logger: Logger, failed: Callable[[str], None] = lambda _: None) -> None:
        self._part = part
        self._logger = logger
        self._failed = failed

    def __call__(self, about: object) -> "_Guard":
        return _Guard(self, about)

    def caught(self, error: Exception, about: object) -> None:
        """Log and count an error."""
        self._failed(self._part)
        self._logger.error(
            "gateway_object_failed",
            part=self._part,
            object=str(about),
            error=f"{type(error).__name__}: {error}",
            exc_info=error,
        )


class _Guard:
    """One use of an error boundary. A class, because a list of a large cluster enters some 600,000 of them."""

    __slots__ = ("_about", "_boundary")

    def __init__(self, boundary: ErrorBoundary, about: object) -> None:
        self._boundary = boundary
        self._about = about

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, NotLeading):
            return False
        self._boundary.caught(error, self._about)
        return True
