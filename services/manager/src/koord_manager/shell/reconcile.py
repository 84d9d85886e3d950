"""Reconcile the keys of a controller: decide each object, append the facts, and wait until they are folded.

If a decision raises an error or cannot be stored, its key is retried with back-off. If the log refuses the facts
because an aggregate has changed, the key is decided again in the next cycle. If the log is full, the whole controller
waits, because each of its decisions would be refused. The last fact of an aggregate that has
ended is no change: the new facts are appended behind it.

Source:
    event-bus spec, 4.2, 4.3
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from koordcore.events.envelope import Draft, Origin, name_from_token
from koordcore.ports.eventlog import Appended, Conflict, Full
from koordcore.state.aggregates import WorkloadState
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import DESIRED_STATE, HEALTH, NODE_POLICIES, OVERCOMMIT, WORKLOAD
from koord_manager.shell.appender import Decision, NotAppended, append_each
from koord_manager.shell.context import ManagerContext, epoch_of, reached

KEYS_AT_ONCE: Final = 20
"""Keys that are decided before other tasks run; some milliseconds."""


FULL_SECONDS: Final = 30.0
"""Longest time until a controller tries again whether the log takes facts, in the service's time."""


class LogFull(Exception):
    """Raised if the log is full. The keys whose facts were not stored are in the queue again."""


def pause_while_full(context: ManagerContext, controller: str, full: LogFull) -> None:
    """Begin or prolong the back-off of a controller: 1, 2, 4 ... `FULL_SECONDS`. Log `full` once for each.

    The queue tells when it is over: `WorkQueue.is_backing_off` of the controller and an empty key.
    """
    if context.view.queue.add_rate_limited(controller, "", longest_delay=FULL_SECONDS, requeue=False)[2]:
        context.logger.warning("log_full", controller=controller, reason=str(full))


class Decided(NamedTuple):
    name: str  # Key of the object in the work queue
    drafts: list[Draft]  # The facts; there is at least one


Decide = Callable[[str], list[list[Draft]] | None]
"""Returns the groups of facts of one key; None if it has queued the key again itself."""


async def reconcile(
    context: ManagerContext, controller: str, names: Sequence[str], decide: Decide, now: datetime
) -> list[Draft]:
    """Decide keys of a queue, append the facts, wait until they are folded, and return those that were stored.

    Other tasks run after every `KEYS_AT_ONCE` keys, so admission answers while a whole cluster is decided. Facts that
    are folded meanwhile queue their objects again.

    Raises:
        LogFull: The log has refused facts, because it is full.
        Misconfigured: The log can store nothing.
    """
    queue = context.view.queue
    try:
        decided: list[Decided] = []
        for number, name in enumerate(names):
            if number and number % KEYS_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                groups = decide(name)
            except Exception as error:  # noqa: BLE001 - reported with its cause; one object must not stop the others
                queue.fail(controller, name, error)
                continue
            if groups:
                decided += (Decided(name, group) for group in groups)
            elif groups is not None:
                queue.forget(controller, name)
        return await append_decided(context, controller, decided, now)
    except BaseException:
        queue.add_all(controller, names)
        raise


async def append_decided(
    context: ManagerContext, controller: str, decided: Sequence[Decided], now: datetime
) -> list[Draft]:
    """Append decisions independently of each other, and return the facts that were stored.

    Keys whose facts were not stored are queued again. If the term of leadership has ended, nothing is appended.

    Raises:
        LogFull: The log has refused facts, because it is full.
        Misconfigured: The log can store nothing.
    """
    queue = context.view.queue
    if not decided:
        return []
    if context.leadership.term is None:
        queue.add_all(controller, (name for name, _ in decided))
        return []
    decisions = [_decision(context, drafts, now) for _, drafts in decided]
    outcomes = await append_each(context.log, decisions)
    again = {
        index: behind
        for index, (decision, outcome) in enumerate(zip(decisions, outcomes, strict=True))
        if isinstance(outcome, Conflict) and (behind := _behind_ended(decision, outcome)) is not None
    }
    if again:
        for index, outcome in zip(again, await append_each(context.log, list(again.values())), strict=True):
            outcomes[index] = outcome
    await context.folded(max((reached(outcome) for outcome in outcomes), default=0))
    stored: list[Draft] = []
    full = ""
    for (name, drafts), outcome in zip(decided, outcomes, strict=True):
        if context.metrics is not None:
            context.metrics.decided((draft.event for draft in drafts), stored=isinstance(outcome, Appended))
        if isinstance(outcome, Appended):
            queue.forget(controller, name)
            stored += drafts
            continue
        if isinstance(outcome, Full):
            full = outcome.reason
            queue.add(controller, name)
            continue
        context.logger.warning("decision_refused", aggregate=str(drafts[0].ref), outcome=type(outcome).__name__)
        if isinstance(outcome, NotAppended):
            queue.fail(controller, name, outcome.error)
        else:
            queue.add(controller, name)
    if full:
        raise LogFull(full)
    return stored


def _behind_ended(decision: Decision, conflict: Conflict) -> Decision | None:
    """Return the decision behind the last facts of aggregates that had ended before it; None if others have changed.

    The fold forgets an aggregate that has ended, such as the eviction of a pod, so the decision expects no facts of it.
    A fact at or before the position of the decision was folded, so that it cannot change the decision.
    """
    moved, based_on = dict(conflict.moved), decision.origin.based_on
    if not moved or any(seq > based_on for seq in moved.values()):
        return None
    drafts = [draft._replace(expected_last=moved.get(draft.ref, draft.expected_last)) for draft in decision.drafts]
    return decision._replace(drafts=drafts)


def _decision(context: ManagerContext, drafts: list[Draft], now: datetime) -> Decision:
    first, position = drafts[0], context.view.state.position
    with context.tracer.span(f"manager.{type(first.event).__name__}") as span:
        origin = Origin(
            causation_id=f"control/{first.ref}/{first.expected_last}/{position}",
            correlation_id=first.ref.id,
            actor=context.actor,
            epoch=epoch_of(context),
            occurred_at=rfc3339(now),
            based_on=position,
            traceparent=span.context.traceparent,
        )
    return Decision(drafts, origin)


_NODE_CONTROLLERS = frozenset((*NODE_POLICIES, OVERCOMMIT, HEALTH, DESIRED_STATE))


def report_failures(context: ManagerContext) -> None:
    """Log each new failure of the cycle with its object and cause, and count all failures."""
    queue = context.view.queue
    failures = queue.take_failures()
    for failure in failures:
        if failure.is_new:
            context.logger.error(
                "decision_failed",
                controller=failure.controller,
                object=object_name(context.view, failure.controller, failure.name),
                error=f"{type(failure.error).__name__}: {failure.error}",
                retries=failure.retries,
                retry_in_seconds=failure.delay_seconds,
                exc_info=failure.error,
            )
    if context.metrics is not None:
        context.metrics.failed(failures, queue.failing())


def object_name(view: ManagerView, controller: str, name: str) -> str:
    """Return the name of an object as users know it: the name of a node, or `default/web (<uid>)` for a workload."""
    if not name:
        return "(the whole controller)"
    if controller in _NODE_CONTROLLERS:
        return name_from_token(name)
    if controller == WORKLOAD:
        state = view.state.of_kind(WorkloadState).get(name)
        meta = state.object.metadata if state else None
        return f"{meta.namespace}/{meta.name} ({name})" if meta else name
    return name
