"""The gRPC server of the proxy: every call is passed on as bytes, and the intercepted ones go through the interceptor.

gRPC carries unary calls and streams in the same form. So a call of an unknown method is served and passed on as a
stream of messages.

Source: runtime spec, 5.2.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from koordcore.service.telemetry.logging import logger

from koord_criproxy.domain.calls import UNARY, intercepted_call
from koord_criproxy.shell.channels import OPTIONS, address
from koord_criproxy.shell.dispatcher import HookRejected
from koord_criproxy.shell.hook_client import REMAINING_SECONDS
from koord_criproxy.shell.interceptor import Interceptor, RuntimeAnswer
from koord_criproxy.shell.sockets import private_socket

DRAIN_SECONDS: Final = 10.0
_log: Final = logger("criproxy")
_OWN_METADATA: Final = ("user-agent", "content-type", "te", "grpc-accept-encoding", "grpc-encoding", "grpc-timeout")
"""Metadata that gRPC itself writes for each connection."""

CallObserver = Callable[[str, str, float], None]
"""Takes the method, the status of the answer, and the seconds that the proxy itself added."""

Metadata = Sequence[tuple[str, str | bytes]]


class ProxyServer:
    """Serves CRI on a unix socket in front of a container runtime.

    Args:
        socket: Socket to serve.
        runtime: Channel to the container runtime.
        images: Channel for the ImageService; often the same one.
        interceptor: Carries out the intercepted calls.
        observe: Called for every call, for the metrics.
    """

    def __init__(
        self,
        socket: Path,
        *,
        runtime: grpc.aio.Channel,
        images: grpc.aio.Channel,
        interceptor: Interceptor,
        observe: CallObserver,
    ) -> None:
        self._socket = socket
        self._runtime = runtime
        self._images = images
        self._interceptor = interceptor
        self._observe = observe
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen on the socket, which only its owner and group may use. A stale socket is removed.

        Raises:
            OSError: The socket or its folder cannot be made.
        """
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((_AnyMethod(self._serve_unary, self._serve_stream),))
        with private_socket(self._socket):
            server.add_insecure_port(address(str(self._socket)))
            await server.start()
        self._server = server

    async def stop(self) -> None:
        """Accept no more calls, let those in progress end for up to 10 s, and remove the socket."""
        if self._server is not None:
            await self._server.stop(DRAIN_SECONDS)
            self._socket.unlink(missing_ok=True)

    async def _serve_stream(self, method: str, requests: AsyncIterator[bytes], context: Any) -> None:
        """Forward a call of any kind between client and runtime, message by message in both directions."""
        status = "OK"
        try:
            make: Any = self._channel(method).stream_stream
            call = make(method)(requests, metadata=_sent_metadata(context), timeout=context.time_remaining())
            try:
                await _begin(call, context)
                async for message in call:
                    await context.write(message)
            except grpc.aio.AioRpcError:
                pass  # the status says it
            except asyncio.CancelledError:
                call.cancel()
                raise
            status = await _end(call, context)
        finally:
            self._observe(method, status, 0.0)

    async def _serve_unary(self, method: str, body: bytes, context: Any) -> bytes:
        """Carry out a call with one request and one answer, through the interceptor if it is intercepted.

        Return the answer of the runtime.
        """
        name = intercepted_call(method)
        began, inside, status = time.monotonic(), 0.0, "OK"
        call: Any = None

        async def runtime(request: bytes) -> RuntimeAnswer:
            nonlocal call, inside
            began = time.monotonic()
            make: Any = self._channel(method).unary_unary
            call = make(method)(request, metadata=_sent_metadata(context), timeout=context.time_remaining())
            try:
                return RuntimeAnswer(body=await call, is_ok=True)
            except grpc.aio.AioRpcError:
                return RuntimeAnswer(body=b"", is_ok=False)
            finally:
                inside = time.monotonic() - began

        try:
            if name is None:
                answer = await runtime(body)
            else:
                REMAINING_SECONDS.set(context.time_remaining())
                answer = await self._interceptor.call(name, body, runtime)
            await _begin(call, context)
            status = await _end(call, context)
            return answer.body
        except HookRejected as error:
            status = grpc.StatusCode.UNKNOWN.name
            _log.warning("call_rejected", call=name, error=str(error))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise AssertionError("abort raises") from error
        except asyncio.CancelledError:
            if call is not None:
                call.cancel()
            raise
        finally:
            self._observe(method, status, max(0.0, time.monotonic() - began - inside) if name else 0.0)

    def _channel(self, method: str) -> grpc.aio.Channel:
        return self._images if ".ImageService/" in method else self._runtime


class _AnyMethod(grpc.GenericRpcHandler):
    """Serves every method of every service: those with one request and one answer, and all others as streams."""

    def __init__(
        self,
        unary: Callable[[str, bytes, Any], Awaitable[bytes]],
        stream: Callable[[str, AsyncIterator[bytes], Any], Awaitable[None]],
    ) -> None:
        self._unary = unary
        self._stream = stream

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        async def answer(body: bytes, context: Any) -> bytes:
            return await self._unary(method, body, context)

        async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
            await self._stream(method, requests, context)

        make_unary: Any = grpc.unary_unary_rpc_method_handler
        make_stream: Any = grpc.stream_stream_rpc_method_handler
        return make_unary(answer) if method in UNARY else make_stream(handle)


async def _begin(call: Any, context: Any) -> None:
    """Give the initial metadata of the runtime to the client. Without any, it goes with the first message."""
    metadata = _passed_on(await call.initial_metadata())
    if metadata:
        await context.send_initial_metadata(metadata)


async def _end(call: Any, context: Any) -> str:
    """Give the status, its details and the trailing metadata of the runtime to the client; return the status."""
    code, details, trailing = await call.code(), await call.details(), await call.trailing_metadata()
    context.set_trailing_metadata(_passed_on(trailing))
    context.set_code(code)
    context.set_details(details or "")
    return code.name


def _sent_metadata(context: Any) -> Metadata:
    return _passed_on(context.invocation_metadata())


def _passed_on(metadata: Any) -> Metadata:
    return tuple((key, value) for key, value in metadata or () if key.lower() not in _OWN_METADATA)
