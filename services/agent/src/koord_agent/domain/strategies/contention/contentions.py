"""Detect disturbed latency-sensitive pods, rank the suspects, and derive effects on other strategies.

A signal is a number, or None without activity or if a counter fell. A *contention* is a pod that is disturbed according
to one signal, such as its CPU pressure. `Contentions` has one state machine (`Contention`) per pod and signal: a signal
above its threshold for some consecutive values is contended. It ranks suspects when a contention begins. Ongoing
contentions change other strategies (`Effects`). Each contention has an id; facts and plans name it as their cause.
Signals of waiting are in `domain.kernel.counters`.

Source: agent spec, 18. Vectors: interference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koordcore.events.envelope import Event
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded, Suspect
from koordcore.protocol.config.node_strategies import Interference
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import QosClass

from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.strategy import NO_EFFECTS, Effects

LEAVE_FRACTION = 0.8
VICTIMS = frozenset((QosClass.LS, QosClass.LSR, QosClass.LSE))
POINTS_PER_CONTENTION = 5
MOST_SUSPECTS = 5
_BEST_EFFORT_WEIGHT = 2.0
"""Factor on the suspicion of best-effort pods, because they can be suppressed."""


class Signal(StrEnum):
    """A measured value of a pod that shows whether the pod is disturbed.

    PSI of cpu, memory and io; scheduling delay; memory allocation stall; disk wait; TCP retransmissions; cycles per
    instruction.
    """

    PSI_CPU = "psi-cpu"
    PSI_MEM = "psi-mem"
    PSI_IO = "psi-io"
    SCHED_DELAY = "sched-delay"
    MEM_ALLOC = "mem-alloc"
    DISK_IO = "disk-io"
    NETWORK = "network"
    CPI = "cpi"


class State(StrEnum):
    NORMAL = "normal"
    CONTENDED = "contended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The numbers of consecutive values after which a signal changes its state."""

    enter_samples: int = 3  # Number of values at or above the threshold after which the signal is contended
    leave_samples: int = 3  # Number of values below 0.8 of the threshold after which the signal is normal again


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    state: State = State.NORMAL
    above: int = 0  # Number of consecutive values at or above the threshold, while normal
    below: int = 0  # Number of consecutive values below 0.8 of the threshold, while contended

    def after(self, value: float | None, threshold: float, patience: Patience = Patience()) -> "Contention":
        """Return the state after one more value.

        The state becomes contended after `enter_samples` consecutive values at or above the threshold, and normal after
        `leave_samples` consecutive values below 0.8 of it. A missing value changes nothing.
        """
        if value is None:
            return self
        if self.state is State.NORMAL:
            above = self.above + 1 if value >= threshold else 0
            if above >= patience.enter_samples:
                return Contention(state=State.CONTENDED)
            return Contention(above=above)
        below = self.below + 1 if value < LEAVE_FRACTION * threshold else 0
        if below >= patience.leave_samples:
            return Contention()
        return Contention(state=State.CONTENDED, below=below)


def disk_await_ms(previous: Sequence[int], current: Sequence[int]) -> float | None:
    """Milliseconds per disk request between two readings; None if there was no request.

    A reading is reads, ms reading, writes, ms writing, as in /proc/diskstats.
    """
    reads, read_ms, writes, write_ms = (now - then for then, now in zip(previous, current, strict=True))
    if min(reads, read_ms, writes, write_ms) < 0 or reads + writes <= 0:
        return None
    return (read_ms + write_ms) / (reads + writes)


def retransmit_ratio(previous: Sequence[int], current: Sequence[int]) -> float | None:
    """Share of TCP segments that were retransmitted between two readings; None if none was sent.

    A reading is segments out and segments retransmitted, as in /proc/<pid>/net/snmp.
    """
    out, again = current[0] - previous[0], current[1] - previous[1]
    if out <= 0 or again < 0:
        return None
    return again / out


class InterferenceSettings(Interference, frozen=True, kw_only=True):
    """The object `extensions.interference` of the NodeSLO: how disturbed pods are detected."""

    disk_await_ms: float | None = None  # Threshold of the disk wait, which is only reported; None: not checked
    # Threshold of TCP retransmissions, which are only reported; None: not checked.
    retransmit_ratio: float | None = None

    @property
    def patience(self) -> Patience:
        """Each number is at least 1."""
        return Patience(enter_samples=max(self.psi.enter_samples, 1), leave_samples=max(self.psi.leave_samples, 1))

    def threshold(self, signal: Signal) -> float | None:
        """None if the signal is not checked."""
        found = {
            Signal.PSI_CPU: self.psi.cpu_some,
            Signal.PSI_MEM: self.psi.mem_full,
            Signal.PSI_IO: self.psi.io_full,
            Signal.SCHED_DELAY: self.sched_delay_ms,
            Signal.MEM_ALLOC: self.mem_alloc_ratio,
            Signal.DISK_IO: self.disk_await_ms,
            Signal.NETWORK: self.retransmit_ratio,
        }.get(signal)
        return None if found is None else float(found)


def interference_settings(slo: Mapping[str, Any]) -> InterferenceSettings:
    """From a NodeSLO (JSON with defaults). If they are missing, detection is off.

    Raises:
        InvalidInput: A field has a wrong type.
    """
    extensions: Mapping[str, Any] = slo.get("extensions") or {}
    return convert(extensions.get("interference"), InterferenceSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSignals:
    """A signal without a value is missing and keeps its state."""

    pod: AgentPod
    values: Mapping[Signal, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """CPU and memory usage of a pod, by which suspects are ranked; 0 if unknown."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


@dataclass(slots=True)
class _Ongoing:
    contention: Contention = field(default_factory=Contention)
    id: str = ""
    since_ms: int = 0
    is_prod: bool = False


@dataclass(slots=True)
class Contentions:
    """The state of every contention of one node. Only its `Detection` uses it."""

    _states: dict[tuple[str, Signal], _Ongoing] = field(default_factory=dict[tuple[str, Signal], _Ongoing])

    def take(
        self,
        settings: InterferenceSettings,
        signals: Iterable[PodSignals],
        loads: Mapping[str, PodLoad],
        pods: Mapping[str, AgentPod],
        now_ms: int,
    ) -> tuple[Event, ...]:
        """Process the signals of one cycle, and return the facts about contentions that began or ended.

        Signals of other pods than LS, LSR and LSE are ignored. Contentions end if their pod is not in `pods`, or their
        pod or signal is not checked any more. `loads` is the usage of all pods.
        """
        facts: list[Event] = []
        for uid, signal in tuple(self._states):
            reason = _unchecked(settings, signal, pods.get(uid))
            if reason:
                ongoing = self._states.pop((uid, signal))
                if ongoing.id:
                    facts.append(_ended(uid, signal, ongoing, now_ms, reason))
        if not settings.enable:
            return tuple(facts)
        for found in signals:
            for signal, value in found.values.items():
                threshold = settings.threshold(signal)
                if threshold is None or found.pod.qos not in VICTIMS:
                    continue
                ongoing = self._states.setdefault((found.pod.uid, signal), _Ongoing())
                was = ongoing.contention.state
                ongoing.contention = ongoing.contention.after(value, threshold, settings.patience)
                now = ongoing.contention.state
                if was is State.NORMAL and now is State.CONTENDED:
                    ongoing.since_ms = now_ms
                    ongoing.is_prod = found.pod.priority == PriorityBand.PROD
                    ongoing.id = f"{signal}/{found.pod.uid}/{now_ms}"
                    suspects = rank_suspects(signal, found.pod.uid, loads, pods)
                    mitigation = mitigation_of(settings, signal, is_prod=ongoing.is_prod)
                    facts.append(_detected(found.pod, signal, ongoing, value, threshold, suspects, mitigation))
                elif was is State.CONTENDED and now is State.NORMAL:
                    facts.append(_ended(found.pod.uid, signal, ongoing, now_ms, ""))
                    ongoing.id = ""
        return tuple(facts)

    def effects(self, settings: InterferenceSettings) -> Effects:
        """Those of the ongoing contentions of prod pods."""
        if not settings.psi.act:
            return NO_EFFECTS
        by_signal: dict[Signal, list[str]] = {}
        for (_, signal), ongoing in self._states.items():
            if ongoing.id and ongoing.is_prod:
                by_signal.setdefault(signal, []).append(ongoing.id)
        cpu, memory, io = (
            tuple(sorted(by_signal.get(signal, ()))) for signal in (Signal.PSI_CPU, Signal.PSI_MEM, Signal.PSI_IO)
        )
        return Effects(
            suppress_points=POINTS_PER_CONTENTION * len(cpu),
            memory_points=POINTS_PER_CONTENTION if memory else 0,
            halve_io_weight=bool(io),
            suppress_causes=cpu,
        )

    @property
    def ongoing(self) -> tuple[str, ...]:
        return tuple(sorted(ongoing.id for ongoing in self._states.values() if ongoing.id))


def _unchecked(settings: InterferenceSettings, signal: Signal, pod: AgentPod | None) -> str:
    """Why a signal of a pod is not checked any more; "" if it is checked."""
    if pod is None:
        return "the pod is gone"
    if not settings.enable:
        return "detection is off"
    if settings.threshold(signal) is None:
        return "the signal is not checked any more"
    return "" if pod.qos in VICTIMS else "the pod is not latency-sensitive any more"


def mitigation_of(settings: InterferenceSettings, signal: Signal, *, is_prod: bool) -> list[str]:
    """The measures against a contention of a prod (or other) pod, as sentences for the fact; empty for none."""
    if not settings.psi.act or not is_prod:
        return []
    match signal:
        case Signal.PSI_CPU:
            return [f"the best-effort CPU budget's threshold is lowered by {POINTS_PER_CONTENTION} points"]
        case Signal.PSI_MEM:
            return [f"the memory eviction threshold is lowered by {POINTS_PER_CONTENTION} points"]
        case Signal.PSI_IO:
            return ["best effort's block-IO weight is halved"]
        case _:
            return []


def rank_suspects(
    signal: Signal, victim: str, loads: Mapping[str, PodLoad], pods: Mapping[str, AgentPod]
) -> list[Suspect]:
    """Return at most five other pods of the node: those with the largest shares of the contended resource, in order.

    The resource is memory for the signals of memory, and CPU for all others. The usage of best-effort pods counts
    double. Pods that use none of it are left out.
    """
    by_memory = signal in (Signal.PSI_MEM, Signal.MEM_ALLOC)

    def amount(uid: str) -> float:
        load = loads.get(uid, PodLoad())
        used = load.memory_bytes if by_memory else load.cpu_cores
        return used * (_BEST_EFFORT_WEIGHT if pods[uid].is_best_effort else 1.0)

    amounts = {uid: amount(uid) for uid in pods if uid != victim}
    total = sum(amounts.values())
    ranked = sorted((uid for uid, used in amounts.items() if used > 0), key=lambda uid: (-amounts[uid], pods[uid].name))
    return [
        Suspect(
            uid=uid,
            namespace=pods[uid].namespace,
            name=pods[uid].name,
            qos=pods[uid].qos,
            score=round(amounts[uid] / total, 4),
            cpu_milli=int(loads.get(uid, PodLoad()).cpu_cores * 1000),
        )
        for uid in ranked[:MOST_SUSPECTS]
    ]


def _detected(
    pod: AgentPod,
    signal: Signal,
    ongoing: _Ongoing,
    value: float,
    threshold: float,
    suspects: list[Suspect],
    mitigation: list[str],
) -> InterferenceDetected:
    return InterferenceDetected(
        contention=ongoing.id,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos,
        signal=signal,
        value=round(value, 6),
        threshold=threshold,
        suspects=suspects,
        mitigation=mitigation,
    )


def _ended(uid: str, signal: Signal, ongoing: _Ongoing, now_ms: int, reason: str) -> InterferenceEnded:
    return InterferenceEnded(
        contention=ongoing.id,
        pod_uid=uid,
        signal=signal,
        lasted_seconds=(now_ms - ongoing.since_ms) / 1000,
        reason=reason,
    )
