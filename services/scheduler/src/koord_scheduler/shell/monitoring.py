"""Reports decisions that the log has not answered for too long.

Source: scheduler-core spec, 3 (monitor)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordcore.ports.clock import Clock
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.loop.commit.work import Placement, Work
from koord_scheduler.shell.observing import SchedulerMetrics


@dataclass(slots=True)
class _Watched:
    began: float  # Start of the append, in monotonic seconds
    placements: Sequence[Placement]
    is_told: bool = False  # Whether they were already reported as too slow


@dataclass(slots=True, kw_only=True, eq=False)
class Monitor:
    """Logs and counts each decision whose append the log has not answered within a time limit."""

    # Measures how long the log takes. The service passes the host's clock, even if the run is accelerated.
    clock: Clock
    metrics: SchedulerMetrics  # Counts the slow decisions
    logger: Logger
    period_seconds: float  # Pause between two checks, in seconds of `clock`
    timeout_seconds: float  # Duration after which a decision is too slow, in seconds of `clock`
    profile_of: Callable[[str], str]  # Returns the scheduler name of a pod by its uid
    _watched: dict[int, _Watched] = field(default_factory=dict[int, _Watched])
    _begun: int = 0

    def begin(self, works: Sequence[Work]) -> int:
        """Start the time limit for the placements of an append. Return the key for `end`."""
        self._begun += 1
        placements = [work for work in works if isinstance(work, Placement)]
        self._watched[self._begun] = _Watched(self.clock.monotonic(), placements)
        return self._begun

    def end(self, key: int) -> None:
        """Stop watching the append with this key (the result of `begin`), because the log has answered it. An answer
        that came too late is reported.
        """
        watched = self._watched.pop(key)
        self._look(watched)

    async def run(self) -> None:
        """Check every `period_seconds` until the task is cancelled."""
        while True:
            await self.clock.sleep(self.period_seconds)
            self.look()

    def look(self) -> None:
        """Report the placements that have exceeded the time limit by now. Each is reported once."""
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
