"""Which decisions have been without an outcome for too long.

Source: scheduler-core spec, 3 (monitor)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordcore.ports.clock import Clock
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.commit.work import Placement, Work
from koord_scheduler.shell.observing import SchedulerMetrics


@dataclass(slots=True)
class _Watched:
    """Placements of one append. began: monotonic seconds."""

    began: float
    placements: Sequence[Placement]
    is_told: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Monitor:
    """Keeps what is under way, and complains once about each decision that takes too long.

    Attributes:
        period_seconds: Of the clock that is given.
        timeout_seconds: Of the clock that is given.
        profile_of: Scheduler name of a pod, by uid.
    """

    clock: Clock
    metrics: SchedulerMetrics
    logger: Logger
    period_seconds: float
    timeout_seconds: float
    profile_of: Callable[[str], str]
    _watched: dict[int, _Watched] = field(default_factory=dict[int, _Watched])
    _begun: int = 0

    def begin(self, works: Sequence[Work]) -> int:
        """Decisions are on their way to the log; returns the key for `end`."""
        self._begun += 1
        placements = [work for work in works if isinstance(work, Placement)]
        self._watched[self._begun] = _Watched(self.clock.monotonic(), placements)
        return self._begun

    def end(self, key: int) -> None:
        """They have their outcome."""
        watched = self._watched.pop(key)
        self._look(watched)

    async def run(self) -> None:
        """Look every period, for ever."""
        while True:
            await self.clock.sleep(self.period_seconds)
            self.look()

    def look(self) -> None:
        """Complains about what has taken too long by now."""
        for watched in self._watched.values():
            self._look(watched)

    def _look(self, watched: _Watched) -> None:
        waited = self.clock.monotonic() - watched.began
        if watched.is_told or waited <= self.timeout_seconds:
            return
        watched.is_told = True
        for placement in watched.placements:
            profile = self.profile_of(placement.uid)
            self.metrics.of(profile).timeouts.inc()
            self.logger.error(
                "scheduling_timeout",
                pod_uid=placement.uid,
                node=placement.node,
                attempt=placement.attempt,
                profile=profile,
                seconds=round(waited, 3),
            )
