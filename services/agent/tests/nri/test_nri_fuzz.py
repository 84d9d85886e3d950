"""Mutated frames, messages and bodies of NRI: each is answered or refused, and the plugin comes back."""

import contextlib
import random
import struct
from pathlib import Path

from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks.ttrpc import REQUEST, MessageReader, ProtocolBroken, decode_request
from support.agent.cri import message
from support.agent.nri import PLUGIN, NriRuntime, RecordingHooks, running_plugin
from support.mutations import damaged
from support.until import until_blocking

STREAMS, CONNECTIONS = 20_000, 500
POD = message((1, "s1"), (2, "web"), (3, "uid-1"), (4, "default"), (8, message((3, "/kubepods/poduid-1"))))
CONTAINER = message((1, "c1"), (2, "s1"), (3, "main"), (8, "A=1"))
CALLS = {
    "Configure": message((1, "events: [RunPodSandbox]"), (2, "containerd"), (3, "v2")),
    "Synchronize": message((1, POD), (2, CONTAINER)),
    "CreateContainer": message((1, POD), (2, CONTAINER)),
    "UpdateContainer": message((1, POD), (2, CONTAINER)),
    "StateChange": message((1, 1), (2, POD)),
}


def conversation(rng: random.Random) -> bytes:
    """The frames of some calls of a runtime; in each the payload, the request, the message or the frame is damaged."""
    frames = b""
    for call, (method, payload) in enumerate(rng.choices(list(CALLS.items()), k=3)):
        at = rng.randrange(4)
        request = message((1, PLUGIN), (2, method), (3, damaged(rng, payload) if at == 0 else payload))
        body = damaged(rng, request) if at == 1 else request
        whole = struct.pack(">IIBB", len(body), 2 * call + 1, REQUEST, 0) + body
        whole = damaged(rng, whole) if at == 2 else whole
        frame = struct.pack(">II", 1, len(whole)) + whole
        frames += damaged(rng, frame) if at == 3 else frame
    return frames


def test_damaged_streams_are_cut_into_messages_or_refused() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(STREAMS):
        data, reader = conversation(rng), MessageReader()
        middle = rng.randint(0, len(data))
        try:
            for part in (data[:middle], data[middle:]):
                for found in reader.feed(part):
                    decode_request(found.body)
        except ProtocolBroken:
            refused += 1
    assert 0 < refused < STREAMS


def test_plugin_survives_damaged_conversations_and_answers_the_next_runtime(tmp_path: Path) -> None:
    rng = random.Random(2)
    runtime, hooks = NriRuntime(tmp_path / "nri.sock"), RecordingHooks()
    settings = AgentSettings.model_validate(
        {
            "runtime_hooks_nri_socket_path": tmp_path / "nri.sock",
            "runtime_hooks_nri_connect_timeout": 30.0,
            "runtime_hooks_nri_backoff_duration": 0.0001,
            "runtime_hooks_nri_backoff_factor": 1.0,
        }
    )
    with contextlib.closing(runtime), running_plugin(settings, hooks) as plugin:
        for _ in range(CONNECTIONS):
            runtime.accept()
            with contextlib.suppress(ConnectionError):
                runtime.send(conversation(rng))
            runtime.hang_up()
        runtime.accept()
        runtime.start_up()
        until_blocking(lambda: plugin.is_connected, "the plugin is connected")
        before = len(hooks.calls)
        runtime.call("CreateContainer", CALLS["CreateContainer"])
        assert len(hooks.calls) == before + 1
