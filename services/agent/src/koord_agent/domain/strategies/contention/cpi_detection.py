"""Detection by cycles per instruction: outliers and anomalies against a workload's baseline, and caps of antagonists.

The rules are in `koord_agent.domain.metrics.cpi`, caps in `cpi_caps`. Samples are taken once a minute. A baseline keeps
samples of many days in little memory. Workloads change with every release of their owner, so a workload without a
sample for a week is forgotten.

Source: agent spec, 18.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from koordcore.events.envelope import Event
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded, Suspect
from koordcore.protocol.config.node_strategies import CpiDetector
from koordcore.protocol.resource_names import cfs_quota_text

from koord_agent.domain.metrics import cpi as rules
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.contention.contentions import MOST_SUSPECTS, VICTIMS, Signal
from koord_agent.domain.strategies.contention.cpi_caps import Caps

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
        self._learnt.setdefault(workload, _Learnt()).samples.add(now_ms, task, value)

    def threshold(self, workload: Workload, now_ms: int, sigma: float) -> float | None:
        """CPI above which a sample is an outlier, `sigma` standard deviations above the mean.

        None while samples are too few.
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


@dataclass(slots=True)
class _Victim:
    outliers: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    minutes: deque[tuple[int, float | None]] = field(default_factory=lambda: deque(maxlen=64))
    contention: str = ""
    since_ms: int = 0


@dataclass(slots=True)
class CpiDetection:
    """Detects containers of one node whose CPI is too high, and caps the pods that cause it."""

    caps: Caps = field(default_factory=Caps)  # Caps of antagonists. `AntagonistCapsStrategy` turns them into plans.

    _baselines: Baselines = field(default_factory=Baselines)
    _victims: dict[tuple[str, str], _Victim] = field(default_factory=dict[tuple[str, str], _Victim])
    _usage: deque[tuple[int, Mapping[str, float]]] = field(default_factory=lambda: deque(maxlen=64))
    _due_ms: int = 0

    def take(self, look: NodeLook, settings: CpiDetector, read_quota: Callable[[str], int | None]) -> tuple[Event, ...]:
        """Process the CPI samples of one minute, and return the facts about anomalies that began or ended.

        When an anomaly begins, cap the pod that most likely causes it (see `cpi.choose_antagonist`), unless its quota
        is unreadable (None). No-op until a minute has passed since the last call that did something.
        """
        if look.now_ms < self._due_ms <= look.now_ms + MINUTE_MS:
            return ()
        self._due_ms = look.now_ms + MINUTE_MS
        facts = list(self._forget(look, settings))
        if not settings.enable:
            return tuple(facts)
        used = {pod.uid: look.metrics.average(Kind.POD_CPU, MINUTE_MS, pod.uid) or 0.0 for pod in look.pods}
        self._usage.append((look.now_ms, used))
        for pod in look.pods:
            if pod.qos not in VICTIMS:
                continue
            for container, name in _containers(pod):
                value = look.metrics.cycles_per_instruction(pod.uid, container, within_ms=2 * MINUTE_MS)
                workload = Workload(pod.owner or pod.name.rpartition("-")[0] or pod.name, name)
                if value is not None:
                    self._baselines.add(workload, f"{pod.uid}/{name}", value, look.now_ms)
                threshold = self._baselines.threshold(workload, look.now_ms, settings.sigma)
                victim = self._victims.setdefault((pod.uid, container), _Victim())
                victim.minutes.append((look.now_ms, value))
                if threshold is None:
                    continue
                if rules.is_outlier(value, used[pod.uid], threshold, min_usage=settings.min_usage):
                    victim.outliers.append(look.now_ms)
                facts.extend(self._judge(look, settings, pod, name, victim, threshold, read_quota))
        return tuple(facts)

    def _judge(
        self,
        look: NodeLook,
        settings: CpiDetector,
        pod: AgentPod,
        container: str,
        victim: _Victim,
        threshold: float,
        read_quota: Callable[[str], int | None],
    ) -> Iterator[Event]:
        times = [at / 1000 for at in victim.outliers]
        anomalous = rules.is_anomalous(
            times, look.now_ms / 1000, outliers=settings.outliers, window=settings.window_seconds
        )
        if not anomalous:
            if victim.contention:
                yield _ended(pod.uid, victim, look.now_ms, "")
                victim.contention = ""
            return
        if victim.contention:
            return
        victim.contention, victim.since_ms = f"{Signal.CPI}/{pod.uid}/{container}/{look.now_ms}", look.now_ms
        suspects, cap = self._search(look, settings, pod, victim, threshold)
        mitigation = self._cap(look, settings, cap, victim.contention, read_quota)
        yield InterferenceDetected(
            contention=victim.contention,
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            container=container,
            qos=pod.qos,
            signal=Signal.CPI,
            value=round(victim.minutes[-1][1] or 0.0, 4),
            threshold=round(threshold, 4),
            suspects=suspects,
            mitigation=mitigation,
        )

    def _search(
        self, look: NodeLook, settings: CpiDetector, pod: AgentPod, victim: _Victim, threshold: float
    ) -> tuple[list[Suspect], rules.Cap | None]:
        """The suspects, by correlation of their CPU usage with the victim's CPI, and the cap for one.

        None if none may be capped.
        """
        since = look.now_ms - settings.correlation_seconds * 1000
        cpis = {at: value for at, value in victim.minutes if at > since}
        minutes = [(at, used) for at, used in self._usage if at in cpis]
        others = [other for other in look.pods if other.uid != pod.uid and other.uid not in look.frozen]
        found = [
            rules.Suspect(
                name=other.uid,
                priority_class=other.priority if other.qos not in VICTIMS else "",
                usage=[used.get(other.uid, 0.0) for _, used in minutes],
            )
            for other in others
        ]
        values = [cpis[at] for at, _ in minutes]
        scores = {suspect.name: rules.correlation(threshold, values, suspect.usage) for suspect in found}
        ranked = sorted(others, key=lambda other: (-scores[other.uid], other.name))
        told = [
            Suspect(
                uid=other.uid,
                namespace=other.namespace,
                name=other.name,
                qos=other.qos,
                score=round(scores[other.uid], 4),
                cpu_milli=int((look.metrics.last(Kind.POD_CPU, other.uid) or 0.0) * 1000),
            )
            for other in ranked[:MOST_SUSPECTS]
            if scores[other.uid] > 0
        ]
        return told, rules.choose_antagonist(found, scores, at_least=settings.correlation)

    def _cap(
        self,
        look: NodeLook,
        settings: CpiDetector,
        cap: rules.Cap | None,
        cause: str,
        read_quota: Callable[[str], int | None],
    ) -> list[str]:
        if cap is None or cap.name in self.caps:
            return []
        pod = look.by_uid[cap.name]
        before = read_quota(look.pod_directory(pod))
        if before is None:
            return []
        self.caps.hold(
            cap.name,
            quota_us=cap.cfs_quota_us,
            before_us=before,
            now_ms=look.now_ms,
            seconds=settings.cap_seconds,
            cause=cause,
        )
        held = (
            f"{pod.namespace}/{pod.name} is capped at {cfs_quota_text(cap.cfs_quota_us)} for {settings.cap_seconds} s"
        )
        return [f"{held} (correlation {cap.correlation:.2f})"]

    def _forget(self, look: NodeLook, settings: CpiDetector) -> Iterator[Event]:
        self._baselines.forget_silent(look.now_ms)
        present = {(pod.uid, container) for pod in look.pods for container, _ in _containers(pod)}
        for (uid, container), victim in list(self._victims.items()):
            if settings.enable and (uid, container) in present:
                continue
            if victim.contention:
                gone = "the container is gone" if uid in look.by_uid else "the pod is gone"
                yield _ended(uid, victim, look.now_ms, gone if settings.enable else "detection is off")
            del self._victims[uid, container]


def _containers(pod: AgentPod) -> Iterable[tuple[str, str]]:
    """Id and name of each container whose cycles are counted; the pod itself if its containers are unknown."""
    if not pod.containers:
        return ((pod.uid, "main"),)
    return tuple((c.container_id, c.name) for c in pod.containers if c.container_id and not c.is_init)


def _ended(uid: str, victim: _Victim, now_ms: int, reason: str) -> InterferenceEnded:
    return InterferenceEnded(
        contention=victim.contention,
        pod_uid=uid,
        signal=Signal.CPI,
        lasted_seconds=(now_ms - victim.since_ms) / 1000,
        reason=reason,
    )
