"""The files by which probes see a command without a port."""

from pathlib import Path

from koordctl.installation.probe_files import probe_files_kept
from support.until import until


async def test_a_command_is_alive_before_it_is_ready(tmp_path: Path) -> None:
    ready, alive = tmp_path / "probes" / "ready", tmp_path / "probes" / "alive"
    async with probe_files_kept(tmp_path / "probes", lambda: False):
        await until(alive.exists)
        assert not ready.exists()
    async with probe_files_kept(tmp_path / "probes", lambda: True):
        await until(ready.exists)


async def test_a_folder_that_cannot_be_written_ends_no_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with probe_files_kept(tmp_path / "file", lambda: True), probe_files_kept(tmp_path / "later", lambda: True):
        await until((tmp_path / "later" / "ready").exists)
