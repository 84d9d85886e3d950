"""A container runtime as an NRI plugin sees it: it accepts a plugin, configures it, and calls it.

It writes frames and messages by hand, so it checks the plugin's own encoder.
"""

import contextlib
import socket
import struct
from collections.abc import Generator
from pathlib import Path
from typing import Any

from koord_agent.domain.hooks.call import NOTHING, HookCall
from koord_agent.domain.hooks.plugins import HookDone, StageResult
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks.nri_plugin import NriPlugin
from support.agent.cri import message
from support.until import DEADLINE_SECONDS

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
SECONDS = DEADLINE_SECONDS


class RecordingHooks:
    """Answers with given values, or raises a given error; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[HookCall] = []
        self.values = NOTHING
        self.error = ""
        self.raises: Exception | None = None

    def answer(self, call: HookCall) -> StageResult:
        self.calls.append(call)
        if self.raises is not None:
            raise self.raises
        done = HookDone("Hook", self.values, self.error)
        return StageResult(self.values, (done,), failed="Hook" if self.error else "")

    def called(self) -> list[str]:
        return [call.stage.value for call in self.calls]


@contextlib.contextmanager
def running_plugin(settings: AgentSettings, hooks: RecordingHooks) -> Generator[NriPlugin]:
    plugin = NriPlugin(settings, hooks.answer)
    plugin.start()
    try:
        yield plugin
    finally:
        plugin.stop()


class NriRuntime:
    """The runtime's end of the socket; each plugin that connects replaces the one before."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(SECONDS)
        self._plugin: socket.socket | None = None
        self._call = 0

    def accept(self, *, refuse: str = "") -> tuple[str, str]:
        """Wait for a plugin and answer its registration; its name and index."""
        self._plugin, _ = self._listener.accept()
        self._plugin.settimeout(SECONDS)
        connection, call, kind, body = self._read()
        assert (connection, kind) == (2, 1)
        request = fields_of(body)
        assert (request[1], request[2]) == (b"nri.pkg.api.v1alpha1.Runtime", b"RegisterPlugin")
        registration = fields_of(request[3])
        status = message((1, 2), (2, refuse)) if refuse else b""
        self._write(2, call, 2, message((1, status)))
        return registration[1].decode(), registration[2].decode()

    def start_up(self, config: str = "", *, more: bool = False) -> int:
        """Configure and synchronize the plugin; the mask of its events."""
        configured = fields_of(self.call("Configure", message((1, config), (2, "containerd"), (3, "v2"))))
        synchronized = fields_of(self.call("Synchronize", message((3, int(more)))))
        assert synchronized.get(2, 0) == int(more)
        mask: int = configured.get(2, 0)
        return mask

    def call(self, method: str, payload: bytes, *, chunk: int = 1 << 20) -> bytes:
        """Call the plugin; its answer.

        raises    RuntimeError when the plugin answers with a status
        """
        self._call += 2
        request = message((1, PLUGIN), (2, method), (3, payload), (4, 2_000_000_000))
        self._write(1, self._call, 1, request, chunk)
        connection, call, kind, body = self._read()
        assert (connection, call, kind) == (1, self._call, 2)
        response = fields_of(body)
        if 1 in response:
            status = fields_of(response[1])
            raise RuntimeError(f"{status.get(1, 0)}: {status.get(2, b'').decode()}")
        payload_found: bytes = response.get(2, b"")
        return payload_found

    def hang_up(self) -> None:
        assert self._plugin is not None
        self._plugin.close()

    def close(self) -> None:
        if self._plugin is not None:
            self._plugin.close()
        self._listener.close()

    def send(self, data: bytes) -> None:
        assert self._plugin is not None
        self._plugin.sendall(data)

    def is_dropped(self) -> bool:
        """Wait until the plugin ends the connection."""
        assert self._plugin is not None
        try:
            return self._plugin.recv(1) == b""
        except ConnectionError:
            return True

    def _write(self, connection: int, call: int, kind: int, body: bytes, chunk: int = 1 << 20) -> None:
        payload = struct.pack(">IIBB", len(body), call, kind, 0) + body
        parts = [payload[start : start + chunk] for start in range(0, len(payload), chunk)]
        self.send(b"".join(struct.pack(">II", connection, len(part)) + part for part in parts))

    def _read(self) -> tuple[int, int, int, bytes]:
        connection, length = struct.unpack(">II", self._exactly(8))
        payload = self._exactly(length)
        size, call, kind, _ = struct.unpack(">IIBB", payload[:10])
        assert len(payload) == 10 + size
        return connection, call, kind, payload[10:]

    def _exactly(self, count: int) -> bytes:
        assert self._plugin is not None
        found = b""
        while len(found) < count:
            part = self._plugin.recv(count - len(found))
            if not part:
                raise ConnectionError("the plugin has hung up")
            found += part
        return found


def fields_of(data: bytes) -> dict[int, Any]:
    """The fields of a protobuf message: number -> int or bytes; the last one of each number."""
    found: dict[int, Any] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = data[position]
            value |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                return value

    while position < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3] = varint()
        else:
            assert key & 7 == 2
            length = varint()
            found[key >> 3] = data[position : position + length]
            position += length
    return found
