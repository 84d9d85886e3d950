"""Play rounds of a configuration on a copy of everything that plugins keep between rounds.

Evictions are asked for as in the service, so that all limits hold within a round, but nobody carries them out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from koord_descheduler.domain.arguments.common import selector_or_all
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.profiles import build_profiles, eviction_limits
from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.framework.plugin import FilterPlugin
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.framework.round import RoundOutcome, run_round
from koord_descheduler.domain.migration.jobs import JobsInFlight
from koord_descheduler.domain.migration.limits import MAX_PER_WORKLOAD, MAX_UNAVAILABLE
from koord_descheduler.domain.plugins.evictors.migration_controller import JobRequests
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

_WORKLOAD_LIMITS = frozenset({MAX_PER_WORKLOAD, MAX_UNAVAILABLE})


@dataclass(slots=True)
class Refused:
    """Why filter plugins refused pods in the rounds that were played.

    Attributes:
        by_code: Code of a reason -> uids of the pods that were refused for it.
        at_limit: "Kind namespace/name" of the controllers whose pods were refused by a limit of their workload.
    """

    by_code: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    at_limit: set[str] = field(default_factory=set[str])

    def note(self, pod: PodView, codes: Sequence[str]) -> None:
        """Count the refusal of a pod."""
        for code in codes:
            self.by_code.setdefault(code, set()).add(pod.uid)
        if pod.controller is not None and not _WORKLOAD_LIMITS.isdisjoint(codes):
            self.at_limit.add(f"{pod.controller.kind} {pod.namespace}/{pod.controller.name}")


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
        self._profiles = [
            replace(profile, filters=[_Noting(each, self.refused) for each in profile.filters])
            for profile in build_profiles(configuration, registry, shared)
        ]
        self._limiter = EvictionLimiter(eviction_limits(configuration))
        self._nodes = selector_or_all(configuration.node_selector)
        self._jobs = shared.of(JobsInFlight)
        self._requests = shared.of(JobRequests).requests

    def play(self, cluster: ClusterView) -> RoundOutcome:
        """Run one round on a cluster.

        Raises:
            InvalidInput: There is at most one node.
        """
        outcome = run_round(self._profiles, cluster, self._limiter, nodes=self._nodes)
        for request in self._requests:
            self._jobs.drop(request.name)
        self._requests.clear()
        return outcome


class _Noting:
    """A filter plugin that also notes its refusals."""

    def __init__(self, plugin: FilterPlugin, refused: Refused) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._refused = refused

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of the plugin."""
        codes = self._plugin.refusals(pod, cluster)
        if codes:
            self._refused.note(pod, codes)
        return codes

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of the plugin."""
        return self._plugin.pre_eviction_refusals(pod, cluster)
