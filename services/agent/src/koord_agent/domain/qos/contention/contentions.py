"""Detect disturbed latency-sensitive pods, rank the suspects, and derive effects on other strategies.

A *contention* is a pod that is disturbed according to one signal, such as its CPU pressure. `Contentions` has one
state machine (`interference`) per pod and signal. It ranks suspects when a contention begins. Ongoing contentions
change other strategies (`Effects`). Each contention has an id; facts and plans name it as their cause.

Source: agent spec, 18.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koordcore.events.envelope import Event
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded, Suspect
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import QosClass

from koord_agent.domain.qos.contention.interference import Contention, InterferenceSettings, Signal, State
from koord_agent.domain.state.pods import AgentPod

VICTIMS = frozenset((QosClass.LS, QosClass.LSR, QosClass.LSE))
POINTS_PER_CONTENTION = 5
MOST_SUSPECTS = 5
_BEST_EFFORT_WEIGHT = 2.0
"""Factor on the suspicion of best-effort pods, because they can be suppressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSignals:
    """The measured signals of one pod in this cycle. A signal without a value is missing and keeps its state."""

    pod: AgentPod
    values: Mapping[Signal, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """CPU and memory usage of a pod, by which suspects are ranked; 0 if unknown."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Changes of other strategies by ongoing contentions. There are none unless `psi.act` is set in the NodeSLO.

    Attributes:
        suppress_points: Percentage points by which the threshold of CPU suppression is lowered.
        memory_points: Percentage points by which the threshold of eviction for memory is lowered.
        halve_io_weight: Whether the block-IO weight of best effort is halved.
        suppress_causes: Ids of the contentions that lower the threshold of CPU suppression.
    """

    suppress_points: int = 0
    memory_points: int = 0
    halve_io_weight: bool = False
    suppress_causes: tuple[str, ...] = ()


NO_EFFECTS = Effects()


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

        Args:
            settings: Settings of the NodeSLO.
            signals: Signals by pod. Those of other pods than LS, LSR and LSE are ignored.
            loads: UID -> usage, for all pods.
            pods: UID -> pod, for all pods of the node. Contentions of other pods end, and of pods and signals that are
                not checked any more.
            now_ms: Time in milliseconds.
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
                ongoing.contention = ongoing.contention.after(value, threshold, settings.psi.patience)
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
        """Return the changes of other strategies that follow from the ongoing contentions of prod pods."""
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
        """Ids of the contentions that have begun and not ended."""
        return tuple(sorted(ongoing.id for ongoing in self._states.values() if ongoing.id))


def _unchecked(settings: InterferenceSettings, signal: Signal, pod: AgentPod | None) -> str:
    """Return why a signal of a pod is not checked any more; "" if it is checked."""
    if pod is None:
        return "the pod is gone"
    if not settings.enable:
        return "detection is off"
    if settings.threshold(signal) is None:
        return "the signal is not checked any more"
    return "" if pod.qos in VICTIMS else "the pod is not latency-sensitive any more"


def mitigation_of(settings: InterferenceSettings, signal: Signal, *, is_prod: bool) -> list[str]:
    """Return the measures of the agent against a contention, as sentences for the fact; empty for none.

    Args:
        settings: Settings of the NodeSLO.
        signal: Signal of the contention.
        is_prod: Whether the disturbed pod has the priority class prod.
    """
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

    Args:
        signal: Signal of the contention.
        victim: UID of the disturbed pod.
        loads: UID -> usage.
        pods: UID -> pod, for all pods of the node.
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
