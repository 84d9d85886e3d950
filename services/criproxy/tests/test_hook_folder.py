"""The folder of registrations: a folder that cannot be watched is read every minute, and the proxy goes on."""

import asyncio
from pathlib import Path

import pytest
from koord_criproxy.hooks import folder as hook_folder
from koord_criproxy.hooks.folder import HookFolder
from structlog.testing import capture_logs
from support.until import until

REGISTRATION = '{"remote-endpoint": "/run/agent.sock", "runtime-hooks": ["PreCreateContainer"]}'


async def test_a_folder_that_is_gone_does_not_end_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_folder, "RESCAN_SECONDS", 0.01)
    monkeypatch.setattr(hook_folder, "QUIET_MS", 10)
    folder = HookFolder(tmp_path / "hookserver.d", lambda _: None)
    await folder.start()
    (tmp_path / "hookserver.d").rmdir()
    with capture_logs() as lines:

        def told(event: str) -> int:
            return [line["event"] for line in lines].count(event)

        running = asyncio.create_task(folder.run())
        try:
            await until(lambda: told("hook_folder_not_watched") == told("hook_folder_unreadable") == 1)
            (tmp_path / "hookserver.d").mkdir()
            (tmp_path / "hookserver.d" / "koordlet.json").write_text(REGISTRATION)
            await until(folder.servers)
            await until(lambda: told("hook_folder_watched") == 1)
            (tmp_path / "hookserver.d" / "koordlet.json").unlink()
            (tmp_path / "hookserver.d").rmdir()
            await until(lambda: told("hook_folder_not_watched") == told("hook_folder_unreadable") == 2)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_folder_that_is_replaced_is_watched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_folder, "QUIET_MS", 10)
    folder = HookFolder(tmp_path / "hookserver.d", lambda _: None)
    await folder.start()
    running = asyncio.create_task(folder.run())
    try:
        for number in range(3):
            (tmp_path / "new").mkdir()
            (tmp_path / "hookserver.d").rename(tmp_path / f"old-{number}")
            (tmp_path / "new").rename(tmp_path / "hookserver.d")
            await until(lambda: not folder.servers())
            (tmp_path / "hookserver.d" / "koordlet.json").write_text(REGISTRATION)
            await until(folder.servers)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
