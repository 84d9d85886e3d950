"""What the kubelet of this machine says, kept fresh: its pods every few seconds and at once when one appears.

    every 10 s, and after a pod's cgroup appeared (5 a second, 10 at once)   GET /pods/
    every 60 s                                                              GET /configz, cpu_manager_state

source    agent spec, 4.3, 4.7 (1)
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.service.logging import Logger
from koordcore.values import codec

from koord_agent.domain.known_pods import KnownPods, known_after
from koord_agent.domain.kubelet import KubeletConfiguration, parse_cpu_manager_state
from koord_agent.shell.host.kernel_files import read_kernel_file
from koord_agent.shell.kubelet import Kubelet, KubeletAway

CONFIGURATION_SECONDS: Final = 60.0
SOON_PER_SECOND: Final = 5.0
SOON_AT_ONCE: Final = 10.0
CPU_MANAGER_STATE: Final = "cpu_manager_state"


@dataclass(slots=True)
class _Bucket:
    """Tokens for lists beside the regular ones."""

    tokens: float = SOON_AT_ONCE
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.tokens = min(SOON_AT_ONCE, self.tokens + (now - self.at) * SOON_PER_SECOND)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class KubeletStates:
    """Follows one kubelet. One event loop owns it.

    folder      the kubelet's own (cpu_manager_state)
    now_ms      the service's clock; monotonic: the host's, in seconds
    changed     called after each list that was taken
    """

    def __init__(
        self,
        kubelet: Kubelet,
        *,
        folder: Path,
        sync_seconds: float,
        asks_configuration: bool = True,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        logger: Logger,
        changed: Callable[[], None],
    ) -> None:
        self.known = KnownPods()
        self.configuration: KubeletConfiguration | None = None
        self.cpu_entries: Mapping[str, Mapping[str, str]] = {}
        self._kubelet = kubelet
        self._folder = folder
        self._sync_seconds = sync_seconds
        self._asks_configuration = asks_configuration
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._logger = logger
        self._changed = changed
        self._soon = asyncio.Event()
        self._bucket = _Bucket(at=monotonic())
        self._said = ""

    def trouble(self) -> str | None:
        """Why the agent is not ready; None once the kubelet has listed its pods."""
        return None if self.known.at_ms is not None else self._said or "the kubelet has not listed its pods yet"

    def sync_soon(self) -> None:
        """A pod came or went: list at once, if the limit allows; else the next regular list shows it."""
        if self._bucket.take(self._monotonic()):
            self._soon.set()

    async def run(self) -> None:
        """Follow for ever."""
        configured_at = float("-inf")
        while True:
            await self.sync()
            if self._asks_configuration and self._monotonic() - configured_at >= CONFIGURATION_SECONDS:
                configured_at = self._monotonic()
                await self.configure()
            # a list made early restarts the pause
            self._soon.clear()
            try:
                async with asyncio.timeout(self._sync_seconds):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def sync(self) -> None:
        """List the pods; whatever goes wrong keeps the last list."""
        try:
            items = await asyncio.to_thread(self._kubelet.pods)
        except KubeletAway as error:
            self._complain(str(error))
            return
        self.known = known_after(self.known, items, self._now_ms())
        self._complain("; ".join(self.known.problems))
        self._changed()

    async def configure(self) -> None:
        """Ask for the configuration; with the static CPU manager, what it has pinned."""
        try:
            self.configuration = await asyncio.to_thread(self._kubelet.configuration)
        except KubeletAway as error:
            self._complain(str(error))
            return
        if not self.configuration.is_static:
            self.cpu_entries = {}
            return
        text = await asyncio.to_thread(read_kernel_file, str(self._folder / CPU_MANAGER_STATE))
        try:
            self.cpu_entries = parse_cpu_manager_state(text) if text is not None else {}
        except codec.DecodeError as error:
            # what was pinned a minute ago is nearer to the truth than nothing
            self._complain(f"{CPU_MANAGER_STATE}: {error}")

    def _complain(self, trouble: str) -> None:
        """Says what went wrong, once until it changes."""
        if trouble and trouble != self._said:
            self._logger.warning("kubelet_trouble", reason=trouble)
        self._said = trouble
