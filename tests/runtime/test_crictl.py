"""crictl prints the same with and without the proxy, on two versions of containerd."""

import asyncio
from pathlib import Path

import pytest
from koordctl.stack.containers import missing_program
from support.agent.cri import containerd
from support.crictl import life_of_a_pod
from support.criproxy import World, proxied
from support.runtime_tools import TOOLS, missing_tool

LACKING = missing_program() or missing_tool()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
FAILING = ("/bin/busybox cat /none", "inspect ID")
"""Commands that fail: of a program in the container, and of a container that was removed."""
KINDS = ("CREATED", "STARTED", "STOPPED", "DELETED")
EVENTS = {f"{which} CONTAINER_{kind}_EVENT" for which in ("sandbox", "container") for kind in KINDS}
SHOWN = {
    "exec --sync ID /bin/busybox echo inside": "inside",
    "exec --interactive ID": "through the stream",
    "logs ID": "started blue",
    "stop ID": "ID",
    "rm ID": "ID",
    "rmp ID": "Removed sandbox ID",
}
"""Beginning of a command, and what its output has to contain."""


@pytest.mark.parametrize("programs", [None, TOOLS], ids=["installed", "containerd-2"])
async def test_crictl_prints_the_same_with_the_proxy(tmp_path: Path, programs: Path | None) -> None:
    direct, through = tmp_path / "direct", tmp_path / "through"
    with containerd(tmp_path, programs=programs):
        world = World(tmp_path, runtime_socket=tmp_path / "containerd.sock")
        without = await asyncio.to_thread(life_of_a_pod, tmp_path / "containerd.sock", direct, "/koord-crictl")
        async with proxied(world):
            socket = world.settings.koord_runtimeproxy_endpoint
            with_proxy = await asyncio.to_thread(life_of_a_pod, socket, through, "/koord-crictl")
        await world.channel.close()
    assert with_proxy == without

    *commands, events = without
    for printed in commands:
        command, status, *output = printed.removeprefix("$ ").splitlines()
        is_failing = command.endswith(FAILING) and printed != first(commands, "inspect ID")
        assert (status != "0") == is_failing, printed
        for beginning, text in SHOWN.items():
            if command.startswith(beginning):
                assert text in "\n".join(output), printed
    if programs is not None:  # containerd 1 has events only for some runtimes
        assert set(events.splitlines()[1:]) == EVENTS


def first(commands: list[str], command: str) -> str:
    """The first output of a command."""
    return next(printed for printed in commands if printed.startswith(f"$ {command}\n"))
