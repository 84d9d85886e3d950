"""What the next round of the service begins with, so that a dry run answers what that round would do."""

from dataclasses import dataclass

from koordcore.events.descheduling.decisions import ROUNDS
from koordcore.state.migrations import MigrationState
from koordcore.state.rounds import RoundsState

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.job_control.controller import job_controller
from koord_descheduler.domain.job_control.counting import counted_jobs, migrating_pods
from koord_descheduler.domain.job_control.recording import recorded_evictions
from koord_descheduler.domain.job_control.viewing import JobReader
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
        shared: The anomaly detectors of the recorded rounds, the jobs in flight, and the evictions that limits count.
    """

    cluster: ClusterView
    shared: SharedState


def start_of_round(
    builder: ViewBuilder, now: float, configuration: DeschedulerConfiguration, registry: Registry
) -> Start:
    """Return the inputs that the next round of the service has, if it has this configuration.

    Args:
        builder: The folded cluster.
        now: Unix seconds.
        configuration: The configuration that is tried.
        registry: Plugins that it can name.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    jobs = JobReader(builder).jobs()
    cluster = builder.view(now, migrating_pods(jobs, builder))
    shared = SharedState(priority_classes=cluster.priority_classes, interval=configuration.descheduling_interval)
    shared.of(Detectors).states = detectors_of(builder.state.of_kind(RoundsState).get(ROUNDS.id))
    shared.of(JobsInFlight).replace(counted_jobs(jobs, builder.evictions(), cluster))
    controller = job_controller(configuration, registry, shared, "")
    controller.limiter.rebuild(recorded_evictions(builder.state.of_kind(MigrationState).values()))
    return Start(cluster=cluster, shared=shared)
