"""Answers questions on the bus, on a fork of the live state, so that decisions never wait for them.

A standby scheduler answers capacity questions if there is one, the leader otherwise. Both fork, because both states
must stay as they are. The leader alone tells the hash of its state (`koord verify`). At most one fork exists at a time;
further questions wait for it within the timeouts of their callers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.work.endpoints import Audit, EndpointServer, Refusal
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Leadership
from koordcore.requests.catalogue import SCHEDULER_FIT, SCHEDULER_STATE_HASH, StateHash, StateHashRequest
from koordcore.requests.endpoint import ErrorCode
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.fit.answering import answer_question, check_question
from koord_scheduler.domain.loop.folding.log import fold_early
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.state_hash import state_hash
from koord_scheduler.shell.folding import StateFold
from koord_scheduler.shell.forking import Forked, ForkFailed, ForkRaised, in_fork, in_fork_and_wait
from koord_scheduler.shell.observing import SchedulerMetrics

_BATCH_SECONDS: Final = 1.0
"""Longest wait for the rest of a batch that is folded in part, in seconds of the host."""
_EXACT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.005
_HOST: Final = SystemClock()


class _Outcome(msgspec.Struct, frozen=True):
    """What the fork returns: an answer, or why the question is invalid."""

    answer: FitAnswer | None = None
    invalid: str = ""


@dataclass(eq=False)
class Questions:
    """Answers capacity questions (`koord fit`) in forked copies of this scheduler process."""

    state: SchedulerState
    fold: StateFold  # Its `is_inside_batch` tells whether an append of the log is only applied in part
    trouble: Callable[[], str | None]  # Why the state is not current; None if it is
    leadership: Leadership
    _: KW_ONLY
    clock: Clock  # The present time of the answers; faster than the host's clock if the run is accelerated
    metrics: SchedulerMetrics
    logger: Logger
    instance: str

    def __post_init__(self) -> None:
        self._fork = asyncio.Lock()
        self._role_changed = changed = asyncio.Event()
        self.leadership.subscribe(acquired=lambda _: changed.set(), lost=lambda _, __: changed.set())

    async def run(self, connection: BusConnection, names: BusNames, audit: Audit) -> None:
        """Receive questions from the bus, as leader or as standby, until the task is cancelled."""
        while True:
            self._role_changed.clear()
            server = EndpointServer(connection, names, audit=audit)
            leads = self.leadership.term is not None
            server.serve(SCHEDULER_FIT, self.answer, as_standby=not leads)
            if leads:
                server.serve(SCHEDULER_STATE_HASH, self.state_hash)
            await server.run_until(self._role_changed.wait())

    async def answer(self, request: FitRequest) -> FitAnswer:
        """Return where the pods of a question would be placed. The live state does not change. The answer is computed
        in a fork, one question after the other. Raises Refusal: the question is invalid, or cannot be answered now;
        ForkRaised: The computation raised an exception (a bug).
        """
        self._must_be_current()
        try:
            check_question(self.state, request)
        except InvalidInput as error:
            raise Refusal(ErrorCode.INVALID, error.sentence()) from error
        async with self._fork:
            await self._batch_is_whole()
            began = _HOST.monotonic()
            now = self.clock.unix()
            by_standby = self.leadership.term is None
            forked = await self._forked(
                lambda: self._answered(request, now), "the question could not be answered; see the log"
            )
            outcome = codec.decode(forked.result, _Outcome)
            answer = outcome.answer
            if answer is None:
                raise Refusal(ErrorCode.INVALID, outcome.invalid)
            seconds = _HOST.monotonic() - began
            self.metrics.question_seconds.observe(seconds)
            self.logger.info(
                "question_answered", seconds=round(seconds, 3), pause=round(forked.pause_seconds, 4), ahead=answer.ahead
            )
            return msgspec.structs.replace(answer, answered_by=self.instance, by_standby=by_standby, seconds=seconds)

    def _answered(self, request: FitRequest, now: float) -> bytes:
        """Answer in the fork. Questions that need further copies fork once more from there, one after the other."""

        def probe(other: FitRequest) -> FitAnswer:
            found = in_fork_and_wait(lambda: self._answered(other, now))
            answer = codec.decode(found, _Outcome).answer
            assert answer is not None, "the first question was checked"
            return answer

        try:
            return codec.encode(_Outcome(answer_question(self.state, request, now, probe)))
        except InvalidInput as error:
            return codec.encode(_Outcome(invalid=error.sentence()))

    async def state_hash(self, _request: StateHashRequest) -> StateHash:
        """Return the hash of the state at one position, computed in a fork. The state is ahead of its position while
        the log has confirmed appends that the fold has not reached. So the answer waits until it has. Raises Refusal:
        the state cannot be told now, for example because appends stay ahead of the fold.
        """
        self._must_be_current()
        async with self._fork:
            end = _HOST.monotonic() + _EXACT_SECONDS
            while not self._is_exact():
                if _HOST.monotonic() > end:
                    raise Refusal(ErrorCode.UNAVAILABLE, "the scheduler appends faster than it folds; ask again")
                await asyncio.sleep(_LOOK_SECONDS)
            forked = await self._forked(self._hashed, "the state could not be hashed; see the log")
            return codec.decode(forked.result, StateHash)

    def _must_be_current(self) -> None:
        reason = self.trouble()
        if reason is not None:
            raise Refusal(ErrorCode.UNAVAILABLE, reason)

    async def _forked(self, work: Callable[[], bytes], failure: str) -> Forked:
        try:
            forked = await in_fork(work)
        except ForkRaised:
            raise  # a defect: the caller must not repeat the question
        except ForkFailed as error:
            self.logger.error("question_failed", reason=str(error))
            raise Refusal(ErrorCode.UNAVAILABLE, failure) from error
        self.metrics.question_pause_seconds.observe(forked.pause_seconds)
        return forked

    def _is_exact(self) -> bool:
        log = self.state.log
        return not self.fold.is_inside_batch and log.position >= max(log.acknowledged, log.read_ahead)

    def _hashed(self) -> bytes:
        fold_early(self.state)  # in the fork: own events that came before the log answered their append
        return codec.encode(StateHash(self.state.log.position, state_hash(self.state)))

    async def _batch_is_whole(self) -> None:
        """Wait until the state is between two batches of the log, but not for ever."""
        end = _HOST.monotonic() + _BATCH_SECONDS
        while self.fold.is_inside_batch and _HOST.monotonic() < end:  # noqa: ASYNC110 - the fold sets no event
            await asyncio.sleep(_LOOK_SECONDS)
