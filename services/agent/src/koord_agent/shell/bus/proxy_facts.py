"""The socket through which the CRI proxy of the node appends its facts to the log. Only root may use it.

    CRI proxy: fact on disk --Append--> agent --append--> log --outcome--> agent --> CRI proxy: fact forgotten

The agent keeps nothing. If it ends before its answer, the proxy sends the same fact again, and the log knows its id.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from koordcore.bus.client.connection import Denied, NoAnswer
from koordcore.bus.write.own_facts import OwnFacts
from koordcore.ports.eventlog import KnownId, Misconfigured, Unsendable
from koordcore.runtime_api.proxy_facts import APPEND, LARGEST_FACT, LAST_OF, SERVICE, AppendAnswer, LastAnswer
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.facts import accepted_fact, aggregate_of_proxy
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.grpc.unix_server import UnixServer

APPEND_SECONDS: Final = 8.0
"""Shorter than the proxy waits for an answer."""
CALL_SECONDS: Final = 30.0


class ProxyFactServer(UnixServer):
    """Appends facts of the CRI proxy of a node to the log. Create it in the event loop of the service."""

    def __init__(self, socket: Path, node: str, link: BusLink) -> None:
        self._node = node
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # the log takes one append of an aggregate at a time
        handlers = {APPEND: self._handler_of(self._append), LAST_OF: self._handler_of(self._last_of)}
        generic: Any = grpc.method_handlers_generic_handler
        super().__init__(
            socket, generic(SERVICE, handlers), name="proxy-facts", mode=0o600, largest_request=LARGEST_FACT
        )

    def _handler_of(self, answer: Callable[[bytes], Awaitable[object]]) -> Any:
        async def answered(request: bytes) -> bytes:
            return codec.encode(await answer(request))

        def handle(request: bytes, context: Any) -> bytes:
            try:
                return asyncio.run_coroutine_threadsafe(answered(request), self._loop).result(CALL_SECONDS)
            except KnownId as error:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
            except (InvalidInput, Unsendable) as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except (Misconfigured, Denied) as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except (NoAnswer, TimeoutError) as error:
                context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise AssertionError("abort raises")

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(handle)

    async def _append(self, request: bytes) -> AppendAnswer:
        fact, log = accepted_fact(request, self._node), self._log()
        async with self._turn:
            return AppendAnswer(await log.append([fact], deadline=APPEND_SECONDS))

    async def _last_of(self, _: bytes) -> LastAnswer:
        return LastAnswer(await self._log().last_of(aggregate_of_proxy(self._node)))

    def _log(self) -> OwnFacts:
        if self._link.ports is None:
            raise NoAnswer(f"the agent has no connection to the log: {self._link.trouble()}")
        return self._link.ports.facts
