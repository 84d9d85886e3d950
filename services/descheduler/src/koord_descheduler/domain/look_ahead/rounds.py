"""Play rounds of a configuration on a copy of everything that plugins keep between rounds.

Evictions are asked for as in the service, so that all limits hold within a round, but nobody carries them out. The
caller says which pods move after all. Object limiters count these moves in later rounds.
"""

from collections.abc import Iterable

from koord_descheduler.domain.arguments.common import selector_or_all
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.profiles import build_profiles, eviction_limits
from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.framework.round import RoundOutcome, run_round
from koord_descheduler.domain.job_control.controller import arguments_of_jobs
from koord_descheduler.domain.migration.jobs import JobsInFlight
from koord_descheduler.domain.migration.object_limiter import EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.plugins.evictors import migration_controller
from koord_descheduler.domain.plugins.evictors.migration_controller import JobRequests
from koord_descheduler.domain.reporting.refusals import Refused, noting
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.workloads import replicas_of


class RoundPlayer:
    """Plays rounds of a configuration. Jobs that a round asks for have ended before the next one.

    Args:
        configuration: The effective configuration.
        registry: Plugins that it can name.
        shared: What plugins keep between rounds; it is changed.

    Raises:
        InvalidInput: A plugin cannot be made, for example because a PriorityClass does not exist.
    """

    def __init__(self, configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState) -> None:
        self.refused = Refused()
        self._profiles = [noting(profile, self.refused) for profile in build_profiles(configuration, registry, shared)]
        self._limiter = EvictionLimiter(eviction_limits(configuration))
        self._object_limiter = ObjectLimiter(arguments_of_jobs(configuration, registry), shared.of(EvictionBuckets))
        self._nodes = selector_or_all(configuration.node_selector)
        self._jobs = shared.of(JobsInFlight)
        self._requests = shared.of(JobRequests).requests

    def play(self, cluster: ClusterView) -> RoundOutcome:
        """Run one round on a cluster.

        Raises:
            InvalidInput: There is at most one node.
        """
        outcome = run_round(self._profiles, cluster, self._limiter, nodes=self._nodes)
        self.refused.note_attempts(outcome.attempts)
        for request in self._requests:
            self._jobs.drop(request.name)
        self._requests.clear()
        return outcome

    def evicted(self, attempts: Iterable[Attempt], cluster: ClusterView) -> None:
        """Count pods that move after a round against the object limiters, as the service counts evictions by jobs.

        Args:
            attempts: The attempts of the round whose pods move.
            cluster: The cluster of the round.
        """
        for attempt in attempts:
            if attempt.evictor == migration_controller.NAME:
                self._object_limiter.evicted(attempt.pod, cluster.now, replicas_of(attempt.pod, cluster.workloads))
