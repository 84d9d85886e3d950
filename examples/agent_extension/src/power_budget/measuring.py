"""Measurements: the power that the CPU packages of a node draw (RAPL), and the profile of its firmware."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from koord_agent.domain.extending.extension_points import Found, Surroundings

COLLECTOR, METRIC = "power", "watts"
SERIES = (COLLECTOR, METRIC, "")
"""A strategy reads it by `look.metrics.last(Kind.EXTENSION, SERIES)`."""


@dataclass(slots=True)
class Power:
    """Watts of all packages together, computed from their energy counters.

    Time is the clock of the agent (`seen.now_ms`), so that simulated time and a replay give the same watts. The first
    collection has no value: two readings of a counter make one sample.
    """

    powercap: Path
    every_seconds: float = 2.0
    last_watts: float | None = None
    _before: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def collect(self, seen: Surroundings) -> Iterator[Found]:
        """See `koord_agent.domain.extending.extension_points.Collector`."""
        now = seen.now_ms / 1000
        watts = [drawn for package in self._packages() if (drawn := self._watts(package, now)) is not None]
        if watts:
            self.last_watts = sum(watts)
            yield Found(METRIC, self.last_watts)

    def _packages(self) -> list[Path]:
        return sorted(self.powercap.glob("intel-rapl:[0-9]*"))

    def _watts(self, package: Path, now: float) -> float | None:
        microjoules = int((package / "energy_uj").read_text())
        before = self._before.get(package.name)
        self._before[package.name] = now, microjoules
        if before is None or now <= before[0] or microjoules < before[1]:
            return None  # the first reading, or the counter was reset
        return (microjoules - before[1]) / (now - before[0]) / 1e6


@dataclass(frozen=True, slots=True)
class PlatformProfile:
    """The profile of the firmware: `performance`, `balanced` or `low-power`."""

    file: Path
    every_seconds: float = 30.0

    def read(self, seen: Surroundings) -> str:
        """See `koord_agent.domain.extending.extension_points.State`."""
        return self.file.read_text().strip() if self.file.exists() else "balanced"
