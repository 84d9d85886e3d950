"""Appends decisions from the outbox to the log, several batches at a time, and applies the log's answers to the state.

    take -> seal -> append -> stored        the decisions are confirmed
                           -> conflict      each part is appended alone; refused again, its pods are decided again
                           -> unavailable   the same bytes are sent again until the log answers
                           -> full          the decisions are taken back; no more are taken for a second
                           -> too large     pods with too large events are taken back with an explanation
                           -> too many      so is a gang that has more events than the log stores at once

An atomic append costs the log server about as much for one fact as for many. So small appends begin at most 50 times a
second, and the decisions made meanwhile share the next one. At more than 200 decisions a second, 20 appends are enough.

Source: event-bus spec, 4.2, 4.3
"""

import asyncio
from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.bus.write.append import known_up_to
from koordcore.events.envelope import AggregateRef, NewEvent, Origin
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import (
    Appended,
    Conflict,
    EventLog,
    Full,
    ObservationLog,
    TooLarge,
    TooMany,
    Unavailable,
)
from koordcore.service.clock import SystemClock, host_unix_nanos
from koordcore.service.failpoints import failpoint
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.loop.commit.outbox import MOST_PER_BATCH
from koord_scheduler.domain.loop.commit.status_writes import TakenStatusWrite
from koord_scheduler.domain.loop.commit.work import Placement, pod_ref
from koord_scheduler.domain.loop.controllers import status_facts
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation, abandoned
from koord_scheduler.domain.loop.folding.log import fold_ahead
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.monitoring import Monitor
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.sealing import Header, Part, Sealed, fitting, seal_gang, seal_notice, seal_work

BETWEEN_APPENDS_SECONDS: Final = 0.02
"""Minimum time from the start of any append to the start of the next small one."""
AFTER_MANY_SECONDS: Final = 0.05
"""The same time after an append of more than `FEW` decisions."""
FEW: Final = 4
"""Most decisions of an append after which the short pause is enough: fewer than 200 decisions a second."""


class Pace:
    """Tells when the next small append may begin. If none began for a while, the next may begin at once. `due`: called
    when an append that had to wait may begin.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def began(self, decisions: int) -> None:
        """Record that an append with this number of decisions begins. The next small one waits 20 or 50 ms from now."""
        pause = BETWEEN_APPENDS_SECONDS if decisions <= FEW else AFTER_MANY_SECONDS
        self._next_at = asyncio.get_running_loop().time() + pause

    def may_begin(self) -> bool:
        """Return whether a small append may begin now. If False, `due` is called as soon as it may."""
        loop = asyncio.get_running_loop()
        if self._timer is None and loop.time() < self._next_at:
            self._timer = loop.call_at(self._next_at, self._is_due)
        return self._timer is None

    def _is_due(self) -> None:
        self._timer = None
        self._due()


MOST_IN_FLIGHT: Final = 6
"""Batches at a time. The server allows 50 per stream, the spec 20 per scheduler; by measurement, more do not help."""
WORTH_A_BATCH: Final = 50
"""Number of decisions that are appended at once even though another append is in flight."""
FULL_PAUSE_SECONDS: Final = 1.0
"""Pause of all decisions after the log was full, in seconds of the host."""
_SPAN: Final = "schedule pod"
_HOST: Final = SystemClock()


@dataclass(eq=False)
class Publisher:
    """Appends decisions, statuses and explanations to the log."""

    state: SchedulerState  # With the outbox of decisions
    log: EventLog
    explanations: ObservationLog
    _: KW_ONLY
    clock: Clock  # The time in events and of back-offs; faster than the host's clock if the run is accelerated
    tracer: Tracer
    metrics: SchedulerMetrics
    monitor: Monitor
    logger: Logger
    actor: str  # Name of this instance in events
    epoch: Callable[[], int]  # Fencing number of the present term as leader; 0 if this instance does not lead
    changed: Callable[[], None]  # Called after every answer of the log
    is_full: bool = field(default=False, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]], init=False)
    _batches: set[asyncio.Task[None] | None] = field(default_factory=set[asyncio.Task[None] | None], init=False)
    _failure: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.changed)

    @property
    def in_flight(self) -> int:
        """Appends that the log has not answered yet."""
        return len(self._tasks)

    def is_busy(self) -> bool:
        """Return True if the outbox and the appends in flight are full, so that further decisions would only wait."""
        return len(self._tasks) >= MOST_IN_FLIGHT and len(self.state.assumed.outbox) >= MOST_PER_BATCH

    def raise_failure(self) -> None:
        """Raise the exception with which an append failed: a bug or a misconfiguration. No-op if none failed."""
        if self._failure is not None:
            raise self._failure

    def put_status_writes(self, now: float) -> None:
        """Queue the status writes that are due at `now`, in Unix seconds of the service's `Clock`."""
        began = _HOST.monotonic()
        due = status_facts(self.state, now)
        for write in due:
            self.state.status.writes.put(write)
        if due:
            self.metrics.status_seconds.observe(_HOST.monotonic() - began)

    def pump(self) -> None:
        """Start to append work from the outbox and due status writes, as far as the limits allow. It does not wait for
        answers.
        """
        while self._may_start() and self.state.assumed.outbox.has_ready():
            for parts in fitting(self._taken()):
                for part in parts:
                    self.state.log.own.sent([event for node in part.nodes for event in node.events()])
                batch = self._start(self._carry_out(parts, host_unix_nanos()))
                self._pace.began(sum(len(node.pods) for part in parts for node in part.nodes))
                self._batches.add(batch)
                batch.add_done_callback(self._batches.discard)
        while (taken := self.state.status.next()) is not None:
            self._start(self._notify(taken, seal_notice(taken, self._header())))
        self.metrics.in_flight.set(len(self._tasks))

    def _may_start(self) -> bool:
        """Return whether an append may start now. Few decisions wait a moment, and for the previous append's answer."""
        if len(self.state.assumed.outbox) < WORTH_A_BATCH and (self._batches or not self._pace.may_begin()):
            return False
        return len(self._tasks) < MOST_IN_FLIGHT

    def _taken(self) -> list[Part]:
        """Take work for about one append from the outbox and seal it: whole gangs, and nodes that are independent."""
        failpoint("after_reserve_before_seal")
        header, room = self._header(), MOST_PER_BATCH
        parts: list[Part] = []
        while room > 0 and self.state.assumed.outbox.has_ready():
            batch = self.state.assumed.outbox.take(room)
            room -= len(batch.items)
            drafts = self.state.commits.drafts_of(batch)
            nodes = [seal_work(node, header, self.tracer) for node in drafts.nodes]
            if drafts.gang is None:
                parts += [Part([node]) for node in nodes]
            else:
                parts.append(Part(nodes, seal_gang(drafts.gang, nodes, header)))
        return parts

    def _header(self) -> Header:
        return Header(self.actor, self.epoch(), rfc3339(self.clock.now()), self.state.log.position)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def flush(self) -> None:
        """Wait until every append in flight has its answer."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def say(self, explanation: PodExplanation) -> None:
        """Publish an explanation to the stream of explanations. It is not repeated if the stream is unavailable."""
        parent = explanation.traceparent
        # Not when it is said: what the same attempt has led to, a nomination, may have been sealed before.
        at = datetime.fromtimestamp(explanation.decided_at, UTC) if explanation.decided_at else self.clock.now()
        origin = Origin(
            causation_id=explanation.cause,
            correlation_id=explanation.uid,
            actor=self.actor,
            occurred_at=rfc3339(at),
            epoch=self.epoch(),
            based_on=self.state.log.position,
            traceparent=parent,
            tracestate=explanation.tracestate,
        )
        await self.explanations.publish(pod_ref(explanation.uid), explanation.event, origin)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self.changed()

    async def _notify(self, taken: TakenStatusWrite, events: Sequence[NewEvent]) -> None:
        try:
            outcome = await self._append(events)
        except TooLarge as error:
            # The same status would be refused again. The next one is published when the status changes.
            self.logger.error("fact_too_large", aggregate=str(events[0].ref), reason=str(error))
            self.state.status.refused(taken, for_good=True)
            return
        match outcome:
            case Appended(seqs=seqs):
                self.state.status.stored(taken, seqs)
            case Conflict():
                for event in events:
                    await self._read_ahead(event.ref, known_up_to(event))
                self.state.status.refused(taken)
            case Full():
                self.state.status.refused(taken)

    async def _carry_out(self, parts: Sequence[Part], started_nanos: int) -> None:
        failpoint("before_append")
        watched = self.monitor.begin([item for part in parts for node in part.nodes for item in node.drafts.work.items])
        try:
            await self._stored(parts, started_nanos)
        finally:
            self.monitor.end(watched)

    async def _stored(self, parts: Sequence[Part], started_nanos: int) -> None:
        try:
            outcome = await self._append([event for part in parts for event in part.events()])
        except TooLarge as error:
            await self._without_large(parts, error, started_nanos)
            return
        except TooMany as error:
            await self._fewer(parts, error, started_nanos)
            return
        self._batches.discard(asyncio.current_task())  # what is decided from here on need not wait for what follows
        failpoint("after_append_before_confirm")
        match outcome:
            case Appended(seqs=seqs):
                at = 0
                for part in parts:
                    for node in part.nodes:
                        until = at + len(node.pods)
                        self._confirm(node, seqs[until], seqs[at:until], started_nanos)
                        at = until + 1
                    if part.gang is not None:
                        self.state.status.in_log(part.gang.ref, seqs[at])
                        at += 1
            case Conflict(moved=moved):
                await self._one_by_one(parts, {ref for ref, _ in moved}, started_nanos)
            case Full(reason=reason):
                await self._full(parts, reason)

    async def _one_by_one(self, parts: Sequence[Part], moved: set[AggregateRef], started_nanos: int) -> None:
        """Append each part alone. Take back a part whose aggregates have changed, or that was alone already. `moved`:
        the aggregates that have newer events than expected. `started_nanos`: start of the append in unix nanoseconds of
        the host.
        """
        stale = [part for part in parts if len(parts) == 1 or any(event.ref in moved for event in part.events())]
        for part in stale:
            await self._refold(part, moved)
        for part in [part for part in parts if part not in stale]:
            await self._carry_out([part], started_nanos)

    async def _without_large(self, parts: Sequence[Part], error: TooLarge, started_nanos: int) -> None:
        """Append the parts whose events are small enough. Take the others back, and explain it to the pods at fault.
        `started_nanos`: start of the append in unix nanoseconds of the host. Raises TooLarge: no pod is at fault.
        """
        large = [part for part in parts if any(event.ref in error.refs for event in part.events())]
        fitting = [part for part in parts if part not in large]
        for part in large:
            at_fault = _at_fault(part, error.refs)
            if not at_fault:
                raise error
            self._fold_others(part)
            await self._abandon(part, f"the decision cannot be stored: {error}", at_fault=at_fault)
        if fitting:
            await self._carry_out(fitting, started_nanos)

    async def _append(self, events: Sequence[NewEvent]) -> Appended | Conflict | Full:
        """A process that stood still past its lease sends nothing: another instance may have decided meanwhile.

        What was sent before cannot be taken back. The log refuses it if the pod or the node has changed since.
        """
        if not self.epoch():
            return Conflict()
        while True:
            outcome = await self.log.append(events)
            if not isinstance(outcome, Unavailable):
                return outcome
            self.logger.warning("log_unavailable", events=len(events), reason=outcome.reason)

    def _confirm(self, part: Sealed, node_seq: int, pod_seqs: Sequence[int], started_nanos: int) -> None:
        self.state.log.own.stored(part.events())
        self.state.commits.confirmed(part.drafts.work, node_seq, pod_seqs, part.node.event_id)
        now = self.clock.unix()
        for item, (context, parent) in zip(part.drafts.work.items, part.spans, strict=True):
            if not isinstance(item, Placement):
                continue
            self.metrics.of(self.state.profile_of(item.uid)).scheduled.inc()
            if item.queued_at:
                self.metrics.sli_seconds.observe(max(0.0, now - datetime.fromisoformat(item.queued_at).timestamp()))
            if context.sampled and self.tracer.exports:
                self.tracer.finish(
                    _SPAN,
                    context,
                    parent,
                    links=(),
                    attributes={"pod.uid": item.uid, "node": item.node, "attempt": item.attempt},
                    start_nanos=started_nanos,
                    error="",
                )

    async def _fewer(self, parts: Sequence[Part], error: TooMany, started_nanos: int) -> None:
        """Append each part alone. Take back a gang that alone has more events than the log stores at once, and explain
        it to its pods. `started_nanos`: start of the append in unix nanoseconds of the host. Raises TooMany: the log
        takes not even the decisions on one node.
        """
        if len(parts) > 1:
            for part in parts:
                await self._carry_out([part], started_nanos)
            return
        [part] = parts
        if part.gang is None:
            raise error
        self._fold_others(part)
        await self._abandon(part, f"placing gang {part.gang_id()} takes {error}")

    async def _refold(self, part: Part, moved: set[AggregateRef]) -> None:
        """Read what others wrote to the aggregates of a refused part, then take its assumptions back. `moved`: the
        aggregates that have newer events; empty if that is unknown.
        """
        self._fold_others(part)
        for event in part.events():
            if not moved or event.ref in moved:
                await self._read_ahead(event.ref, known_up_to(event))
        self.metrics.refolds.inc(sum(len(node.drafts.work.items) for node in part.nodes))
        failpoint("after_refold_before_redecide")
        await self._abandon(part)

    async def _abandon(self, part: Part, hopeless: str = "", *, at_fault: Container[str] | None = None) -> None:
        """Take a refused part back, all of it before anything is decided again: a member of a gang that alone is taken
        back would be placed alone. Explain it to the pods that were refused too often or for good; these wait.
        `hopeless`: why the log will never store the part; "" if it may store it later. `at_fault`: uids of the pods
        that wait; the others are decided again at once. None stands for all pods.
        """
        now = self.clock.unix()
        waiting = [
            (placement, node.drafts.work.node, reason)
            for node in part.nodes
            for placement, reason in self.state.commits.refused(
                node.drafts.work, now, hopeless=hopeless, at_fault=at_fault
            )
        ]
        for placement, node, reason in waiting:
            self.metrics.of(self.state.profile_of(placement.uid)).refused.inc()
            self.logger.warning("decision_abandoned", pod_uid=placement.uid, node=node)
            await self.say(abandoned(placement, reason))

    def _fold_others(self, part: Part) -> None:
        for stored in self.state.log.own.refused(part.events()):
            fold_ahead(self.state, stored)

    async def _read_ahead(self, ref: AggregateRef, after: int) -> None:
        """Fold the events about an aggregate that others have written, before the fold runner brings them."""
        for stored in await patiently(lambda: self.log.read_aggregate(ref, after=after)):
            try:
                fold_ahead(self.state, stored)
            except UnreadableEvent as error:
                # The follower halts before the same event and tells an operator.
                self.logger.error("event_unreadable", seq=error.seq, reason=error.reason)
                break

    async def _full(self, parts: Sequence[Part], reason: str) -> None:
        if not self.is_full:
            self.logger.error("log_full", reason=reason)
        self.is_full = True
        for part in parts:
            self._fold_others(part)
            for node in part.nodes:
                self.state.commits.refused(node.drafts.work, self.clock.unix(), blame=False)
        await asyncio.sleep(FULL_PAUSE_SECONDS)
        self.is_full = False


def _at_fault(part: Part, large: Container[AggregateRef]) -> frozenset[str]:
    """Return the pods because of which a part is too large. Returns All pods of a gang; else those whose own event is
    too large; else the pod with the largest event.
    """
    places = [item.uid for node in part.nodes for item in node.drafts.work.items if isinstance(item, Placement)]
    if part.gang is not None:
        return frozenset(places)
    sizes = {event.ref.id: len(event.body) for event in part.events() if event.ref.kind == "pod"}
    own = frozenset(uid for uid in places if pod_ref(uid) in large)
    return own or frozenset(sorted(places, key=lambda uid: sizes.get(uid, 0))[-1:])
