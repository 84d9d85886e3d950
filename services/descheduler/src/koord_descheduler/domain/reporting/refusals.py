"""Records the reasons why pods are refused, for users: by filter plugins, or by the object limiter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.framework.plugin import FilterPlugin
from koord_descheduler.domain.framework.round import Profile
from koord_descheduler.domain.migration import limits
from koord_descheduler.domain.migration.object_limiter import OBJECT_LIMITER
from koord_descheduler.domain.plugins.evictors.migration_controller import NAME as MIGRATION_CONTROLLER
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

WORKLOAD_LIMITS: Final = frozenset({limits.MAX_PER_WORKLOAD, limits.MAX_UNAVAILABLE, OBJECT_LIMITER})


def _workload(pod: PodView) -> str:
    return "" if pod.controller is None else f"{pod.controller.kind} {pod.namespace}/{pod.controller.name}"


_HOLDERS: Final[dict[str, Callable[[PodView], str]]] = {
    limits.MAX_GLOBALLY: lambda _: "",
    limits.MAX_PER_NODE: lambda pod: pod.node,
    limits.MAX_PER_NAMESPACE: lambda pod: pod.namespace,
    limits.MAX_PER_WORKLOAD: _workload,
    limits.MAX_UNAVAILABLE: _workload,
    OBJECT_LIMITER: _workload,
}


@dataclass(slots=True)
class Refused:
    """The reasons why pods were refused in this round.

    Attributes:
        by_code: Code of a reason -> uids of the pods that were refused for it.
        limits: Code of a limit on migrations -> nodes, namespaces or workloads that have reached it.
    """

    by_code: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    limits: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    @property
    def at_limit(self) -> set[str]:
        """Return "Kind namespace/name" of the controllers whose pods were refused by a limit of their workload."""
        return {name for code in WORKLOAD_LIMITS for name in self.limits.get(code, ())}

    def note(self, pod: PodView, codes: Sequence[str]) -> None:
        """Count the refusal of a pod."""
        for code in codes:
            self.by_code.setdefault(code, set()).add(pod.uid)
            holder = _HOLDERS.get(code)
            if holder is not None:
                named = self.limits.setdefault(code, set())
                name = holder(pod)
                if name:
                    named.add(name)

    def note_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Count the pods that plugins chose and that the MigrationController did not take.

        The filters have accepted them, so the object limiter has refused them.
        """
        for attempt in attempts:
            if attempt.result is Result.ERROR and attempt.evictor == MIGRATION_CONTROLLER:
                self.note(attempt.pod, (OBJECT_LIMITER,))

    def clear(self) -> None:
        """Forget all refusals: a new round begins."""
        self.by_code.clear()
        self.limits.clear()


def noting(profile: Profile, refused: Refused) -> Profile:
    """Return the profile with filter plugins that also record their refusals in `refused`."""
    return replace(profile, filters=[_Noting(each, refused) for each in profile.filters])


class _Noting:
    """A wrapper of a filter plugin that records its refusals."""

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
