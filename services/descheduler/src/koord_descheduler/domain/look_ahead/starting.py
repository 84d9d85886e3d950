"""The state from which the next round of the service starts, so that a dry run decides like that round."""

from collections.abc import Sequence
from dataclasses import dataclass

from koordcore.events.descheduling import ROUNDS
from koordcore.state.descheduling import RoundsState
from koordcore.state.migrations import MigrationState

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.job_control.controller import job_controller
from koord_descheduler.domain.job_control.counting import counted_jobs, migrating_pods
from koord_descheduler.domain.job_control.recording import recorded_evictions
from koord_descheduler.domain.job_control.viewing import JobReader
from koord_descheduler.domain.migration.job import MigrationJob
from koord_descheduler.domain.migration.jobs import JobsInFlight
from koord_descheduler.domain.plugins.native.low_node_load.anomaly import Detectors
from koord_descheduler.domain.round_memory import detectors_of
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The inputs of the next round.

    Attributes:
        cluster: The cluster.
        jobs: The jobs in flight.
        evictions: Uids of the pods whose eviction was requested and has not ended.
        shared: The anomaly detectors of the recorded rounds, the jobs in flight, and the evictions that limits count.
    """

    cluster: ClusterView
    jobs: Sequence[MigrationJob]
    evictions: frozenset[str]
    shared: SharedState


def start_of_round(
    builder: ViewBuilder, now: float, configuration: DeschedulerConfiguration, registry: Registry
) -> Start:
    """Return the inputs that the next round of the service would have with a configuration.

    Args:
        builder: The folded cluster.
        now: Unix seconds.
        configuration: The configuration that is tried.
        registry: Plugins that the configuration may name.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    shared = SharedState(priority_classes=builder.priority_classes(), interval=configuration.descheduling_interval)
    shared.of(Detectors).states = detectors_of(builder.state.of_kind(RoundsState).get(ROUNDS.id))
    controller = job_controller(configuration, registry, shared, "")
    controller.limiter.rebuild(recorded_evictions(builder.state.of_kind(MigrationState).values()))
    return _start(builder, now, JobReader(builder).jobs(), frozenset(builder.evictions()), shared)


def later_round(start: Start, builder: ViewBuilder, now: float) -> Start:
    """Return the inputs of a later round of a dry run.

    Jobs and evictions that began after the first round do not count.

    Args:
        start: The inputs of the first round. The rounds since then have changed `shared`.
        builder: The folded cluster.
        now: Unix seconds.
    """
    begun = {job.uid for job in start.jobs}
    jobs = [job for job in JobReader(builder).jobs() if job.uid in begun] if begun else []
    return _start(builder, now, jobs, start.evictions & frozenset(builder.evictions()), start.shared)


def _start(
    builder: ViewBuilder, now: float, jobs: Sequence[MigrationJob], evictions: frozenset[str], shared: SharedState
) -> Start:
    cluster = builder.view(now, migrating_pods(jobs, builder))
    shared.of(JobsInFlight).replace(counted_jobs(jobs, evictions, cluster))
    in_flight = [job for job in jobs if job.is_in_flight]
    return Start(cluster=cluster, jobs=in_flight, evictions=evictions, shared=shared)
