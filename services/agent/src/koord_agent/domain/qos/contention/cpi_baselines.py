"""Baselines of the CPI of workloads: samples of many days in little memory.

The rule of a baseline is in `koord_agent.domain.metrics.cpi`. Workloads change with every release of their owner, so a
workload without a sample for a week is forgotten.

Source: agent spec, 18.
"""

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from koord_agent.domain.metrics import cpi as rules

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
RELEARN_MS = 10 * MINUTE_MS
"""Interval of computing a baseline while it is not robust. A robust one is computed once a day."""
MOST_SAMPLES = 5_000
FORGET_AFTER_MS = 7 * DAY_MS


class Workload(NamedTuple):
    """Containers whose CPI (cycles per instruction) can be compared: same container name, in pods of the same owner."""

    owner: str
    container: str


@dataclass(slots=True)
class _Samples:
    """Newest samples of one workload, 24 bytes each. A task is an index into `_numbers`."""

    _times_ms: "array[int]" = field(default_factory=lambda: array("q"))
    _tasks: "array[int]" = field(default_factory=lambda: array("q"))
    _values: "array[float]" = field(default_factory=lambda: array("d"))
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def newest_ms(self) -> int:
        return self._times_ms[-1]

    def add(self, at_ms: int, task: str, value: float) -> None:
        self._times_ms.append(at_ms)
        self._tasks.append(self._numbers.setdefault(task, len(self._numbers)))
        self._values.append(value)
        if len(self._times_ms) > MOST_SAMPLES:
            self._drop_oldest(MOST_SAMPLES // 10)

    def of_age(self, now_ms: int) -> list[rules.CpiSample]:
        names = {number: task for task, number in self._numbers.items()}
        return [
            rules.CpiSample(age_days=(now_ms - at) / DAY_MS, task=names[task], cpi=value)
            for at, task, value in zip(self._times_ms, self._tasks, self._values, strict=True)
        ]

    def _drop_oldest(self, count: int) -> None:
        del self._times_ms[:count], self._tasks[:count], self._values[:count]
        number_of = {old: new for new, old in enumerate(sorted(set(self._tasks)))}
        self._numbers = {task: number_of[old] for task, old in self._numbers.items() if old in number_of}
        self._tasks = array("q", [number_of[old] for old in self._tasks])


@dataclass(slots=True)
class _Learnt:
    samples: _Samples = field(default_factory=_Samples)
    baseline: rules.Baseline | None = None
    learnt_ms: int = -DAY_MS


@dataclass(slots=True)
class Baselines:
    """The learned CPI (cycles per instruction) of the workloads of one node. Only its `CpiDetection` uses it."""

    _learnt: dict[Workload, _Learnt] = field(default_factory=dict[Workload, _Learnt])

    def __len__(self) -> int:
        return len(self._learnt)

    def add(self, workload: Workload, task: str, value: float, now_ms: int) -> None:
        """Add a CPI sample of one task (container of a pod) of a workload."""
        self._learnt.setdefault(workload, _Learnt()).samples.add(now_ms, task, value)

    def threshold(self, workload: Workload, now_ms: int, sigma: float) -> float | None:
        """Return the CPI above which a sample of a workload is an outlier; None while too few samples are known.

        Args:
            workload: The workload.
            now_ms: Time in milliseconds.
            sigma: Number of standard deviations above the mean.
        """
        learnt = self._learnt.get(workload)
        if learnt is None:
            return None
        every_ms = DAY_MS if learnt.baseline is not None and learnt.baseline.robust else RELEARN_MS
        if not 0 <= now_ms - learnt.learnt_ms < every_ms:
            learnt.learnt_ms = now_ms
            learnt.baseline = rules.learn_baseline(learnt.samples.of_age(now_ms))
        baseline = learnt.baseline
        return baseline.threshold(sigma) if baseline is not None and baseline.robust else None

    def forget_silent(self, now_ms: int) -> None:
        """Delete the workloads that had no sample for a week."""
        self._learnt = {
            workload: learnt
            for workload, learnt in self._learnt.items()
            if now_ms - learnt.samples.newest_ms < FORGET_AFTER_MS
        }
