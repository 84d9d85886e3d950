"""The gRPC server of the proxy: every call is passed on as bytes, and the intercepted ones go through the interceptor.

gRPC carries unary calls and streams in the same form. So each call is served and passed on as a stream of messages,
without knowledge of its method.

Source: runtime spec, 5.2.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from koordcore.service.telemetry.logging import logger

from koord_criproxy.domain.calls import intercepted_call
from koord_criproxy.shell.channels import OPTIONS
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
        observe: Told about every call.
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
        server.add_generic_rpc_handlers((_AnyMethod(self._serve),))
        with private_socket(self._socket):
            server.add_insecure_port(f"unix://{self._socket}")
            await server.start()
        self._server = server

    async def stop(self) -> None:
        """Accept no more calls, let those in progress end for up to 10 s, and remove the socket."""
        if self._server is not None:
            await self._server.stop(DRAIN_SECONDS)
            self._socket.unlink(missing_ok=True)

    async def _serve(self, method: str, requests: AsyncIterator[bytes], context: Any) -> None:
        name = intercepted_call(method)
        began, inside, status = time.monotonic(), 0.0, "OK"
        try:
            if name is None:
                status = await self._forward(method, requests, context)
            else:
                inside, status = await self._intercept(method, name, requests, context)
        finally:
            self._observe(method, status, max(0.0, time.monotonic() - began - inside) if name else 0.0)

    async def _forward(self, method: str, requests: AsyncIterator[bytes], context: Any) -> str:
        """Pass on a call of any kind, and return the status of the answer."""
        call = self._open(method, requests, context)
        try:
            await _begin(call, context)
            async for message in call:
                await context.write(message)
        except grpc.aio.AioRpcError:
            pass  # the status says it
        except asyncio.CancelledError:
            call.cancel()
            raise
        return await _end(call, context)

    async def _intercept(
        self, method: str, name: str, requests: AsyncIterator[bytes], context: Any
    ) -> tuple[float, str]:
        """Carry out an intercepted call; return the seconds inside the runtime, and the status of the answer."""
        call: Any = None
        inside = 0.0

        async def runtime(body: bytes) -> RuntimeAnswer:
            nonlocal call, inside
            began = time.monotonic()
            call = self._open(method, _once(body), context)
            found = b""
            try:
                async for message in call:
                    found = message
                is_ok = await call.code() is grpc.StatusCode.OK
            except grpc.aio.AioRpcError:
                is_ok = False
            finally:
                inside = time.monotonic() - began
            return RuntimeAnswer(body=found, is_ok=is_ok)

        REMAINING_SECONDS.set(context.time_remaining())
        body = b"".join([message async for message in requests])
        try:
            answer = await self._interceptor.call(name, body, runtime)
        except HookRejected as error:
            _log.warning("call_rejected", call=name, error=str(error))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise AssertionError("abort raises") from error
        except asyncio.CancelledError:
            if call is not None:
                call.cancel()
            raise
        await _begin(call, context)
        if answer.is_ok:
            await context.write(answer.body)
        return inside, await _end(call, context)

    def _open(self, method: str, requests: AsyncIterator[bytes], context: Any) -> Any:
        channel = self._images if ".ImageService/" in method else self._runtime
        stream: Any = channel.stream_stream
        metadata = _passed_on(context.invocation_metadata())
        return stream(method)(requests, metadata=metadata, timeout=context.time_remaining())


class _AnyMethod(grpc.GenericRpcHandler):
    """Serves every method of every service as a stream of bytes."""

    def __init__(self, serve: Callable[[str, AsyncIterator[bytes], Any], Any]) -> None:
        self._serve = serve

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
            await self._serve(method, requests, context)

        make: Any = grpc.stream_stream_rpc_method_handler
        return make(handle)


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


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _passed_on(metadata: Any) -> Metadata:
    return tuple((key, value) for key, value in metadata or () if key.lower() not in _OWN_METADATA)
