"""A containerd of one's own, spoken to over CRI: sandboxes and containers of a busybox image, without a network.

The few messages that are needed are written by hand (field numbers of `runtime.v1`), so nothing has to be generated.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from koordctl.stack.containers import IMAGE, configuration, import_image
from support.until import DEADLINE_SECONDS, until_blocking

NODE_NAMESPACE = 2
NRI = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri/nri.sock"
  plugin_path = "{folder}/nri-plugins"
  plugin_config_path = "{folder}/nri-config"
"""
"""Configuration of containerd 2 that lets plugins connect."""


def message(*fields: tuple[int, Any]) -> bytes:
    """A protobuf message: (number, int, text or bytes); empty ones are left out."""
    found = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            if value:
                found += _varint(number << 3) + _varint(value)
            continue
        data = value.encode() if isinstance(value, str) else bytes(value)
        if data:
            found += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(found)


def first_text(data: bytes) -> str:
    """Field 1 of an answer as text."""
    if not data or data[0] != 0x0A:
        return ""
    length, shift, position = 0, 0, 1
    while True:
        byte = data[position]
        length |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return data[position : position + length].decode()


def _varint(number: int) -> bytes:
    found = bytearray()
    while True:
        byte, number = number & 0x7F, number >> 7
        found.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(found)


class Containers:
    """The CRI of one containerd; pods are removed with it."""

    def __init__(self, channel: Any, program: "Program") -> None:
        self.program = program
        self._channel = channel
        self._sandboxes: list[str] = []

    def run_pod(
        self,
        name: str,
        cgroup_parent: str,
        command: Sequence[str],
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """A pod of one container in the node's network; the container's id."""
        security = message((1, message((1, NODE_NAMESPACE))))
        linux = message((1, cgroup_parent), (2, security))
        pairs = [
            (number, message((1, key), (2, value)))
            for number, found in ((6, labels), (7, annotations))
            for key, value in (found or {}).items()
        ]
        config = message((1, message((1, name), (2, name), (3, "default"))), *pairs, (8, linux))
        sandbox = first_text(self.call("RunPodSandbox", message((1, config))))
        self._sandboxes.append(sandbox)
        context = message((2, message((3, message((1, NODE_NAMESPACE))))))
        words = [(3, word) for word in command]
        container = message((1, message((1, "main"))), (2, message((1, IMAGE))), *words, (15, context))
        created = self.call("CreateContainer", message((1, sandbox), (2, container), (3, config)))
        identity = first_text(created)
        self.call("StartContainer", message((1, identity)))
        return identity

    def remove_pods(self) -> None:
        """End and remove everything that was run."""
        for sandbox in self._sandboxes:
            self.call("StopPodSandbox", message((1, sandbox)))
            self.call("RemovePodSandbox", message((1, sandbox)))
        self._sandboxes.clear()

    def call(self, method: str, request: bytes) -> bytes:
        """One call of the RuntimeService; its answer."""
        call = self._channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
        answer: bytes = call(request, timeout=DEADLINE_SECONDS)
        return answer


@contextlib.contextmanager
def containerd(folder: Path, *, programs: Path | None = None) -> Generator[Containers]:
    """Run a containerd in a folder, with the image imported.

    programs    folder of another containerd, of version 2; then NRI plugins may connect
    """
    import grpc

    config, socket = folder / "config.toml", folder / "containerd.sock"
    config.write_text(configuration(folder) + ("" if programs is None else NRI.format(folder=folder)))
    program = Program("containerd" if programs is None else str(programs / "containerd"), folder, programs)
    program.start()
    try:
        import_image(folder)
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            containers = Containers(channel, program)
            try:
                yield containers
            finally:
                containers.remove_pods()
    finally:
        program.end(signal.SIGTERM)


class Program:
    """The process of a containerd, which may be killed and started again; its containers live on."""

    def __init__(self, program: str, folder: Path, programs: Path | None) -> None:
        self._command = [program, "-c", str(folder / "config.toml")]
        self._folder = folder
        path = os.environ["PATH"]
        self._environment = {**os.environ, "PATH": path if programs is None else f"{programs}:{path}"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "containerd.log").open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        self._process = process
        version = ["ctr", "-a", str(self._folder / "containerd.sock"), "version"]

        def answers() -> bool:
            return subprocess.run(version, capture_output=True, timeout=DEADLINE_SECONDS, check=False).returncode == 0

        def require_running() -> None:
            assert process.poll() is None, "containerd ended"

        until_blocking(answers, "an answer of containerd", every=0.1, check=require_running)

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and wait until it has ended."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=DEADLINE_SECONDS)
