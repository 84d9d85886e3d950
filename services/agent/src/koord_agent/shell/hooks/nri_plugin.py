"""The NRI plugin of the agent: it registers with the container runtime, answers its events, and reconnects.

A thread of its own serves one connection at a time with a blocking socket, so an answer never waits for a cycle of the
agent. The handlers must be quick: the runtime drops a plugin that takes longer than 2 s.

Source: runtime spec, 7.
"""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, load_yaml

from koord_agent.domain.failure import failure
from koord_agent.domain.hooks.call import HookCall, HookValues, Stage
from koord_agent.domain.hooks.nri import DEFAULT_EVENTS, NriEvent, container_adjustment, container_updates, event_mask
from koord_agent.domain.hooks.plugins import StageResult
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks import ttrpc
from koord_agent.shell.hooks.nri_messages import PACKAGE, Message, call_of, nri_messages, period_us_of, write_fields

PLUGIN_SERVICE: Final = f"{PACKAGE}.Plugin"
RUNTIME_SERVICE: Final = f"{PACKAGE}.Runtime"
JITTER: Final = 0.1
_LONGEST_WAIT: Final = threading.TIMEOUT_MAX
_CHUNK: Final = 64 * 1024
_REGISTRATION: Final = 1
"""Stream id of the only call that the plugin makes."""
_POD_STAGES: Final[Mapping[int, Stage]] = {
    NriEvent.RUN_POD_SANDBOX: Stage.PRE_RUN_POD_SANDBOX,
    NriEvent.REMOVE_POD_SANDBOX: Stage.PRE_REMOVE_POD_SANDBOX,
}
_log: Final = logger("agent.nri")


AnswerHook = Callable[[HookCall], StageResult]
"""Runs the hooks of a call, in the thread of the plugin. The hooks write the files of pods themselves."""


class _Configuration(msgspec.Struct):
    events: list[str] | None = None  # Names of the events to follow; None if the configuration does not name them


class _HookFailed(Exception):
    """Raised if a hook failed under the failure policy `Fail`. The message is for the runtime."""


class NriPlugin:
    """Keeps one connection to the container runtime, and answers its events with the hooks."""

    def __init__(self, settings: AgentSettings, answer: AnswerHook) -> None:
        self._settings = settings
        self._socket = str(settings.var_run_root / settings.runtime_hooks_nri_socket_path)
        self._answer_hook = answer
        self._stopping = threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="nri", daemon=True)
        self._mask = event_mask(DEFAULT_EVENTS)
        self.is_connected = False
        """Whether the runtime has synchronized its pods with the plugin."""

    def start(self) -> None:
        """Without a runtime the plugin tries again later."""
        self._thread.start()

    def stop(self) -> None:
        """Wait for the thread."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        settings = self._settings
        delay, grown, trouble = settings.runtime_hooks_nri_backoff_duration, 0, ""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._serve()
            except (OSError, ttrpc.ProtocolBroken) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("nri_away", socket=self._socket, error=trouble)
            except Exception as error:  # noqa: BLE001 - without the thread, no hook would run any more
                if repr(error) != trouble:
                    trouble = repr(error)
                    _log.error("nri_failed", socket=self._socket, exc_info=error)
            finally:
                self.is_connected = False
            if time.monotonic() - began >= settings.runtime_hooks_nri_connect_timeout:
                delay, grown, trouble = settings.runtime_hooks_nri_backoff_duration, 0, ""
            self._stopping.wait(min(_LONGEST_WAIT, delay * (1 + random.uniform(0, JITTER))))  # noqa: S311 - spreads load, not a secret
            if grown < settings.runtime_hooks_nri_backoff_steps:
                delay, grown = (
                    min(settings.runtime_hooks_nri_backoff_cap, delay * settings.runtime_hooks_nri_backoff_factor),
                    grown + 1,
                )

    def _serve(self) -> None:
        """Connect, register, and answer the runtime until one side ends the connection.

        Raises:
            OSError: The socket cannot be reached, or the connection broke.
            ProtocolBroken: The runtime refused the plugin, or broke the protocol.
        """
        reader = ttrpc.MessageReader()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._settings.runtime_hooks_nri_connect_timeout)
            connection.connect(self._socket)
            self._connection = connection
            self._mask = event_mask(DEFAULT_EVENTS)
            try:
                if self._stopping.is_set():  # `stop` came too early to end this connection
                    return
                connection.sendall(self._registration())
                while data := connection.recv(_CHUNK):
                    for message in reader.feed(data):
                        answer = self._answer(message)
                        if answer is not None:
                            connection.sendall(ttrpc.encode_message(answer))
                        if self.is_connected:
                            connection.settimeout(None)
            finally:
                self._connection = None
        if not self._stopping.is_set():
            raise ttrpc.ProtocolBroken("the runtime ended the connection")

    def _registration(self) -> bytes:
        request = nri_messages()["RegisterPluginRequest"](
            plugin_name=self._settings.runtime_hooks_nri_plugin_name,
            plugin_idx=self._settings.runtime_hooks_nri_plugin_index,
        )
        body = ttrpc.encode_request(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString())
        return ttrpc.encode_message(ttrpc.TtrpcMessage(ttrpc.RUNTIME_CONNECTION, _REGISTRATION, ttrpc.REQUEST, body))

    def _answer(self, message: ttrpc.TtrpcMessage) -> ttrpc.TtrpcMessage | None:
        """None if the message needs no answer.

        Raises:
            ProtocolBroken: The runtime refused the registration, or a message is malformed.
        """
        if message.connection == ttrpc.RUNTIME_CONNECTION:
            error = ttrpc.response_error(message.body) if message.kind == ttrpc.RESPONSE else ""
            if error:
                raise ttrpc.ProtocolBroken(f"the runtime refused the plugin: {error}")
            return None
        if message.connection != ttrpc.PLUGIN_CONNECTION or message.kind != ttrpc.REQUEST:
            return None
        request = ttrpc.decode_request(message.body)
        return message._replace(kind=ttrpc.RESPONSE, body=self._call(request.service, request.method, request.payload))

    def _call(self, service: str, method: str, payload: bytes) -> bytes:
        from google.protobuf.message import DecodeError  # loaded only on a node with NRI

        handler = self._handlers().get(method) if service == PLUGIN_SERVICE else None
        if handler is None:
            return ttrpc.encode_response(
                b"", code=ttrpc.UNIMPLEMENTED, message=f"{service}/{method} is not implemented"
            )
        kind, handle = handler
        try:
            answer = handle(nri_messages()[kind].FromString(payload))
        except (DecodeError, InvalidInput) as error:
            return ttrpc.encode_response(b"", code=ttrpc.INVALID_ARGUMENT, message=f"{method}: {error}")
        except _HookFailed as error:
            return ttrpc.encode_response(b"", code=ttrpc.UNKNOWN, message=str(error))
        except Exception as error:  # noqa: BLE001 - it must not end the thread, which answers for all containers
            _log.error("nri_call_failed", method=method, exc_info=error)
            return ttrpc.encode_response(b"", code=ttrpc.UNKNOWN, message=failure(method, error))
        return ttrpc.encode_response(answer.SerializeToString())

    def _handlers(self) -> dict[str, tuple[str, Callable[[Message], Message]]]:
        """Name of a method -> name of its request message, and its handler."""
        return {
            "Configure": ("ConfigureRequest", self._configure),
            "Synchronize": ("SynchronizeRequest", self._synchronize),
            "CreateContainer": ("CreateContainerRequest", self._create_container),
            "UpdateContainer": ("UpdateContainerRequest", self._update_container),
            "StateChange": ("StateChangeEvent", self._state_change),
            "Shutdown": ("Empty", lambda _: nri_messages()["Empty"]()),
        }

    def _configure(self, request: Message) -> Message:
        events = _configured_events(request.config)
        if events is not None:
            self._mask = event_mask(events)
        _log.info("nri_configured", runtime=f"{request.runtime_name} {request.runtime_version}", mask=self._mask)
        return nri_messages()["ConfigureResponse"](events=self._mask)

    def _synchronize(self, request: Message) -> Message:
        # The reconciler sets the values of existing containers, so no update is answered.
        if not request.more:
            self.is_connected = True
        return nri_messages()["SynchronizeResponse"](more=request.more)

    def _create_container(self, request: Message) -> Message:
        response = nri_messages()["CreateContainerResponse"]()
        if self._mask & NriEvent.CREATE_CONTAINER.mask:
            container = request.container
            values = self._run_hooks(Stage.PRE_CREATE_CONTAINER, request.pod, container, container.linux.resources)
            write_fields(response.adjust, container_adjustment(values))
        return response

    def _update_container(self, request: Message) -> Message:
        response = nri_messages()["UpdateContainerResponse"]()
        if self._mask & NriEvent.UPDATE_CONTAINER.mask:
            container = request.container
            values = self._run_hooks(Stage.PRE_UPDATE_CONTAINER, request.pod, container, request.linux_resources)
            for update in container_updates(container.id, values):
                write_fields(response.update.add(), update)
        return response

    def _state_change(self, event: Message) -> Message:
        stage = _POD_STAGES.get(event.event)
        if stage is not None and self._mask & NriEvent(event.event).mask:
            self._run_hooks(stage, event.pod)
        return nri_messages()["Empty"]()

    def _run_hooks(
        self, stage: Stage, pod: Message, container: Message = None, resources: Message = None
    ) -> HookValues:
        result = self._answer_hook(
            call_of(stage, pod, container, resources, runtime=self._settings.default_runtime_type)
        )
        if result.failed:
            raise _HookFailed(result.error)
        return result.values if resources is None else result.values.in_period(period_us_of(resources))


def _configured_events(config: str) -> Sequence[str] | None:
    """None if the configuration does not name events.

    Raises:
        InvalidInput: The configuration is not YAML, or `events` is not a list of texts.
    """
    try:
        document: object = load_yaml(config)
    except YamlError as error:
        raise InvalidInput("YAML", str(error), "config") from error
    try:
        return codec.convert(document or {}, _Configuration).events
    except codec.DecodeError as error:
        raise InvalidInput("a list of event names", str(error), "config.events") from error
