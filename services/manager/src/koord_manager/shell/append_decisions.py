"""What the control round decided -> the log; what nodes' agents have to know -> their desired state.

source    event-bus spec, 2 (KV koord_desired), 4.2, 4.3
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from koordcore.bus.adapters.desired import BucketRefused
from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.events.envelope import Draft, Origin, name_token
from koordcore.ports.eventlog import Appended
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import node_name
from koord_manager.domain.configuration.node_policies import NodePolicies
from koord_manager.domain.nodes.desired_state import desired_node
from koord_manager.domain.retry_backoff import Isolation
from koord_manager.shell.appender import Decision, NotAppended, append_each
from koord_manager.shell.context import ManagerContext, epoch_of, reached

DESIRED_WRITES_AT_ONCE = 64
APPEND = "append"
DESIRED = "desired"


async def append_all(context: ManagerContext, isolation: Isolation, drafts: Sequence[Draft], now: datetime) -> int:
    """Appends drafts that each stand for themselves; what the log refuses is decided anew in the next round."""
    return len(await append_groups(context, isolation, [[draft] for draft in drafts], now))


async def append_groups(
    context: ManagerContext, isolation: Isolation, groups: Sequence[list[Draft]], now: datetime
) -> list[Draft]:
    """Appends groups of drafts, each all or none; those that were stored. Nothing is once the term is over.

    A group that cannot be sent is held apart, and tried again when that is due.
    """
    held = [group for group in groups if isolation.is_held(APPEND, str(group[0].ref))]
    for group in held:
        _decide_again(context, group)
    groups = [group for group in groups if group not in held] if held else groups
    if not groups:
        return []
    if context.leadership.term is None:
        for group in groups:
            _decide_again(context, group)
        return []
    occurred_at, position = rfc3339(now), context.view.state.position
    decisions: list[Decision] = []
    for group in groups:
        draft = group[0]
        with context.tracer.span(f"manager.{type(draft.event).__name__}") as span:
            origin = Origin(
                causation_id=f"control/{draft.ref}/{draft.expected_last}/{position}",
                correlation_id=draft.ref.id,
                actor=context.actor,
                epoch=epoch_of(context),
                occurred_at=occurred_at,
                based_on=position,
                traceparent=span.context.traceparent,
            )
        decisions.append(Decision(group, origin))
    outcomes = await append_each(context.log, decisions)
    await context.folded(max((reached(outcome) for outcome in outcomes), default=0))
    stored: list[Draft] = []
    for group, outcome in zip(groups, outcomes, strict=True):
        if context.metrics is not None:
            context.metrics.decided((draft.event for draft in group), stored=isinstance(outcome, Appended))
        if isinstance(outcome, Appended):
            isolation.mended(APPEND, str(group[0].ref))
            stored += group
            continue
        if isinstance(outcome, NotAppended):
            isolation.failed(APPEND, str(group[0].ref), outcome.error)
        context.logger.warning("decision_refused", aggregate=str(group[0].ref), outcome=type(outcome).__name__)
        _decide_again(context, group)
    return stored


def _decide_again(context: ManagerContext, group: list[Draft]) -> None:
    if group[0].ref.kind == "config":
        context.view.config_touched = True
        return
    context.view.touched_nodes.add(group[0].ref.id)
    context.view.touched_inputs.add(group[0].ref.id)


async def write_desired(context: ManagerContext, policies: NodePolicies, isolation: Isolation) -> int:
    """Writes the desired state of touched nodes, a bounded number at once; a failed write is repeated.

    A node's first state is written at once; later ones are gathered for `desired_seconds`, since every change also
    reaches the agent as a push.
    """
    view = context.view
    view.touched_desired |= set(map(name_token, isolation.due(DESIRED)))
    now = asyncio.get_running_loop().time()
    if now - context.term_state.flushed_at >= context.desired_seconds:
        context.term_state.flushed_at = now
        touched = sorted(view.touched_desired)
    else:
        touched = sorted(view.touched_desired - context.term_state.nodes)
    view.touched_desired.difference_update(touched)
    room = asyncio.Semaphore(DESIRED_WRITES_AT_ONCE)

    async def write(token: str) -> None:
        node = view.node(token)
        async with room:
            try:
                desired = desired_node(view, token, policies.colocation(token, node)) if node else None
                if desired is None:
                    await context.desired.delete(node_name(token))
                    context.term_state.nodes.discard(token)
                else:
                    await context.desired.put(desired)
                    context.term_state.nodes.add(token)
            except (NoAnswer, NotConnected, BucketRefused) as error:
                context.logger.warning("desired_not_written", node=token, error=str(error))
                view.touched_desired.add(token)
            except Exception as error:  # noqa: BLE001 - told with its cause; its agent keeps what it was told last
                isolation.failed(DESIRED, node_name(token), error)
            else:
                isolation.mended(DESIRED, node_name(token))

    await asyncio.gather(*(write(token) for token in touched))
    return len(touched)
