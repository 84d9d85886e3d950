"""Follows the cgroup directories of pods and containers as they are created and removed, with inotify(7).

Events only shorten delays: without inotify the regular cycles and lists find the same pods.

Source: agent spec, 4.5.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.qos import KubeQos
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CREATE, _DELETE, _ONLY_DIRECTORY = 0x100, 0x200, 0x1000000
_IGNORED, _OVERFLOW, _IS_DIRECTORY = 0x8000, 0x4000, 0x40000000
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 64 * 1024
LOOK_AGAIN_SECONDS: Final = 30.0
"""Delay before missing class directories or a failed watch are tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupEvent:
    appeared: bool  # Whether the directory was created; False if it was removed
    pod_id: str  # Pod id as in the directory name (systemd: `_` for `-`)
    container_id: str | None = None  # Container id without its runtime; None if the event is about the pod itself


class PodWatcher:
    """Watches the cgroup directories of QoS classes and of all pods, to find created and removed pods and containers.

    Args:
        root: Path of the hierarchy `cpu` (cgroup v1), or of the cgroup file system (v2).

    Raises:
        OSError: The kernel has no inotify, or the limit of watches is reached.
    """

    def __init__(self, root: str, layout: CgroupLayout) -> None:
        self._root = root
        self._layout = layout
        self._descriptor: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._classes: dict[int, str] = {}
        self._pods: dict[int, tuple[str, str]] = {}
        try:
            self._watch_all()
        except OSError:
            self.close()
            raise

    @property
    def classes(self) -> int:
        """Number of watched class directories. A directory that does not exist cannot be watched."""
        return len(self._classes)

    def fileno(self) -> int:
        """Readable when events are available."""
        return self._descriptor

    def read(self) -> list[CgroupEvent]:
        """Events about other directories than pods and containers are left out.

        Raises:
            OSError: Events were lost. Create a new watcher.
        """
        found: list[CgroupEvent] = []
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return found
                raise
            found.extend(self._events(data))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _watch_all(self) -> None:
        """Watch existing pods too, because events of their containers would be missed otherwise (D-4)."""
        for qos in KubeQos:
            directory = self._layout.qos_directory(qos)
            path = f"{self._root}/{directory}"
            watch = self._add(path)
            if watch is None:
                continue
            self._classes[watch] = path
            try:
                names = sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
            except OSError:
                continue
            for name in names:
                pod_id = self._layout.parse_pod(name)
                if pod_id is not None:
                    self._watch_pod(f"{path}/{name}", pod_id)

    def _watch_pod(self, path: str, pod_id: str) -> list[CgroupEvent]:
        """Watch a pod, and return events for its existing containers."""
        watch = self._add(path)
        if watch is None:
            return []
        self._pods[watch] = path, pod_id
        try:
            names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []
        containers = (self._layout.parse_container(name) for name in names)
        return [CgroupEvent(appeared=True, pod_id=pod_id, container_id=one) for one in containers if one is not None]

    def _add(self, path: str) -> int | None:
        watch: int = _LIBC.inotify_add_watch(self._descriptor, os.fsencode(path), _CREATE | _DELETE | _ONLY_DIRECTORY)
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise OSError(code, os.strerror(code), path)
        return watch

    def _events(self, data: bytes) -> list[CgroupEvent]:
        found: list[CgroupEvent] = []
        place = 0
        while place + _EVENT.size <= len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, place)
            name = os.fsdecode(data[place + _EVENT.size : place + _EVENT.size + length].rstrip(b"\0"))
            place += _EVENT.size + length
            if mask & _OVERFLOW:
                raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
            if mask & _IGNORED:
                self._classes.pop(watch, None)
                self._pods.pop(watch, None)
            elif mask & _IS_DIRECTORY:
                found.extend(self._event(watch, name, appeared=bool(mask & _CREATE)))
        return found

    def _event(self, watch: int, name: str, *, appeared: bool) -> list[CgroupEvent]:
        if watch in self._classes:
            pod_id = self._layout.parse_pod(name)
            if pod_id is None:
                return []
            event = CgroupEvent(appeared=appeared, pod_id=pod_id)
            path = f"{self._classes[watch]}/{name}"
            return [event, *(self._watch_pod(path, pod_id) if appeared else ())]
        if watch in self._pods:
            container_id = self._layout.parse_container(name)
            if container_id is not None:
                return [CgroupEvent(appeared=appeared, pod_id=self._pods[watch][1], container_id=container_id)]
        return []


class PodEvents:
    """Watches the cgroups of one machine below `root`, and calls `told` in the event loop for each event."""

    def __init__(self, root: str, layout: CgroupLayout, *, told: Callable[[CgroupEvent], None], logger: Logger) -> None:
        self._root = root
        self._layout = layout
        self._told = told
        self._logger = logger
        self._said = False

    async def run(self) -> None:
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
