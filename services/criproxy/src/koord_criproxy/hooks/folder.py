"""The folder in which hook servers register: read at the start, at every change, and every minute.

Source: runtime spec, 5.5.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from koordcore.service.telemetry.logging import logger
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - its argument stop_event has no type

from koord_criproxy.hooks.servers import SUFFIX, HookServer, hook_servers, registered

RESCAN_SECONDS: Final = 60.0
QUIET_MS: Final = 5_000
"""Time without a change after which the watch looks whether the folder is still the same."""
LARGEST_FILE: Final = 1024 * 1024
_log: Final = logger("criproxy.hooks")


class HookFolder:
    """The folder in which hook servers register. `changed` gets them at the start, and when they differ from before."""

    def __init__(self, folder: Path, changed: Callable[[Sequence[HookServer]], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._by_file: dict[str, HookServer] = {}
        self._servers: Sequence[HookServer] = ()
        self._problems: dict[str, str] = {}
        self._unreadable = ""
        self._not_watched = ""

    def servers(self) -> Sequence[HookServer]:
        """As the folder was read last, in ascending order of the names of their files."""
        return self._servers

    async def start(self) -> None:
        """Make the folder if it does not exist, and read it.

        Raises:
            OSError: The folder cannot be made or listed.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._look()
        if not self._by_file:
            self._changed(())

    async def run(self) -> None:
        """Read the folder again at every change and every minute, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rescan())
            group.create_task(self._watch())

    async def _watch(self) -> None:
        """If the folder cannot be watched, for example if it is gone, try again each minute.

        A node may have no inotify instance left. The proxy must serve all the same.
        """
        while True:
            try:
                await self._watch_once()
            except Exception as error:  # noqa: BLE001 - the library has no common class for its errors
                if str(error) != self._not_watched:
                    self._not_watched = str(error)
                    _log.warning("hook_folder_not_watched", folder=str(self._folder), error=self._not_watched)
                await asyncio.sleep(RESCAN_SECONDS)

    async def _watch_once(self) -> None:
        """Read the folder once it is watched, and at every change, until it is gone or another folder has its name.

        Raises:
            Exception: The folder cannot be watched.
        """
        watched, is_new = self._identity(), True
        changes = awatch(
            self._folder, recursive=False, debounce=100, step=20, rust_timeout=QUIET_MS, yield_on_timeout=True
        )
        async with contextlib.aclosing(changes):
            async for found in changes:
                if self._not_watched:
                    self._not_watched = ""
                    _log.info("hook_folder_watched", folder=str(self._folder))
                if found or is_new:
                    self._look_again()
                is_new = False
                if self._identity() != watched:
                    return

    def _identity(self) -> tuple[int, int] | None:
        """Device and inode; None if it does not exist."""
        try:
            found = self._folder.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    async def _rescan(self) -> None:
        while True:
            await asyncio.sleep(RESCAN_SECONDS)
            self._look_again()

    def _look_again(self) -> None:
        try:
            self._look()
        except OSError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                _log.error("hook_folder_unreadable", folder=str(self._folder), error=self._unreadable)
        else:
            self._unreadable = ""

    def _look(self) -> None:
        files: dict[str, bytes] = {}
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # it vanished while it was read
                if path.name.endswith(SUFFIX) and path.is_file() and path.stat().st_size <= LARGEST_FILE:
                    files[path.name] = path.read_bytes()
        found, problems = hook_servers(self._by_file, files)
        for file, problem in problems.items():
            if self._problems.get(file) != problem:
                _log.warning("registration_refused", file=file, problem=problem, kept=file in found)
        is_new = found != self._by_file
        if is_new:
            shown = {file: f"{server.endpoint} {server.policy or 'Ignore'}" for file, server in found.items()}
            _log.info("hook_servers", servers=shown)
        self._by_file, self._problems = found, problems
        self._servers = registered(found)
        if is_new:
            self._changed(self._servers)
