"""The RuntimeHookService of the agent: gRPC on a unix socket, for a CRI proxy on the same machine.

Its threads answer; they never wait for a cycle. Source: runtime spec, 2.10, 4.
"""

from pathlib import Path
from typing import Any

import grpc
from koordcore.runtime_api.hooks import CONTAINER_CALLS, POD_CALLS, SERVICE, messages_of_call, service_descriptors

from koord_agent.shell.grpc.unix_server import UnixServer
from koord_agent.shell.hooking.answering import HookAnswers
from koord_agent.shell.hooking.messages import Message, call_of_request, response_of


class HookServer(UnixServer):
    """Serves the RuntimeHookService. Its socket can change every container of the machine.

    Args:
        socket: Path of the socket.
        answers: Answers the calls.
        runtime: Container runtime of the machine, such as `containerd`.
    """

    def __init__(self, socket: Path, answers: HookAnswers, *, runtime: str) -> None:
        self._answers = answers
        self._runtime = runtime
        handlers = {rpc: self._handler_of(rpc) for rpc in (*POD_CALLS, *CONTAINER_CALLS)}
        generic: Any = grpc.method_handlers_generic_handler
        super().__init__(socket, generic(SERVICE, handlers), name="hooks", extend=_describe)

    def _handler_of(self, rpc: str) -> Any:
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


def _describe(server: Any) -> None:
    """Let clients such as grpcurl ask the server for its methods and messages (runtime spec, 2.10)."""
    from grpc_reflection.v1alpha import reflection

    known: Any = reflection
    known.enable_server_reflection((SERVICE, known.SERVICE_NAME), server, service_descriptors())
