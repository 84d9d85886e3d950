"""How often each strategy has its turn, and how long evictions rest: the flags of the QoS manager.

source    agent spec, 2.2 (QoS, executor)
"""

from dataclasses import dataclass

from koord_agent.domain.plans.executor import FORCE_AFTER_MS
from koord_agent.domain.qos.evict import cpu_evict, memory_evict


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOptions:
    """Milliseconds between two turns; 0 = the strategy is switched off. A round is the least that there is.

    suppress_ms             CPU suppression
    reconcile_ms            CPU burst, memory QoS, resctrl, block IO, system settings
    cpu_evict_ms, ...       evictions, with their rests
    force_after_ms          a knob is looked at again after this
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
class Turn:
    """When a strategy has its next turn.

    every_ms     0 = never
    round_ms     between rounds: these are not to the millisecond, so a turn comes with the round that is nearest to it
    """

    every_ms: int
    round_ms: int
    _next_ms: int | None = None

    @property
    def ttl_ms(self) -> int:
        """How long plans of a turn live: two of its intervals (agent spec, 10.2)."""
        return 2 * max(self.every_ms, self.round_ms)

    @property
    def is_off(self) -> bool:
        """Whether it never has one."""
        return self.every_ms <= 0

    def comes(self, now_ms: int) -> bool:
        """Whether it is now; if so, the next one is an interval away. A clock that was set back makes nobody wait."""
        if self.is_off or self.every_ms <= self.round_ms:
            return not self.is_off
        due = self._next_ms
        if due is not None and due - self.every_ms <= now_ms < due - self.round_ms // 2:
            return False
        self._next_ms = now_ms + self.every_ms
        return True
