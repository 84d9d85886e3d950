"""The folder of registrations: a folder that cannot be watched is read every minute, and the proxy goes on."""

import asyncio
from pathlib import Path

import pytest
from koord_criproxy.shell import hook_folder
from koord_criproxy.shell.hook_folder import HookFolder
from structlog.testing import capture_logs
from support.until import until

REGISTRATION = '{"remote-endpoint": "/run/agent.sock", "runtime-hooks": ["PreCreateContainer"]}'


async def test_a_folder_that_is_gone_does_not_end_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_folder, "RESCAN_SECONDS", 0.01)
    folder = HookFolder(tmp_path / "hookserver.d", lambda _: None)
    await folder.start()
    (tmp_path / "hookserver.d").rmdir()
    with capture_logs() as lines:
        running = asyncio.create_task(folder.run())
        try:
            await until(lambda: any(line["event"] == "hook_folder_not_watched" for line in lines))
            (tmp_path / "hookserver.d").mkdir()
            (tmp_path / "hookserver.d" / "koordlet.json").write_text(REGISTRATION)
            await until(folder.servers)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert [line["event"] for line in lines].count("hook_folder_not_watched") == 1
