"""Simulate rounds of a configuration, on a copy of the state that plugins keep between rounds.

Evictions are requested as in the service, so that all limits hold within a round, but they are not carried out. The
jobs that the service would create then pass arbitration and the object limiters, by the code of the service. The caller
decides which pods get another node.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from koordcore.events.descheduling import ROUNDS, RoundMove
from koordcore.state.descheduling import RoundsState
from koordcore.state.index import priority_classes
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.config.arguments import selector_or_all
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.profiles import build_profiles, eviction_limits
from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.framework.round import RoundOutcome, run_round
from koord_descheduler.domain.jobs.arbitration import arbitration_pass, is_waiting
from koord_descheduler.domain.jobs.controller import creation, job_controller
from koord_descheduler.domain.jobs.in_flight import JobsInFlight, counted_jobs, migrating_pods, pod_of
from koord_descheduler.domain.jobs.job import MigrationJob, job_from_json
from koord_descheduler.domain.jobs.object_limiter import OBJECT_LIMITER
from koord_descheduler.domain.jobs.plugin import NAME as MIGRATION_CONTROLLER
from koord_descheduler.domain.jobs.plugin import JobRequest, JobRequests
from koord_descheduler.domain.jobs.viewing import all_jobs, counted_evictions
from koord_descheduler.domain.plugins.low_node_load.anomaly import Detectors
from koord_descheduler.domain.rounds.effects import migrating_profiles
from koord_descheduler.domain.rounds.memory import detectors_of, moves_of
from koord_descheduler.domain.rounds.reporting import Refused
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.workloads import replicas_of


class RoundPlayer:
    """Migration jobs that a round requests are assumed to end before the next round. The rounds change `shared`.

    The rounds are played as if neither the configuration nor its MigrationController were in dry run.

    Raises:
        InvalidInput: A plugin cannot be made, for example because a PriorityClass does not exist.
    """

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        registry: Registry,
        shared: SharedState,
        jobs: Sequence[MigrationJob],
    ) -> None:
        configuration = _carried_out(configuration)
        self.jobs = jobs  # Jobs in flight that no simulated round requested
        self.refused = Refused()  # The reasons why pods were refused, over all rounds
        self._controller = job_controller(configuration, registry, shared, "")
        self._profiles = build_profiles(configuration, registry, shared)
        self._limiter = EvictionLimiter(eviction_limits(configuration))
        self._migrating = migrating_profiles(configuration, registry)
        self._nodes = selector_or_all(configuration.node_selector)
        self._in_flight = shared.of(JobsInFlight)
        self._requests = shared.of(JobRequests)
        self._asked: Sequence[JobRequest] = ()

    def play(self, cluster: ClusterView) -> RoundOutcome:
        """Raises InvalidInput: there is at most one node."""
        outcome = run_round(
            self._profiles, cluster, self._limiter, nodes=self._nodes, refused=self.refused.note_filtered
        )
        self.refused.note_attempts(outcome.attempts)
        self._asked = self._requests.take()
        for request in self._asked:
            self._in_flight.drop(request.name)
        return outcome

    def leaving(self, attempts: Iterable[Attempt], placed: Container[str], cluster: ClusterView) -> frozenset[str]:
        """Return the uids of the pods that leave after the last round, and count them against the object limiters.

        A pod leaves if its job passes arbitration, and no object limiter lets it wait. Only pods in `placed` get
        another node. The jobs of others take part in arbitration only.
        """
        attempts = tuple(attempts)
        moves = moves_of(cluster.now, attempts, self._asked, self._migrating)
        own = {move.job: self._job(move, cluster.now) for move in moves if move.job}
        waiting = [job for job in self.jobs if is_waiting(job) and not job.is_paused]
        decided = arbitration_pass(self.jobs, [*waiting, *own.values()], cluster, self._controller).decided
        with_job = {move.uid for move in moves if move.job}
        left = {each.pod.uid for each in attempts if each.pod.uid in placed} - with_job
        pods = {name: cluster.pod_by_uid[move.uid] for move in moves if (name := move.job)}
        for name, limits in decided.waiting.items():
            if name in pods:
                self.refused.note(pods[name], limits)
        for job in sorted(decided.passed, key=lambda job: job.name):  # the order in which the service looks at them
            pod = pod_of(job, cluster)
            if job.name not in own or pod is None or pod.uid not in placed:
                continue
            if self._controller.limiter.is_limited(pod, cluster.now):
                self.refused.note(pod, (OBJECT_LIMITER,))
                continue
            self._controller.limiter.evicted(pod, cluster.now, replicas_of(pod, cluster.workloads))
            left.add(pod.uid)
        return frozenset(left)

    def _job(self, move: RoundMove, now: float) -> MigrationJob:
        """The job of a move, as the service would find it after its creation."""
        document = creation(move, self._migrating[move.profile], "").document
        made = {"uid": move.job, "creationTimestamp": rfc3339(datetime.fromtimestamp(now, UTC))}
        return job_from_json({**document, "metadata": {**document["metadata"], **made}})


def _carried_out(configuration: DeschedulerConfiguration) -> DeschedulerConfiguration:
    """Let the MigrationController ask for jobs, so that they are arbitrated."""
    profiles = tuple(
        profile.model_copy(
            update={
                "plugin_config": tuple(
                    each.model_copy(update={"args": {**(each.args or {}), "dryRun": False}})
                    if each.name == MIGRATION_CONTROLLER
                    else each
                    for each in profile.plugin_config
                )
            }
        )
        for profile in configuration.profiles
    )
    return configuration.model_copy(update={"profiles": profiles})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    cluster: ClusterView
    jobs: Sequence[MigrationJob]
    evictions: frozenset[str]  # Uids of the pods whose eviction was requested and has not ended
    # The anomaly detectors of the recorded rounds, the jobs in flight, and the evictions that limits count.
    shared: SharedState


def start_of_round(
    builder: ViewBuilder, now: float, configuration: DeschedulerConfiguration, registry: Registry
) -> Start:
    """The inputs that the next round of the service would have with a configuration. `now`: Unix seconds.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    shared = SharedState(priority_classes=priority_classes(builder.state), interval=configuration.descheduling_interval)
    shared.of(Detectors).states = detectors_of(builder.state.of_kind(RoundsState).get(ROUNDS.id))
    controller = job_controller(configuration, registry, shared, "")
    controller.limiter.rebuild(counted_evictions(builder, now))
    return _start(builder, now, all_jobs(builder), frozenset(builder.evictions()), shared)


def later_round(start: Start, builder: ViewBuilder, now: float) -> Start:
    """Return the inputs of a later round of a dry run. The rounds since `start` have changed its `shared`.

    Jobs and evictions that began after the first round do not count.
    """
    begun = {job.uid for job in start.jobs}
    jobs = [job for job in all_jobs(builder) if job.uid in begun] if begun else []
    return _start(builder, now, jobs, start.evictions & frozenset(builder.evictions()), start.shared)


def _start(
    builder: ViewBuilder, now: float, jobs: Sequence[MigrationJob], evictions: frozenset[str], shared: SharedState
) -> Start:
    cluster = builder.view(now, migrating_pods(jobs, builder))
    shared.of(JobsInFlight).replace(counted_jobs(jobs, evictions, cluster))
    in_flight = [job for job in jobs if job.is_in_flight]
    return Start(cluster=cluster, jobs=in_flight, evictions=evictions, shared=shared)
