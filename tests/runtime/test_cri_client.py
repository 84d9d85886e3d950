"""The kubelet's own CRI client sees the same with and without the proxy, on two versions of containerd."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
from koordctl.embedded.containers import IMAGE, missing_program
from support.agent.cri import containerd
from support.criproxy import World, proxied
from support.runtime_tools import CRI_CLIENT, TOOLS, missing_tool

LACKING = missing_program() or missing_tool()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
EVENTS = "events: " + " ".join(f"CONTAINER_{kind}_EVENT" for kind in ("CREATED", "STARTED", "STOPPED", "DELETED"))


def story(socket: Path, logs: Path) -> str:
    """Run one pod from its sandbox to its removal; what the client printed, without ids."""
    logs.mkdir()
    command = [str(CRI_CLIENT), str(socket), IMAGE, str(logs), "/koord-cri-client"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\b[0-9a-f]{64}\b", "ID", done.stdout)


@pytest.mark.parametrize("programs", [None, TOOLS], ids=["installed", "containerd-2"])
async def test_the_output_of_the_client_is_the_same_with_the_proxy(tmp_path: Path, programs: Path | None) -> None:
    with containerd(tmp_path, programs=programs):
        world = World(tmp_path, runtime_socket=tmp_path / "containerd.sock")
        await world.hooks.start()
        world.register("Fail", "PreRunPodSandbox", "PreCreateContainer", "PostStopContainer", "PreStartContainer")
        direct = await asyncio.to_thread(story, tmp_path / "containerd.sock", tmp_path / "direct")
        async with proxied(world):
            through = await asyncio.to_thread(story, world.settings.koord_runtimeproxy_endpoint, tmp_path / "through")
        assert through == direct
        assert "through the stream" in through
        assert programs is None or EVENTS in through  # containerd 1.6 has no events
        assert [len(world.hooks.called(f"{name}Hook")) for name in ("PreRunPodSandbox", "PostStopContainer")] == [1, 1]
        await world.channel.close()
        await world.hooks.stop()
