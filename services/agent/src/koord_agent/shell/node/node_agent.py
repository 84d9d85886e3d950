"""The agent of one node, without the bus: it runs pods, measures, protects the node, and returns facts.

`koord_agent.cycle` passes desired state and time to it, and publishes its facts. While the bus is unavailable, the last
desired state stays in force. One process may have many agents (simulated nodes). Only one task uses an agent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from koordcore.events.envelope import Event
from koordcore.events.observation import NodeUsageReported

from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.failure import failure
from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.reporting.lasting_problems import LastingProblems
from koord_agent.domain.strategies.cpu_suppress import Decision, NodeView
from koord_agent.domain.strategies.load_rise import RiseWatch
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.executor import Outcome
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.measure import Kubelet, Measurement, NodeMeasuring
from koord_agent.shell.node.pods import BY_KUBELET, NodePods, PodControl, PodsRun
from koord_agent.shell.node.protect import DEFAULT_PROTECTION, Protection, QosCycle

SHORTEST_COLLECTION_SECONDS = 1.0
"""Shortest valid collect interval of a real node. Below it, nothing is measured and protected (agent spec, 2.2)."""
CYCLE_FAILED = "the cycle failed, what is set stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    facts: tuple[Event, ...]  # Facts to append to the aggregate of the node, in order
    sentence: str  # One line for the operator
    problems: tuple[str, ...]  # Present problems of measuring and protecting the node, one sentence each
    decision: Decision | None  # Decision of CPU suppression. None means no decision was made.
    outcomes: tuple[Outcome, ...]
    pod_problems: tuple[str, ...] = ()  # Present problems of starting and ending pods, one sentence each
    # (strategy, result) -> number of plans; results are applied, expired, overridden and conflict.
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


def nothing_done(
    sentence: str,
    facts: tuple[Event, ...] = (),
    problems: tuple[str, ...] = (),
    pod_problems: tuple[str, ...] = (),
) -> CycleResult:
    """A cycle that measured and wrote nothing; the sentence has the reason."""
    return CycleResult(
        facts=facts, sentence=sentence, problems=problems, decision=None, outcomes=(), pod_problems=pod_problems
    )


class NodeAgent:
    """The agent of one node: its desired state, its pods, its measurements, and its protection."""

    def __init__(
        self,
        node: str,
        host: Host,
        measurement: Measurement,
        *,
        interval_ms: int,
        settings: AgentSettings | None = None,
        pods: PodControl = BY_KUBELET,
        protection: Protection = DEFAULT_PROTECTION,
        extensions: Extensions | None = None,
    ) -> None:
        self.node = node
        self.host = host
        self.desired: DesiredView | None = None  # Desired state of the node. None means not known yet.
        self._lasting = LastingProblems()
        self.known = KnownPods()  # Pods in the list of the kubelet. Empty without a kubelet.
        self.kubelet_static = False
        self.kubelet_cgroup_root: str | None = None  # `cgroupRoot` of the kubelet's configuration; None if unknown
        self.asks_kubelet = False  # Whether the kubelet will list its pods
        # Snapshot of the node of the last cycle. It is immutable and replaced as a whole, so other threads may read it.
        self.last_look: NodeLook | None = None
        self.last_decision: Decision | None = None
        # Last known CPU quota of the best-effort class, microseconds per 100 ms. -1 means unlimited.
        self.be_quota_us = -1
        settings = settings or AgentSettings.model_validate({})
        too_often = settings.collect_res_used_interval < SHORTEST_COLLECTION_SECONDS
        self._protects = host.roots is None or not too_often
        self.watches_load = False  # Whether `load_rose` is to be asked between cycles
        self._rise = RiseWatch()
        self._extensions = NodeExtensions(extensions or Extensions())
        self.measuring = NodeMeasuring(
            node, host, measurement, self._extensions, settings=settings, interval_ms=interval_ms
        )
        self.pods = NodePods(
            host, runner=pods.runner, announced=pods.announced, forget=self.measuring.forget, stop=pods.stop
        )
        self.qos = QosCycle(host, settings, protection, self._extensions, cycle_ms=interval_ms)

    def run_cycle(self, now_ms: int) -> CycleResult:
        """Start and end pods, measure, and protect. Failures of the machine or of pods do not raise."""
        desired = self.desired
        if desired is None:
            return nothing_done("no desired state yet")

        # 1. start what is wanted, end what is not
        pods_run = self.run_pods()
        problems = [problem for problem in (desired.policy_problem, desired.collect_problem) if problem]
        if not self._protects:
            sentence = f"{self.node}: not measured and not protected, the collection interval is below 1 s"
            return nothing_done(sentence, pods_run.facts, tuple(problems), pods_run.problems)
        facts = list(pods_run.facts)  # of a cycle that fails, what was found before is told all the same
        try:
            done = replace(self._protect(desired, facts, problems, now_ms), pod_problems=pods_run.problems)
        except Exception as error:  # noqa: BLE001 - one bad item never ends the cycles of a node (agent spec, preamble)
            problems.append(failure(CYCLE_FAILED, error))
            done = nothing_done(problems[-1], tuple(facts), tuple(problems), pods_run.problems)
        return replace(done, facts=(*done.facts, *self._lasting.take(done.problems, now_ms)))

    def _protect(self, desired: DesiredView, facts: list[Event], problems: list[str], now_ms: int) -> CycleResult:
        self._extensions.start_cycle()
        pods = self.pods.all

        # 2. measure the machine: samples, and one immutable look
        facts += self.measuring.report_topology(desired, pods.values(), now_ms, problems)
        facts += self.measuring.report_devices(now_ms, problems)
        facts += self.measuring.report_oom_kills(pods.values(), now_ms)
        has_listed = self.known.at_ms is not None or not self.asks_kubelet
        frozen = frozenset(self.pods.uid_of.get(uid, uid) for uid in self.known.frozen(now_ms))
        kubelet = Kubelet(frozen, self.kubelet_static, has_listed, self.kubelet_cgroup_root)
        look, view = self.measuring.measure(desired, pods, kubelet, now_ms, problems)
        self.last_look = look
        self._watch_load(desired, view)
        self._extensions.call_back(look, self.measuring.pools)

        # 3. protect: contentions, proposals, arbiter, executor, evictions
        def end(uid: str) -> bool:
            if self._extensions.replaces_eviction and uid in self.pods.all:
                return self._extensions.evict(self.pods.all[uid])
            try:
                ended = self.pods.end(uid)
            except Exception as error:  # noqa: BLE001 - the pods that were evicted before it are told all the same
                problems.append(failure("an evicted pod is not ended here", error))
                return False
            problems.extend(ended.problems)
            return ended.ended

        report_ms = desired.collect.report_interval_seconds * 1000
        done = self.qos.run(look, view, desired.policy, facts, report_interval_ms=report_ms, end=end)
        problems.extend((*done.problems, *self._extensions.take_problems()))
        self.last_decision = done.decision
        if done.quota_us is not None:
            self.be_quota_us = done.quota_us

        # 4. return the facts and one sentence for the operator
        return CycleResult(
            facts=tuple(facts),
            sentence=f"{self.node}: {len(pods)} pods, {done.decision.reason}",
            problems=tuple(problems),
            decision=done.decision,
            outcomes=done.outcomes,
            plans=done.plans,
        )

    def _watch_load(self, desired: DesiredView, view: NodeView) -> None:
        """Simulated machines are not watched: their time stands still between two cycles."""
        every, policy = self.qos.suppress_every, desired.policy
        is_suppressed = policy is not None and policy.enable is True and any(pod.is_best_effort for pod in view.pods)
        self.watches_load = (
            is_suppressed and self.host.roots is not None and not every.is_off and every.every_ms <= every.cycle_ms
        )
        self._rise.decided(self.host.cpu_times() if self.watches_load else None)

    def load_rose(self) -> bool:
        """Look between two cycles whether the load beside best effort rose. It reads two files of the kernel."""
        desired = self.desired
        return (
            self.watches_load and desired is not None and self._rise.rose(self.host.cpu_times(), desired.capacity_milli)
        )

    def answer_rise(self, now_ms: int) -> CycleResult:
        """Limit best effort at once by the usage since the last decision, if that lowers its limits.

        Failures of the machine do not raise.
        """
        facts: list[Event] = []
        try:
            done = self._answer_rise(now_ms, facts)
        except Exception as error:  # noqa: BLE001 - as for the cycle
            problem = failure("a rise of the load is not answered before the next cycle", error)
            return nothing_done(problem, tuple(facts), problems=(problem,))
        return nothing_done(f"{self.node}: {done}", tuple(facts))

    def _answer_rise(self, now_ms: int, facts: list[Event]) -> str:
        desired, look = self.desired, self.last_look
        if desired is None or look is None:
            return "no cycle yet"
        look = replace(look, now_ms=now_ms)
        view = self.measuring.measure_rise(desired, look, now_ms)
        if view is None or view.node_cpu_used_cores is None:
            return "the load rose, its usage is unknown"  # so the next look asks again
        self._rise.decided(self.host.cpu_times())
        done = self.qos.suppress(look, view, desired.policy, facts)
        if done is None:
            return "the load rose, limits stay"
        self.last_decision = done.decision
        if done.quota_us is not None:
            self.be_quota_us = done.quota_us
        return done.decision.reason

    def run_pods(self) -> PodsRun:
        """See `NodePods.run`. No-op without a desired state. Failures of the machine or of pods do not raise."""
        try:
            return PodsRun((), ()) if self.desired is None else self.pods.run(self.desired, self.known)
        except Exception as error:  # noqa: BLE001 - as for the cycle; the next call tries again
            return PodsRun((), (failure("pods were not started and ended", error),))

    def report(self, now_ms: int, rfc3339_of: Callable[[int], str]) -> NodeUsageReported | None:
        """None if there is no desired state yet. `rfc3339_of` takes milliseconds."""
        if self.desired is None:
            return None
        return self.measuring.report(
            self.desired, self.pods.all, be_quota_us=self.be_quota_us, now_ms=now_ms, rfc3339_of=rfc3339_of
        )

    def farewell(self, now_ms: int) -> tuple[Event, ...]:
        """Return the last facts before the agent stops.

        Pods continue, and all written values except caps stay in force. A cap is the small CPU quota of a pod that
        disturbs others.
        """
        return self.qos.farewell(self.last_look, now_ms)
