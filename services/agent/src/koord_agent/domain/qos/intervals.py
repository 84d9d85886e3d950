"""Intervals of the strategies, and their pauses after evictions: flags of the QoS manager.

Source: agent spec, 2.2 (QoS, executor).
"""

from dataclasses import dataclass

from koord_agent.domain.plans.executor import FORCE_AFTER_MS
from koord_agent.domain.qos.evict import cpu_evict, memory_evict


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOptions:
    """Intervals of the strategies in milliseconds. 0 disables a strategy. The shortest interval is one cycle.

    Attributes:
        suppress_ms: Interval of CPU suppression.
        reconcile_ms: Interval of CPU burst, memory QoS, CPU QoS, resctrl, block IO, system settings and installed
            strategies.
        cpu_evict_ms: Interval of evictions for CPU.
        memory_evict_ms: Interval of evictions for memory.
        cpu_evict_rest_ms: Pause after an eviction for CPU.
        memory_evict_rest_ms: Pause after an eviction for memory.
        force_after_ms: Time after which a written value is compared with its file again.
    """

    suppress_ms: int = 1_000
    reconcile_ms: int = 1_000
    cpu_evict_ms: int = 1_000
    memory_evict_ms: int = 1_000
    cpu_evict_rest_ms: int = cpu_evict.COOL_DOWN_SECONDS * 1_000
    memory_evict_rest_ms: int = memory_evict.COOL_DOWN_SECONDS * 1_000
    force_after_ms: int = FORCE_AFTER_MS


DEFAULT_OPTIONS = QosOptions()


@dataclass(slots=True)
class Interval:
    """Decides in which cycles a periodic task, such as a strategy, runs.

    Cycles are not exact to the millisecond, so a task runs in the cycle nearest to its due time.

    Attributes:
        every_ms: Milliseconds between two runs. 0 means never.
        cycle_ms: Milliseconds between cycles.
    """

    every_ms: int
    cycle_ms: int
    _next_ms: int | None = None

    @property
    def ttl_ms(self) -> int:
        """Lifetime of a plan of the task in milliseconds: two intervals (agent spec, 10.2)."""
        return 2 * max(self.every_ms, self.cycle_ms)

    @property
    def is_off(self) -> bool:
        """Whether the task never runs."""
        return self.every_ms <= 0

    def is_due(self, now_ms: int) -> bool:
        """Return whether the task runs in the cycle at `now_ms`. If so, its next interval begins.

        A clock that is set back does not delay it.
        """
        if self.is_off or self.every_ms <= self.cycle_ms:
            return not self.is_off
        due = self._next_ms
        if due is not None and due - self.every_ms <= now_ms < due - self.cycle_ms // 2:
            return False
        self._next_ms = now_ms + self.every_ms
        return True
