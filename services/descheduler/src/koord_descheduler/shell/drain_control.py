"""Look at all drains every few seconds, on the leader: carry out what `drain.passes` decides, then record it.

A round with the plugin Drain wants a look at once.

Source:
    descheduler spec, 11
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, name_from_token
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import Appended, Conflict, EventLog, Unsendable
from koordcore.ports.leadership import Term
from koordcore.requests.objects import ChangeOutcome, ChangeResult, ObjectChange
from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.drain import passes
from koord_descheduler.domain.drain.node_drain import LOOK_INTERVAL
from koord_descheduler.domain.drain.passes import DrainPolicy, Look
from koord_descheduler.domain.jobs.effects import Refusals
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter
from koord_descheduler.shell.waiting import Problem, first_of

_MOST_WAITS: Final = 1024


@dataclass(slots=True, kw_only=True)
class DrainControl:
    """Leads drains of nodes and of groups to their end."""

    builder: ViewBuilder
    leading: Leading
    log: EventLog
    clock: Clock
    logger: Logger
    actor: str
    writer: ObjectWriter
    # Makes the policy when the first term begins. It raises InvalidInput while it cannot be made, for example because a
    # PriorityClass does not exist; then all drains wait.
    make_policy: Callable[[], DrainPolicy]
    wanted: asyncio.Event  # Is set if a look is wanted before the next one is due
    _refused: Refusals = field(default_factory=Refusals, init=False)
    _waits: Newest[AggregateRef, str] = field(
        default_factory=lambda: Newest[AggregateRef, str](_MOST_WAITS), init=False
    )
    """Drain or group -> why its last look failed, which is logged once."""
    _without_policy: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._without_policy = Problem("drains_wait", self.logger)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        policy: DrainPolicy | None = None
        while True:
            term = await self.leading.term()
            self.wanted.clear()
            policy = policy or self._policy()
            if policy is not None:
                await self.look_at_all(policy, term)
            await first_of(self.clock.sleep(LOOK_INTERVAL), self.wanted.wait())

    def _policy(self) -> DrainPolicy | None:
        """None if it cannot be made now. The reason is logged when it changes."""
        try:
            return self.make_policy()
        except InvalidInput as error:
            self._without_policy.lasts(str(error))
            return None

    async def look_at_all(self, policy: DrainPolicy, term: Term) -> None:
        """Look at every drain and every group once. An error in one drain does not delay the others."""
        await views_are_current(self.builder)
        given = passes.begin(self.builder, policy, self._refused, self.clock.now().timestamp())
        for ref, looking in passes.looks(given):
            try:
                await self._carry_out(looking(), term)
            except (NotWritten, InvalidInput) as error:
                if self._waits.get(ref) != str(error):
                    self._waits[ref] = str(error)
                    self.logger.warning("drain_waits", aggregate=str(ref), reason=str(error))
            else:
                self._waits.pop(ref, None)
            await asyncio.sleep(0)  # drains that have ended are looked at, too, and there may be one for each node

    async def _carry_out(self, look: Look, term: Term) -> None:
        outcomes = await self._changed(look.changes, term) if look.changes else []
        for outcome in outcomes:
            if outcome.result is ChangeResult.REFUSED and look.ref.kind == "drain":  # the fact of a group says it
                self.logger.error("drain_change_refused", drain=name_from_token(look.ref.id), reason=outcome.message)
        event = look.concluded(outcomes)
        if event is not None:
            await self._record(look.ref, look.object_uid, event, term)

    async def _changed(self, changes: Sequence[ObjectChange], term: Term) -> list[ChangeOutcome]:
        """Raises NotWritten: this instance does not lead any more, or the manager does not answer."""
        if self.leading.is_over(term):
            raise NotWritten("this instance does not lead any more")
        return await self.writer.change(changes)

    async def _record(self, ref: AggregateRef, correlation: str, event: Event, term: Term) -> None:
        """Append a fact if this instance still leads, and wait until it is folded.

        Raises:
            NotWritten: The log does not store it: it is full, does not answer, or the fact is too large.
        """
        if self.leading.is_over(term):
            return
        last, position = self.builder.state.last_seq(ref), self.builder.state.position
        origin = Origin(
            causation_id=f"{ref}/{last}/{position}",
            correlation_id=correlation,
            actor=self.actor,
            epoch=term.epoch,
            occurred_at=rfc3339(self.clock.now()),
            based_on=position,
        )
        try:
            outcome = await self.log.append(CATALOGUE.seal([Draft(ref, event, last)], origin))
        except Unsendable as error:  # of this drain only; the others go on
            raise NotWritten(f"{type(event).__name__} cannot be recorded: {error}") from error
        match outcome:
            case Appended(last_seq=seq):
                self.logger.info("drain_step", aggregate=str(ref), step=type(event).__name__)
                await self.leading.folded(seq)
            case Conflict():
                self.logger.warning("drain_not_recorded", aggregate=str(ref), outcome=str(outcome))
            case _:
                raise NotWritten(f"{type(event).__name__} is not recorded: {outcome.reason}")
