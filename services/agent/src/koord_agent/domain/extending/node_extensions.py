"""Runs the extensions of one node. A failing extension becomes a problem of the cycle and never stops it.

`shell.node.node_agent` owns them and calls them at each step of a cycle.

Source: agent spec, 4.1, 10.1, 22.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

import msgspec
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordcore.protocol import keys
from koordcore.values import codec

from koord_agent.domain.extending.extension_points import (
    Found,
    PodCollector,
    Point,
    StateKind,
    Surroundings,
    Target,
    TopologyAdditions,
)
from koord_agent.domain.extending.extensions import ExtensionFailed, Extensions, NotAsked
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Metrics, Sample
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal, Strategy

T = TypeVar("T")
MOST_VALUES: Final = 1_000
"""Largest number of values of one collection; further values are left out and reported."""
SLO_EXTENSIONS: Final = "extensions"


def amendment(report: NodeTopologyReported, added: TopologyAdditions) -> tuple[TopologyAdditions, NodeTopologyReported]:
    """Return the additions of a hook with checked types, and the report with them.

    Raises:
        ValueError: They replace what the agent reports, or name a zone that does not exist.
    """
    kept = TopologyAdditions(
        annotations={str(key): str(value) for key, value in added.annotations.items()},
        zone_resources={
            zone: {str(name): int(amount) for name, amount in more.items()}
            for zone, more in added.zone_resources.items()
        },
    )
    return kept, amended(report, kept)


def amended(report: NodeTopologyReported, added: TopologyAdditions) -> NodeTopologyReported:
    """Raises ValueError: The additions replace what the agent reports, or name a zone that does not exist."""
    taken = sorted(set(added.annotations) & set(report.annotations))
    if taken:
        raise ValueError(f"the agent itself reports: {', '.join(taken)}")
    unknown = sorted(set(added.zone_resources) - {zone.name for zone in report.zones})
    if unknown:
        raise ValueError(f"there is no zone {', '.join(unknown)}")
    zones = [_with_resources(zone, added.zone_resources.get(zone.name, {})) for zone in report.zones]
    return msgspec.structs.replace(report, annotations={**report.annotations, **added.annotations}, zones=zones)


def _with_resources(zone: TopologyZone, more: Mapping[str, int]) -> TopologyZone:
    taken = sorted(set(more) & set(zone.capacity))
    if taken:
        raise ValueError(f"the agent itself reports of {zone.name}: {', '.join(taken)}")
    return msgspec.structs.replace(zone, capacity={**zone.capacity, **more}, allocatable={**zone.allocatable, **more})


@dataclass(frozen=True, slots=True)
class _Injected:
    """A pod with the policies of extensions. It is complete after every extension has answered."""

    pod: AgentPod
    injected: AgentPod
    is_complete: bool


class NodeExtensions:
    """Calls the installed extensions for one node, and turns their failures into problems.

    Only the node's agent uses it.
    """

    def __init__(self, extensions: Extensions) -> None:
        self.states: dict[str, object] = {}
        """Last values of states by name."""
        self._all = extensions
        self._problems: dict[str, None] = {}
        self._lasting: dict[tuple[Point, str], list[str]] = {}
        self._due_ms: dict[tuple[Point, str], int] = {}
        self._injected: dict[str, _Injected] = {}
        self._kept: dict[tuple[PodCollector, str], tuple[AgentPod, dict[str, bool]]] = {}
        self._added: dict[str, TopologyAdditions] = {}
        self._told: dict[StateKind, object] = {}
        self._slo: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = None, None

    def take_problems(self) -> list[str]:
        """Return the failures of extensions since the last call of this method; equal sentences are returned once.

        A problem of a collector or a state that is read once in a while is returned until a later reading has none.
        """
        lasting = (problem for problems in self._lasting.values() for problem in problems)
        problems, self._problems = list(dict.fromkeys((*lasting, *self._problems))), {}
        return problems

    def start_cycle(self) -> None:
        """Give every extension its time budget again."""
        self._all.guard.start_cycle()

    def collect(self, seen: Surroundings) -> list[Sample]:
        """Return the new values of the collectors as samples with the present time, and read the states as well."""
        samples: list[Sample] = []
        for name, collector in sorted(self._all.collectors.items()):
            due = self._is_due(Point.COLLECTOR, name, collector.every_seconds, seen.now_ms)
            found = self._polled(Point.COLLECTOR, name, lambda of=collector: _values(of.collect(seen)), due=due)
            if found is not None:
                samples.extend(self._samples(name, found, seen.now_ms))
        for name, state in sorted(self._all.states.items()):
            due = self._is_due(Point.STATE, name, state.every_seconds, seen.now_ms)
            read = self._polled(Point.STATE, name, lambda of=state: (of.read(seen),), due=due)
            if read is not None:
                self.states = {**self.states, name: read[0]}
        return samples

    def measured(self, by: PodCollector, pods: Sequence[AgentPod]) -> Sequence[AgentPod]:
        """The pods that pass every filter registered for this collector.

        If a filter raises an error, the pod is measured, and the filter is called again in the next cycle.
        """
        filters = {name: keeps for (of, name), keeps in sorted(self._all.pod_filters.items()) if of is by}
        if not filters:
            return pods
        kept = [pod for pod in pods if self._is_kept(by, pod, filters)]
        uids = {pod.uid for pod in pods}
        self._kept = {key: known for key, known in self._kept.items() if key[0] is not by or key[1] in uids}
        return kept

    def slo(self, slo: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the NodeSLO with the extensions' defaults for its section `extensions`; None without a NodeSLO."""
        if slo is None or not self._all.slo_defaults:
            return slo
        if self._slo[0] is not slo:
            written = slo.get(SLO_EXTENSIONS)
            own: Mapping[str, Any] = cast("Mapping[str, Any]", written) if isinstance(written, Mapping) else {}
            self._slo = slo, {**slo, SLO_EXTENSIONS: _overlaid(self._all.slo_defaults, own)}
        return self._slo[1]

    def strategies(self) -> list[Strategy]:
        """The enabled ones, in the order of their names."""
        return [
            _GuardedStrategy(name, self._all.needs[name], self._all.strategies[name], self)
            for name in sorted(self._all.enabled)
        ]

    def ask(self, name: str, propose: Callable[[], Proposal]) -> Proposal:
        """If the strategy fails, record the problem and return an empty proposal."""
        return self._called(Point.STRATEGY, name, lambda: _checked(propose())) or Proposal()

    def with_policies(self, look: NodeLook) -> NodeLook:
        """Give pods the extensions' policies as annotations. A pod that has the annotation itself keeps it."""
        if not self._all.policies:
            return look
        pods = tuple(self._with_policies(pod) for pod in look.pods)
        self._injected = {pod.uid: self._injected[pod.uid] for pod in look.pods}
        return replace(look, pods=pods)

    def call_back(self, look: NodeLook, pools: object) -> None:
        """Call the registered callbacks for the parts of the node's state that changed since the last cycle."""
        if not self._all.callbacks:
            return
        target = Target(look.pods, look.host_applications)
        states: Sequence[tuple[StateKind, object, Any]] = (
            (StateKind.NODE_SLO, look.slo, look.slo),
            (StateKind.ALL_PODS, look.pods, None),
            (StateKind.NODE_TOPOLOGY, pools, pools),
            (StateKind.NODE_METADATA, (look.labels, look.annotations), (look.labels, look.annotations)),
        )
        for kind, state, shown in states:
            if state is None or self._told.get(kind) == state:
                continue
            self._told[kind] = state
            for (of, name), callback in sorted(self._all.callbacks.items()):
                if of is kind:
                    self._called(
                        Point.CALLBACK,
                        f"{name} on {kind}",
                        lambda to=callback, kind=kind, shown=shown: to(kind, shown, target),
                    )

    def pod_metrics(self, pods: Iterable[AgentPod], metrics: Metrics) -> dict[str, dict[str, Any]]:
        """Return additional values for a usage report: UID of a pod -> name -> value.

        Pods without a value are left out.

        A report is made between cycles. Extensions have the time of one cycle for it.
        """
        if not self._all.pod_metrics:
            return {}
        self.start_cycle()
        found: dict[str, dict[str, Any]] = {}
        for pod in pods:
            for name, fill in sorted(self._all.pod_metrics.items()):
                value = self._called(Point.POD_METRIC, name, lambda of=fill, pod=pod: _json(of(pod, metrics)))
                if value is not None:
                    found.setdefault(pod.uid, {})[name] = value
        return found

    @property
    def amends_topology(self) -> bool:
        return bool(self._all.topology_hooks)

    def topology(self, report: NodeTopologyReported) -> NodeTopologyReported:
        """Add what the extensions' hooks return. A hook fails if it replaces something that the agent reports.

        After a failure, its last additions stay where they still fit, so that the report does not change back and
        forth.
        """
        for name, hook in sorted(self._all.topology_hooks.items()):
            found = self._called(Point.TOPOLOGY, name, lambda of=hook, before=report: amendment(before, of(before)))
            if found is not None:
                self._added[name], report = found
            elif (last := self._added.get(name)) is not None:
                with contextlib.suppress(ValueError):  # there is no such zone any more
                    report = amended(report, last)
        return report

    @property
    def replaces_eviction(self) -> bool:
        """Whether an extension ends evicted pods instead of the container runtime."""
        return self._all.evict is not None

    def evict(self, pod: AgentPod) -> bool:
        """Let the extension end a pod, and return whether it ended; False also if the extension failed."""
        end = self._all.evict
        return end is not None and self._called(Point.EVICTION, "replaced", lambda: bool(end(pod))) is True

    def _is_due(self, point: Point, name: str, every_seconds: float, now_ms: int) -> bool:
        every_ms, due = round(every_seconds * 1000), self._due_ms.get((point, name))
        # a clock that was set back must not silence a collector
        if due is not None and due - every_ms <= now_ms < due:
            return False
        self._due_ms[point, name] = now_ms + every_ms
        return True

    def _samples(self, name: str, found: Sequence[Found], now_ms: int) -> list[Sample]:
        if len(found) > MOST_VALUES:
            self._last(Point.COLLECTOR, name, f"{len(found)} values, the first {MOST_VALUES} are kept")
        usable = [one for one in found[:MOST_VALUES] if one.metric and math.isfinite(one.value)]
        if len(usable) < min(len(found), MOST_VALUES):
            self._last(Point.COLLECTOR, name, "values without a name or a finite number are left out")
        return [Sample(Kind.EXTENSION, now_ms, float(one.value), (name, one.metric, one.of)) for one in usable]

    def _is_kept(self, by: PodCollector, pod: AgentPod, filters: Mapping[str, Callable[[AgentPod], bool]]) -> bool:
        known = self._kept.get((by, pod.uid))
        answers = known[1] if known is not None and known[0] is pod else {}
        for name, keeps in filters.items():
            if name not in answers:
                answer = self._called(Point.POD_FILTER, name, lambda of=keeps: bool(of(pod)))
                if answer is not None:
                    answers[name] = answer
        self._kept[by, pod.uid] = pod, answers
        return all(answers.values())

    def _with_policies(self, pod: AgentPod) -> AgentPod:
        """The same pod gives the same object, because later steps compare by identity."""
        known = self._injected.get(pod.uid)
        if known is not None and known.pod is not pod:
            known = None
        if known is not None and known.is_complete:
            return known.injected
        added: dict[str, str] = {}
        is_complete = True
        for key in (keys.CPU_BURST, keys.MEMORY_QOS):
            if key in pod.annotations:
                continue
            text, all_answered = self._policy(pod, key)
            is_complete = is_complete and all_answered
            if text is not None:
                added[key] = text
        injected = replace(pod, annotations={**pod.annotations, **added}) if added else pod
        if known is not None and known.injected == injected:
            injected = known.injected
        self._injected[pod.uid] = _Injected(pod, injected, is_complete)
        return injected

    def _policy(self, pod: AgentPod, key: str) -> tuple[str | None, bool]:
        """JSON of the first extension by name that has a policy, and whether all that were asked answered."""
        all_answered = True
        for name, policies in sorted(self._all.policies.items()):
            ask = policies.cpu_burst if key == keys.CPU_BURST else policies.memory_qos
            found = self._called(Point.POLICIES, name, lambda of=ask: (_text(of(pod)),))
            if found is None:
                all_answered = False
            elif found[0] is not None:
                return found[0], all_answered
        return None, all_answered

    def _called(self, point: Point, name: str, function: Callable[[], T]) -> T | None:
        try:
            return self._all.call(point, name, function)
        except NotAsked:
            return None
        except ExtensionFailed as failed:
            self._add_problem(str(failed))
            return None

    def _polled(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """Forget the problems of a collector or a state that answers; None if there is no new answer."""
        try:
            found = self._all.poll(point, name, function, due=due)
        except ExtensionFailed as failed:
            self._lasting[point, name] = [str(failed)]
            return None
        if found is not None:
            self._lasting.pop((point, name), None)
        return found

    def _last(self, point: Point, name: str, problem: str) -> None:
        self._lasting.setdefault((point, name), []).append(f"{point} {name}: {problem}")

    def _add_problem(self, problem: str) -> None:
        self._problems[problem] = None


def _values(found: Iterable[Found]) -> tuple[Found, ...]:
    """Check the types of a collector's values. Raise TypeError or ValueError."""
    return tuple(Found(str(metric), float(value), str(of)) for metric, value, of in found)


@dataclass(frozen=True, slots=True)
class _GuardedStrategy:
    name: str
    needs: Needs
    strategy: Strategy
    extensions: NodeExtensions

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        return self.extensions.ask(self.name, lambda: self.strategy.propose(look, policy, state))


def _checked(proposal: Proposal) -> Proposal:
    """Raise TypeError if the arbiter cannot use the proposal."""
    if not _is(proposal, Proposal):
        raise TypeError(f"not a proposal: {proposal!r}")
    plans = tuple(proposal.plans)
    for plan in plans:
        if not (_is(plan, Plan) and _is(plan.file, CgroupFile) and _is(plan.value, str)):
            raise TypeError(f"not a plan: {plan!r}")
    return Proposal(plans, tuple(proposal.evictions), tuple(proposal.problems), proposal.group_identity)


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)


def _text(policy: str | None) -> str | None:
    if policy is not None and not _is(policy, str):
        raise TypeError(f"not a text: {policy!r}")
    return policy


def _json(value: object) -> object:
    """A value as it is after encoding and decoding JSON. Raise TypeError if that is impossible."""
    return None if value is None else codec.decode(codec.encode(value), object)


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the fields of `above` merged over it at any depth; null keeps the lower field.

    Source: agent spec, 4.2.
    """
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            result[key] = _overlaid(cast("Mapping[str, Any]", under), cast("Mapping[str, Any]", value))
        elif value is not None:
            result[key] = value
    return result
