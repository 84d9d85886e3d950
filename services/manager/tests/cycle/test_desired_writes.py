"""Desired states of nodes across terms of leadership: a former leader writes none, a new one writes each at once."""

from collections.abc import Awaitable, Callable
from typing import cast

from koord_manager.cycle import run_cycle
from koord_manager.shell.context import reason_not_to_decide
from koordcore.bus.adapters.desired import JetStreamDesiredStore
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import Reply
from koordcore.bus.names import BusNames
from koordcore.ports.leadership import Term
from support.manager.loops import NODE, AlwaysLeading, Manager, running


class Breaking:
    """A connection that leaves the first request unanswered. Before it answers the next one, `broken` is called."""

    def __init__(self, broken: Callable[[], None]) -> None:
        self.requests = 0
        self._broken = broken

    async def patiently(self, ask: Callable[[], Awaitable[Reply]], what: str, *, deadline: float) -> Reply:
        del what, deadline
        while True:
            try:
                return await ask()
            except NoAnswer:
                self._broken()

    async def request(self, subject: str, payload: bytes = b"", *, header: bytes = b"") -> Reply:
        del subject, payload, header
        self.requests += 1
        if self.requests == 1:
            raise NoAnswer("the connection broke")
        return Reply(b"", b'{"seq": 1}')


async def test_a_leader_whose_term_ends_while_the_log_is_away_writes_no_state_when_the_log_returns() -> None:
    manager, leadership = Manager(MemoryLog()), AlwaysLeading()

    def lose() -> None:
        leadership.term = None

    connection = Breaking(lose)
    store = JetStreamDesiredStore(cast("BusConnection", connection), BusNames("test"))
    manager.context = manager.context._replace(leadership=leadership, desired=store)
    async with running(manager):
        await manager.apply(NODE)
        await run_cycle(manager.context, manager.policies)
        assert connection.requests == 1
        leadership.term = Term("test", 2, 0.0)
        await run_cycle(manager.context, manager.policies)
        assert connection.requests == 2


async def test_a_new_term_writes_the_first_state_of_a_node_at_once() -> None:
    manager, leadership = Manager(MemoryLog()), AlwaysLeading()
    manager.context = manager.context._replace(leadership=leadership, desired_seconds=float("inf"))
    manager.context.term_state.flushed_at = 0.0
    async with running(manager):
        await manager.apply(NODE)
        await run_cycle(manager.context, manager.policies)
        await manager.desired.delete("n.1")  # as another leader does when the node is deleted
        leadership.term = Term("test", 3, 0.0)
        assert await reason_not_to_decide(manager.context) is None
        await manager.apply(NODE.replace("metadata: {name: n.1}", "metadata: {name: n.1, labels: {v: x}}"))
        await run_cycle(manager.context, manager.policies)
        assert await manager.desired.get("n.1") is not None
