"""Detect disturbed pods in one cycle: pressure signals every 10 s, cycles per instruction every minute.

The contentions that go on have effects on other strategies (`Effects`). Source: agent spec, 18.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from koordcore.events.envelope import Event
from koordcore.protocol.config.node_strategies import CpiDetector

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.strategies.contention.contentions import (
    VICTIMS,
    Contentions,
    InterferenceSettings,
    PodLoad,
    PodSignals,
    Signal,
)
from koord_agent.domain.strategies.contention.cpi_detection import CpiDetection

SIGNAL_EVERY_MS = 10_000


@dataclass(slots=True)
class Detection:
    """Detects disturbed pods on one node by all signals. Only the node's `QosCycle` uses it."""

    contentions: Contentions = field(default_factory=Contentions)
    cpi: CpiDetection = field(default_factory=CpiDetection)
    _due_ms: int = 0

    def detect(
        self, look: NodeLook, settings: InterferenceSettings, read_quota: Callable[[str], int | None]
    ) -> tuple[Event, ...]:
        """Process the newest samples, and return the facts about contentions that began or ended."""
        cpi = settings.cpi if settings.enable else CpiDetector()
        return (*self._signals(look, settings), *self.cpi.take(look, cpi, read_quota))

    def _signals(self, look: NodeLook, settings: InterferenceSettings) -> tuple[Event, ...]:
        """Process the newest value of each pressure signal.

        No-op until 10 s have passed since the last call that did something, so that each sample counts once.
        """
        back = self._due_ms - look.now_ms > SIGNAL_EVERY_MS
        if look.now_ms < self._due_ms and not back:
            return ()
        self._due_ms = look.now_ms + SIGNAL_EVERY_MS
        if not settings.enable and not self.contentions.ongoing:
            return ()
        within_ms = 2 * max(SIGNAL_EVERY_MS, look.metrics.interval_ms)
        signals = [
            PodSignals(pod=pod, values=_signals_of(look, pod.uid, within_ms)) for pod in look.pods if pod.qos in VICTIMS
        ]
        loads = {
            pod.uid: PodLoad(
                cpu_cores=look.metrics.last(Kind.POD_CPU, pod.uid) or 0.0,
                memory_bytes=look.metrics.last(Kind.POD_MEMORY, pod.uid) or 0.0,
            )
            for pod in look.pods
        }
        return self.contentions.take(settings, signals, loads, look.by_uid, look.now_ms)


def _signals_of(look: NodeLook, uid: str, within_ms: int) -> dict[Signal, float]:
    metrics = look.metrics
    found = {
        Signal.PSI_CPU: metrics.pressure(uid, "cpu", "some", within_ms=within_ms),
        Signal.PSI_MEM: metrics.pressure(uid, "mem", "full", within_ms=within_ms),
        Signal.PSI_IO: metrics.pressure(uid, "io", "full", within_ms=within_ms),
        Signal.SCHED_DELAY: metrics.last(Kind.POD_SCHED_DELAY, uid, within_ms=within_ms),
        Signal.MEM_ALLOC: metrics.last(Kind.POD_MEMORY_ALLOC_STALL, uid, within_ms=within_ms),
        Signal.DISK_IO: metrics.last(Kind.POD_DISK_AWAIT, uid, within_ms=within_ms),
        Signal.NETWORK: metrics.last(Kind.POD_TCP_RETRANSMIT, uid, within_ms=within_ms),
    }
    return {signal: value for signal, value in found.items() if value is not None}
