"""Write the desired state of nodes to the key-value bucket that their agents read.

Source:
    event-bus spec, 2 (KV koord_desired)
"""

import asyncio
from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.events.envelope import name_from_token

from koord_manager.domain.controller_names import DESIRED_STATE
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.domain.controllers.desired_state import desired_node
from koord_manager.shell.context import ManagerContext

WRITES_AT_ONCE: Final = 64


class _TermEnded(Exception):
    """The term of leadership in which a state was decided has ended."""


async def write_desired_states(context: ManagerContext, policies: NodePolicies) -> int:
    """Write the desired states of queued nodes to the key-value bucket, and return the number of attempted nodes.

    The first state of a node is written at once. Later changes are collected for `desired_seconds`, because the agent
    also receives them as events. The state of a node that does not exist is deleted. If the log does not answer, the
    node is queued again. If the bucket refuses a write, for example because it is full, the node waits for a back-off.

    Before each attempt, the term of leadership is checked. After its end nothing is written, because another instance
    writes newer states. The node stays in the queue for the next term.
    """
    view, term_state, term = context.view, context.term_state, context.leadership.term
    queue = view.queue
    now = asyncio.get_running_loop().time()
    if now - term_state.flushed_at >= context.desired_seconds:
        term_state.flushed_at = now
        tokens = queue.take(DESIRED_STATE)
    else:
        tokens = queue.take(DESIRED_STATE, skip=term_state.nodes)
    slots = asyncio.Semaphore(WRITES_AT_ONCE)

    def require_term() -> None:
        if term is None or context.leadership.term != term:
            raise _TermEnded

    async def write(token: str) -> None:
        node = view.node(token)
        async with slots:
            try:
                desired = None
                if node is not None:
                    strategy = policies.colocation(token, node)
                    desired = desired_node(view, token, strategy, binds_pods=not context.standalone)
                if desired is None:
                    await context.desired.delete(name_from_token(token), require_term)
                    term_state.nodes.discard(token)
                else:
                    await context.desired.put(desired, require_term)
                    term_state.nodes.add(token)
            except _TermEnded:
                queue.add(DESIRED_STATE, token)
            except (NoAnswer, NotConnected) as error:
                context.logger.warning("desired_state_not_written", node=token, error=str(error))
                queue.add(DESIRED_STATE, token)
            except Exception as error:  # noqa: BLE001 - reported with its cause; the agent keeps the last state
                queue.fail(DESIRED_STATE, token, error)
            else:
                queue.forget(DESIRED_STATE, token)

    await asyncio.gather(*(write(token) for token in tokens))
    return len(tokens)
