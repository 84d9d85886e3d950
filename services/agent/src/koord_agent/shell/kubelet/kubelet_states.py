"""Follow the kubelet of this machine: its pods every few seconds, and at once when a pod appears.

    every 10 s, and after a pod's cgroup appeared (5 a second, 10 at once)   GET /pods/, then the pod-resources socket
    every 60 s                                                              GET /configz, cpu_manager_state

Without access to the kubelet's port, the pods come from the log, and their exclusive CPUs from the socket.

Source: agent spec, 4.3, 4.6, 4.7 (1).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_agent.domain.failure import failure
from koord_agent.domain.node.kubelet import (
    HeldByPod,
    KnownPods,
    KubeletConfiguration,
    known_after,
    parse_cpu_manager_state,
    pinned_cpus,
    unknown_pods,
)
from koord_agent.domain.node.pods import AgentPod
from koord_agent.shell.host.kernel_files import read_kernel_file
from koord_agent.shell.kubelet.kubelet import Kubelet, KubeletAway, PodResources

CONFIGURATION_SECONDS: Final = 60.0
SOON_PER_SECOND: Final = 5.0
SOON_AT_ONCE: Final = 10.0
CPU_MANAGER_STATE: Final = "cpu_manager_state"


@dataclass(slots=True)
class _Bucket:
    """Token bucket. It limits how often pods are listed outside of the regular interval."""

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
    """Follows one kubelet and passes its pods and configuration to the agent. It runs in one event loop.

    Args:
        kubelet: Client of the kubelet's port; None without access to it.
        resources: Client of the kubelet's pod-resources socket; None: the socket is not read.
        folder: Folder of the kubelet, which has the file `cpu_manager_state`.
        sync_seconds: Seconds between two lists of pods.
        asks_configuration: Whether the configuration of the kubelet is read.
        monotonic: Returns a monotonic time in seconds.
        changed: Called after the pods or their exclusive CPUs were read.
    """

    def __init__(
        self,
        kubelet: Kubelet | None,
        *,
        resources: PodResources | None = None,
        folder: Path,
        pods: Callable[[], Iterable[AgentPod]] = tuple,
        sync_seconds: float,
        asks_configuration: bool = True,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        logger: Logger,
        changed: Callable[[], None],
    ) -> None:
        self.known = KnownPods()  # Pods in the last list of the kubelet
        self.configuration: KubeletConfiguration | None = None  # Configuration of the kubelet; None before it was read
        self.held: tuple[HeldByPod, ...] = ()  # Pods with exclusive CPUs, as the socket told them last
        self._of_file: Mapping[str, Mapping[str, str]] = {}
        self._kubelet = kubelet
        self._resources = resources
        self._pods = pods
        self._folder = folder
        self._sync_seconds = sync_seconds
        self._asks_configuration = asks_configuration
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._logger = logger
        self._changed = changed
        self._soon = asyncio.Event()
        self._bucket = _Bucket(at=monotonic())
        self._said: dict[str, str] = {}
        self._strangers: set[str] = set()
        """`namespace/name` of the pods that the socket has and that were told once as unknown to the log."""

    @property
    def cpu_entries(self) -> Mapping[str, Mapping[str, str]]:
        """UID of a pod -> container -> CPUs that the CPU manager assigned exclusively."""
        return pinned_cpus(self._of_file, self.held, (*self._pods(), *self.known.pods.values()))

    @property
    def is_static(self) -> bool:
        """Whether the CPU manager assigns whole CPUs: its configuration says so, or containers have such CPUs."""
        if self.configuration is not None:
            return self.configuration.is_static
        return any(pod.cpus for pod in self.held)

    def trouble(self) -> str | None:
        """Why the agent is not ready, if the kubelet has not listed its pods yet; otherwise None."""
        if self._kubelet is None or self.known.at_ms is not None:
            return None
        return self._said.get("/pods/") or "the kubelet has not listed its pods yet"

    def sync_soon(self) -> None:
        """List the pods at once because a pod was created or removed; no-op if the rate limit does not allow it."""
        if self._bucket.take(self._monotonic()):
            self._soon.set()

    async def run(self) -> None:
        configured_at = float("-inf")
        while True:
            await self._guarded("/pods/", self.sync)
            await self._guarded("pod-resources", self.sync_held)
            if self._asks_configuration and self._monotonic() - configured_at >= CONFIGURATION_SECONDS:
                configured_at = self._monotonic()
                await self._guarded("/configz", self.configure)
            # a list made early restarts the pause
            self._soon.clear()
            try:
                async with asyncio.timeout(self._sync_seconds):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def _guarded(self, of: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask one source. An error that nobody expected is logged, and what was known before stays."""
        try:
            await ask()
        except Exception as error:  # noqa: BLE001 - no answer of the kubelet ends the agent
            self._complain(of, failure(of, error))

    async def sync(self) -> None:
        """If it fails, the last list stays."""
        if self._kubelet is None:
            return
        try:
            items = await asyncio.to_thread(self._kubelet.pods)
        except KubeletAway as error:
            self._complain("/pods/", str(error))
            return
        self.known = known_after(self.known, items, self._now_ms())
        self._complain("/pods/", "; ".join(self.known.problems))
        self._changed()

    async def sync_held(self) -> None:
        """If it fails, the last answer stays."""
        resources = self._resources
        if resources is None or not resources.is_there:
            return
        try:
            held = await asyncio.to_thread(resources.held)
        except KubeletAway as error:
            self._complain("pod-resources", str(error))
            return
        self._complain("pod-resources", "")
        unknown = unknown_pods(held, (*self._pods(), *self.known.pods.values()))
        if fresh := [name for name in unknown if name not in self._strangers]:
            # no error: after a start, the log tells its pods later. Their usage counts as the system's until then.
            self._logger.info("pods_only_in_kubelet", pods=fresh)
        self._strangers = {each.full_name for each in held} & self._strangers.union(unknown)
        self.held = held
        # although nothing new is held, a pod may have become known
        self._changed()

    async def configure(self) -> None:
        """Read the kubelet's configuration once, and with a static CPU manager also the CPUs that it assigned."""
        if self._kubelet is None:
            return
        try:
            self.configuration = await asyncio.to_thread(self._kubelet.configuration)
        except KubeletAway as error:
            self._complain("/configz", str(error))
            return
        self._complain("/configz", "")
        if not self.configuration.is_static:
            self._of_file = {}
            return
        text = await asyncio.to_thread(read_kernel_file, str(self._folder / CPU_MANAGER_STATE))
        try:
            self._of_file = parse_cpu_manager_state(text) if text is not None else {}
        except codec.DecodeError as error:
            # what was pinned a minute ago is nearer to the truth than nothing
            self._complain(CPU_MANAGER_STATE, f"{CPU_MANAGER_STATE}: {error}")
        else:
            self._complain(CPU_MANAGER_STATE, "")

    def _complain(self, of: str, trouble: str) -> None:
        """Log the error of a source once until it changes; "" for no error."""
        if trouble and trouble != self._said.get(of):
            self._logger.warning("kubelet_trouble", reason=trouble)
        self._said[of] = trouble
