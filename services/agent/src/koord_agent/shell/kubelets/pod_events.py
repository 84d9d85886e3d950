"""Follows the cgroups of pods as they are created and removed.

Events only shorten delays: without inotify the regular cycles and lists find the same pods.

Source: agent spec, 4.5.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from koordcore.protocol.qos import KubeQos
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.shell.host.inotify import CgroupEvent, PodWatcher

LOOK_AGAIN_SECONDS: Final = 30.0
"""Delay before missing class directories or a failed watch are tried again."""


class PodEvents:
    """Watches the cgroups of one machine.

    It calls `told` in the event loop for each pod or container that appears or ends.

    Args:
        root: Path of the hierarchy `cpu` (cgroup v1), or of the cgroup file system (v2).
        layout: Names of the cgroup directories.
        told: Gets each event.
        logger: Logger of the service.
    """

    def __init__(self, root: str, layout: CgroupLayout, *, told: Callable[[CgroupEvent], None], logger: Logger) -> None:
        self._root = root
        self._layout = layout
        self._told = told
        self._logger = logger
        self._said = False

    async def run(self) -> None:
        """Watch the cgroups, and call `told` for each event, until cancelled."""
        while True:
            watcher = self._open()
            if watcher is None:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            try:
                await self._follow(watcher)
            finally:
                watcher.close()

    def _open(self) -> PodWatcher | None:
        try:
            return PodWatcher(self._root, self._layout)
        except OSError as error:
            if not self._said:
                self._said = True
                self._logger.warning("pod_events_unusable", reason=str(error))
            return None

    async def _follow(self, watcher: PodWatcher) -> None:
        """Follow events until reading fails, or until a class directory could not be watched for a while."""
        loop, broken = asyncio.get_running_loop(), asyncio.Event()

        def ready() -> None:
            try:
                events = watcher.read()
            except OSError as error:
                self._logger.warning("pod_events_lost", reason=str(error))
                broken.set()
                return
            for event in events:
                self._told(event)

        loop.add_reader(watcher.fileno(), ready)
        try:
            while not broken.is_set():
                try:
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                        await broken.wait()
                except TimeoutError:
                    if watcher.classes < len(KubeQos):
                        return
        finally:
            loop.remove_reader(watcher.fileno())
