"""The RuntimeHookService of the agent: gRPC on a unix socket, for a CRI proxy on the same machine.

Its threads answer; they never wait for a cycle. Source: runtime spec, 2.10, 4.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
from koordcore.runtime_api.cri import LARGEST_MESSAGE
from koordcore.runtime_api.hooks import CONTAINER_CALLS, POD_CALLS, SERVICE, messages_of_call

from koord_agent.shell.hooking.answering import HookAnswers
from koord_agent.shell.hooking.messages import Message, call_of_request, response_of

THREADS: Final = 4
SOCKET_MODE: Final = 0o660
GRACE_SECONDS: Final = 2.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
)


class HookServer:
    """Serves the RuntimeHookService.

    Args:
        socket: Path of the socket.
        answers: Answers the calls.
        runtime: Container runtime of the machine, such as `containerd`.
    """

    def __init__(self, socket: Path, answers: HookAnswers, *, runtime: str) -> None:
        self._socket = socket
        self._answers = answers
        self._runtime = runtime
        self._server: Any = None

    @property
    def is_serving(self) -> bool:
        """Whether the socket accepts calls."""
        return self._server is not None

    def start(self) -> None:
        """Remove a socket that an earlier process left, listen, and serve.

        Only the owner and the group of the process may use the socket, because it can change every container.

        Raises:
            OSError: The socket cannot be created.
        """
        self._socket.unlink(missing_ok=True)
        make: Any = grpc.server
        server = make(ThreadPoolExecutor(THREADS, thread_name_prefix="hooks"), options=_OPTIONS)
        handlers = {rpc: self._handler(rpc) for rpc in (*POD_CALLS, *CONTAINER_CALLS)}
        generic: Any = grpc.method_handlers_generic_handler
        server.add_generic_rpc_handlers((generic(SERVICE, handlers),))
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            server.add_insecure_port(f"unix://{self._socket}")
        except RuntimeError as error:
            raise OSError(f"{self._socket}: {error}") from error
        finally:
            os.umask(before)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Take no more calls, and wait for those that are running."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(GRACE_SECONDS).wait()

    def _handler(self, rpc: str) -> Any:
        request_class, response_class = messages_of_call(rpc)

        def answer(request: Message, context: Any) -> Message:
            result = self._answers.answer(call_of_request(rpc, request, runtime=self._runtime))
            if result.failed:
                context.abort(grpc.StatusCode.UNKNOWN, result.error)
            return response_of(rpc, request, result.values)

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(
            answer, request_deserializer=request_class.FromString, response_serializer=response_class.SerializeToString
        )
