"""One node's agent without its wires: it runs the pods it is told to, measures, enforces, and says what it did.

`koord_agent.cycle` gives it desired state and time and carries its facts to the log. With the bus away it goes on with
the last desired state. One process may hold many of them (simulated nodes); each belongs to one task.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import Event
from koordcore.protocol.config.typed import MemoryCollectPolicy
from koordcore.service.configuration.gates import FeatureGates
from koordcore.values.cpuset import EMPTY
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extending.extension_points import Surroundings
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.kernel.features import Features
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.prediction.reclaimable import ProdPrediction
from koord_agent.domain.qos.contention.interference import interference_settings
from koord_agent.domain.qos.intervals import DEFAULT_OPTIONS, QosOptions
from koord_agent.domain.qos.suppress.be_cpuset import CpuOwners
from koord_agent.domain.qos.suppress.cpu_suppress import Decision
from koord_agent.domain.state.desired import DesiredView
from koord_agent.domain.state.known_pods import KnownPods
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod
from koord_agent.shell.collect.collectors import NOTHING_SLOW, CollectOptions, Collectors
from koord_agent.shell.collect.sensing import cpu_owners, read_best_effort, suppress_view
from koord_agent.shell.collect.storage import REFRESH_MS, Storage
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.host.executor import ObserveWrite
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.cycle_result import Tick, nothing_done, place_of
from koord_agent.shell.node.node_pods import NodePods, PodRunner, PodsRun, StopContainers
from koord_agent.shell.node.predicting import Predicting
from koord_agent.shell.node.qos_cycle import DEFAULT_GATES, QosCycle
from koord_agent.shell.node.reporting import report_of
from koord_agent.shell.store.audit_log import AuditSink, no_audit
from koord_agent.shell.store.series_archive import SeriesArchive

OBJECT_MARGIN_MS = 60_000
"""Beyond the window of a report: it may be late."""
ROUND_FAILED = "the round failed, what is set stays"


class NodeAgent:
    """The agent of one node.

    interval_ms   of collection and suppression, on the service's clock
    monitor       its series; their retention decides about memory
    runner        None = pods are started by somebody else, and count as started once their cgroup is there
    announced     uids of the pods whose start is in the log already (after a restart of the agent)
    options       which of the slow collectors run
    gates         which strategies run
    audit         where every write goes
    predicting    None = no prediction
    archive       where the series are kept over a restart; None = nowhere
    topology      who may use which CPUs, and the report of it; None = neither
    qos           how often each strategy has its turn
    extensions    what installed packages add
    protects      False = it only says which pods run here: nothing is measured, nothing written
    stop          ends containers of evicted pods that somebody else started; None = the request alone stands
    """

    def __init__(
        self,
        node: str,
        host: Host,
        *,
        interval_ms: int,
        monitor: NodeMonitor,
        runner: PodRunner | None = None,
        announced: Iterable[str] = (),
        options: CollectOptions = NOTHING_SLOW,
        gates: FeatureGates = DEFAULT_GATES,
        audit: AuditSink = no_audit,
        draw: Callable[[], float] = lambda: 0.5,
        predicting: Predicting | None = None,
        archive: SeriesArchive | None = None,
        topology: TopologyReporter | None = None,
        stop: StopContainers | None = None,
        qos: QosOptions = DEFAULT_OPTIONS,
        storage_refresh_ms: int = REFRESH_MS,
        observe_write: ObserveWrite = lambda _resource, _written, _seconds: None,
        extensions: Extensions | None = None,
        protects: bool = True,
    ) -> None:
        self.node = node
        self.host = host
        self.desired: DesiredView | None = None
        self.known = KnownPods()
        """what a kubelet says of its pods; empty without one"""
        self.kubelet_static = False
        self.last_look: NodeLook | None = None
        self.last_report: NodeUsageReported | None = None
        self.last_decision: Decision | None = None
        self._interval_ms = interval_ms
        self._monitor = monitor
        self._pods = NodePods(host, runner=runner, announced=announced, forget=self._forget, stop=stop)
        self._extended = NodeExtensions(extensions or Extensions())
        self._qos = QosCycle(
            node,
            host,
            interval_ms=interval_ms,
            gates=gates,
            audit=audit,
            draw=draw,
            options=qos,
            storage_refresh_ms=storage_refresh_ms,
            observe=observe_write,
            extensions=self._extended,
        )
        self._owners: CpuOwners | None = None
        self._owners_of: Mapping[str, AgentPod] | None = None
        self._topology = host.cpu_topology()
        self._collectors = Collectors(
            host,
            monitor,
            features=host.features(),
            options=options,
            topology=self._topology,
            measured=self._extended.measured,
        )
        self._predicting = predicting
        self._archive = archive
        self.topology = topology
        if topology is not None:
            topology.amend = self._extended.topology
        self._be_quota_us = -1
        self._protects = protects

    def tick(self, now_ms: int) -> Tick:
        """One round: run pods, look, judge, act. Never raises for what a machine or a pod may do wrong."""
        desired = self.desired
        if desired is None:
            return nothing_done("no desired state yet")

        # 1. run what is wanted, end what is not
        pods_run = self.run_pods()
        problems = [problem for problem in (desired.policy_problem, desired.collect_problem) if problem]
        problems.extend(pods_run.problems)
        if not self._protects:
            sentence = f"{self.node}: neither measured nor protected, as it was told"
            return nothing_done(sentence, pods_run.facts, tuple(problems))
        try:
            return self._protect(desired, pods_run.facts, problems, now_ms)
        except Exception as error:  # noqa: BLE001 - one bad item never ends the rounds of a node (agent spec, preamble)
            problems.append(f"{ROUND_FAILED}: {type(error).__name__}: {error} ({place_of(error)})")
            return nothing_done(problems[-1], pods_run.facts, tuple(problems))

    def _protect(self, desired: DesiredView, facts: tuple[Event, ...], problems: list[str], now_ms: int) -> Tick:
        self._extended.next_round()

        # 2. one look at the machine, kept as samples
        self._monitor.store.keep_objects_for(desired.collect.aggregate_duration_seconds * 1000 + OBJECT_MARGIN_MS)
        pods = tuple(self._pods.all.values())
        facts = (*facts, *self._report_topology(desired, pods, now_ms, problems))
        best_effort = read_best_effort(self.host)
        latest = self._collectors.run(
            pods,
            now_ms,
            host_applications=desired.host_applications,
            best_effort=best_effort,
            apps_with_page_cache=desired.collect.memory is MemoryCollectPolicy.WITH_PAGE_CACHE,
            for_interference=_looks_for_interference(desired.slo),
        )
        self._monitor.add(self._extended.collect(self._surroundings(desired, pods, now_ms)))

        # 3. everything that strategies judge on
        view = suppress_view(
            self.host,
            now_ms=now_ms,
            capacity_milli=desired.capacity_milli,
            reserved_milli=desired.reserved_milli,
            pods=pods,
            latest=latest,
            best_effort=best_effort,
            host_applications={app.name: app for app in desired.host_applications},
            owners=self._cpu_owners(self._pods.all),
            kubelet_static=self.kubelet_static,
        )
        look = self.last_look = self._look(desired, pods, now_ms)
        problems.extend(self._keep(look.metrics, pods, now_ms))
        self._extended.tell(look, self.topology.pools if self.topology is not None else None)

        # 4. protect: contentions, plans, arbiter, executor, evictions
        report_ms = desired.collect.report_interval_seconds * 1000

        def end(uid: str) -> bool:
            if self._extended.replaces_eviction and uid in self._pods.all:
                return self._extended.evict(self._pods.all[uid])
            ended = self._pods.end(uid)
            problems.extend(ended.problems)
            return ended.ended

        done = self._qos.run(look, view, desired.policy, report_interval_ms=report_ms, end=end)
        problems.extend((*done.problems, *self._extended.take_problems()))
        self.last_decision = done.decision
        self._be_quota_us = done.quota_us if done.quota_us is not None else self._be_quota_us

        # 5. say it
        return Tick(
            facts=(*facts, *done.facts),
            sentence=f"{self.node}: {len(pods)} pods, {done.decision.reason}",
            problems=tuple(problems),
            decision=done.decision,
            outcomes=done.outcomes,
            plans=done.plans,
        )

    def _report_topology(
        self, desired: DesiredView, pods: tuple[AgentPod, ...], now_ms: int, problems: list[str]
    ) -> tuple[Event, ...]:
        if self.topology is None:
            return ()
        before = self.topology.pools
        try:
            report = self.topology.round(desired, pods, now_ms)
        except InvalidInput as error:
            problems.append(f"topology is not reported: {error}")
            return ()
        if self.topology.pools != before:
            self._owners_of = None
        if self.topology.places != self._topology and self.topology.places:
            self._topology, self._owners_of = self.topology.places, None
            self._collectors.cpus_changed(self._topology)
        return () if report is None else (report,)

    def _keep(self, metrics: Metrics, pods: tuple[AgentPod, ...], now_ms: int) -> list[str]:
        """Learn from the samples and keep them, when it is time; what failed."""
        troubles: list[str | None] = []
        if self._predicting is not None:
            troubles.append(self._predicting.round(metrics, pods, now_ms / 1000))
        if self._archive is not None and self._archive.is_due(now_ms):
            troubles.append(self._archive.save(self._monitor.store, now_ms))
        return [trouble for trouble in troubles if trouble is not None]

    def _look(self, desired: DesiredView, pods: tuple[AgentPod, ...], now_ms: int) -> NodeLook:
        pools = self.topology.pools if self.topology is not None else None
        return NodeLook(
            now_ms=now_ms,
            node=self.node,
            layout=self.host.layout,
            cgroup_version=self.host.cgroup_version,
            metrics=Metrics(store=self._monitor.store, now_ms=now_ms, interval_ms=self._interval_ms),
            pods=pods,
            slo=self._extended.slo(desired.slo),
            slo_problem=desired.policy_problem,
            capacity=desired.capacity,
            allocatable=desired.allocatable,
            reserved_milli=desired.reserved_milli,
            labels=desired.labels,
            annotations=desired.annotations,
            host_applications=desired.host_applications,
            reserved_cpus=EMPTY if pools is None else pools.reserved,
            system_cpus=EMPTY if pools is None else pools.system_exclusive,
            frozen=self.known.frozen(now_ms),
            kubelet_static=self.kubelet_static,
            states=self._extended.states,
            topology=self._topology,
        )

    def _surroundings(self, desired: DesiredView, pods: tuple[AgentPod, ...], now_ms: int) -> Surroundings:
        return Surroundings(
            now_ms=now_ms,
            node=self.node,
            layout=self.host.layout,
            cgroup_version=self.host.cgroup_version,
            pods=pods,
            host_applications=desired.host_applications,
            read=self.host.read,
        )

    def farewell(self, now_ms: int) -> tuple[Event, ...]:
        """What to say when the agent stops: its pods go on, and so does what it has set but for caps."""
        return self._qos.farewell(self.last_look, now_ms)

    def report(self, now_ms: int, rfc3339_of: Callable[[int], str]) -> NodeUsageReported | None:
        """The node's report of this moment; None without desired state.

        rfc3339_of    text of a time in milliseconds
        """
        desired, pods = self.desired, self._pods.all
        if desired is None:
            return None
        prediction = None
        if self._predicting is not None:
            prediction = self._predicting.predict(
                tuple(pods.values()), desired.allocatable, desired.annotations, now_ms / 1000
            )
        self.last_report = report_of(
            self.host,
            Metrics(store=self._monitor.store, now_ms=now_ms, interval_ms=self._interval_ms),
            desired,
            pods,
            self._extended,
            prediction=prediction,
            be_quota_us=self._be_quota_us,
            cold_memory_running=self._collectors.cold_memory_running,
            rfc3339_of=rfc3339_of,
        )
        return self.last_report

    @property
    def running_pods(self) -> frozenset[str]:
        """Uids of the pods that run here as far as the agent has seen."""
        return frozenset(self._pods.running)

    @property
    def pods(self) -> Mapping[str, AgentPod]:
        """The pods that it knows of, by uid."""
        return self._pods.all

    def run_pods(self) -> PodsRun:
        """See `NodePods.run`; nothing is done without desired state."""
        return PodsRun((), ()) if self.desired is None else self._pods.run(self.desired, self.known)

    def not_said(self, facts: Iterable[Event]) -> None:
        """See `NodePods.not_said`."""
        self._pods.not_said(facts)

    @property
    def last_prediction(self) -> ProdPrediction | None:
        """What was predicted for the last report."""
        return self._predicting.last if self._predicting is not None else None

    @property
    def scaled(self) -> Mapping[CgroupFile, int]:
        """Quotas and bursts that CPU burst asked for last."""
        return self._qos.reconciling.scaled

    @property
    def storage(self) -> Storage | None:
        """The disks, where block IO is set."""
        return self._qos.reconciling.storage

    @property
    def store(self) -> SeriesStore:
        """Its samples."""
        return self._monitor.store

    @property
    def features(self) -> Features:
        """What its machine can do."""
        return self._collectors.features

    def close(self, now_ms: int) -> None:
        """Let go of what is open on the machine, keep the series; its pods go on."""
        self._collectors.close()
        if self._archive is not None:
            self._archive.save(self._monitor.store, now_ms)

    @property
    def be_quota_us(self) -> int:
        """The best-effort quota in force as far as the agent has seen, per 100 ms; -1 = unlimited."""
        return self._be_quota_us

    def collect_garbage(self, now_ms: int) -> None:
        """Drop samples that no report needs any more."""
        self._monitor.store.collect_garbage(now_ms)

    def _forget(self, uids: Iterable[str]) -> None:
        gone = set(uids)
        self._collectors.forget(gone)
        self._monitor.forget(gone)

    def _cpu_owners(self, pods: Mapping[str, AgentPod]) -> CpuOwners | None:
        if self._owners_of is not pods:
            pools = self.topology.pools if self.topology is not None else None
            self._owners = cpu_owners(
                self._topology,
                pods.values(),
                reserved=EMPTY if pools is None else pools.reserved,
                system_exclusive=EMPTY if pools is None else pools.system_exclusive,
            )
            self._owners_of = pods
        return self._owners


def _looks_for_interference(slo: Mapping[str, Any] | None) -> bool:
    try:
        return slo is not None and interference_settings(slo).enable
    except InvalidInput:
        return False
