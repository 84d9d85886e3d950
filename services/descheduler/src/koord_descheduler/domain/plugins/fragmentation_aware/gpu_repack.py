"""Room for gangs that wait for whole GPUs, as a part of FragmentationAware.

It is off by default. Koordinator has no such feature.

One plan is under way at a time. A gang for which no plan was found, or whose plan has ended, is tried again later.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol.component_config import WireModel
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.framework.plugin import MovePlan, PluginRun
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.limits import MoveLimits
from koord_descheduler.domain.plugins.fragmentation_aware.planning import RoomPlanner, WaitingGang, waiting_gangs
from koord_descheduler.domain.plugins.scope import Scope
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

RETRY_SECONDS: Final = 300.0
"""Time after a plan during which its gang gets no other one."""
SEARCH_SECONDS: Final = 60.0
"""Time after a search without result during which the same gang is not searched for again."""
_GANGS_PER_ROUND: Final = 3
_PLANS_PER_GANG: Final = 8


class GpuRepackArgs(WireModel):
    enabled: StrictBool = False  # Whether pods are moved for gangs
    max_moves: StrictInt = 100  # Largest number of pods that a plan moves
    wait_seconds: StrictInt = 60  # Time that a gang waits before a plan is made for it


def check_repack(args: GpuRepackArgs) -> Iterator[InvalidInput]:
    if args.max_moves < 1:
        yield InvalidInput("at least 1", args.max_moves, "gpuRepack.maxMoves")
    if args.wait_seconds < 0:
        yield InvalidInput("at least 0", args.wait_seconds, "gpuRepack.waitSeconds")


@dataclass(slots=True)
class _Tried:
    # Name of a gang that was tried -> Unix seconds before which it is not tried again.
    until: dict[str, float] = field(default_factory=dict[str, float])
    shown: MovePlan | None = None  # The last plan of a dry run. Each round shows it as long as it could be carried out.
    # Plans with a pod that was refused. Each round asks again for those whose gang is not due.
    refused: list[MovePlan] = field(default_factory=list[MovePlan])


class GpuRepack:
    """Makes plans that free whole GPUs for waiting gangs, one at a time. No-op while a plan is under way."""

    def __init__(self, args: GpuRepackArgs, scope: Scope, shared: SharedState, *, is_dry_run: bool) -> None:
        self._is_dry_run = is_dry_run
        self._args = args
        self._scope = scope
        self._limits = shared.of(MoveLimits)
        self._tried = shared.of(_Tried)

    def run(self, run: PluginRun) -> None:
        cluster = run.cluster
        if not self._args.enabled or any(not plan.ended_at for plan in cluster.gpus.plans.values()):
            return
        ask = run.try_evict_together if self._is_dry_run else run.evict_together
        shown = self._tried.shown
        if shown is not None and _is_open(shown, cluster) and cluster.now < self._tried.until[shown.gang]:
            ask(shown)
            return
        due = self._due(cluster)
        names = {gang.name for gang in due[:_GANGS_PER_ROUND]}
        self._tried.refused = [
            each for each in self._tried.refused if each.gang not in names and _is_open(each, cluster)
        ]
        for plan in self._tried.refused:
            if ask(plan) is None:
                self._accepted(plan, run)
                return
        if not due:
            return
        refused: set[str] = set()
        movable: dict[str, bool] = {}

        def may_leave(pod: PodView) -> bool:
            if pod.uid not in movable:
                movable[pod.uid] = self._scope.may_leave(pod, run)
            return movable[pod.uid] and pod.uid not in refused

        planner = RoomPlanner(self._scope.nodes(run), cluster, may_leave)
        for gang in due[:_GANGS_PER_ROUND]:
            self._tried.until[gang.name] = cluster.now + SEARCH_SECONDS
            for _ in range(_PLANS_PER_GANG):
                plan = planner.plan(gang, most_moves=self._args.max_moves, most_per_node=self._limits.per_node)
                if plan is None or not plan.pods:
                    break
                pod = ask(plan)
                if pod is None:
                    self._accepted(plan, run)
                    return
                refused.add(pod.uid)
                self._tried.refused.append(plan)

    def _accepted(self, plan: MovePlan, run: PluginRun) -> None:
        self._tried.until[plan.gang] = run.cluster.now + RETRY_SECONDS
        self._tried.shown = plan if self._is_dry_run or run.evictor.is_dry_run else None
        self._tried.refused = []

    def _due(self, cluster: ClusterView) -> list[WaitingGang]:
        if not cluster.gpus.devices:
            return []
        ended: dict[str, float] = {}
        for state in cluster.gpus.plans.values():
            ended[state.plan.gang] = max(ended.get(state.plan.gang, 0.0), unix_seconds(state.ended_at))
        return [
            gang
            for gang in waiting_gangs(cluster)
            if cluster.now - gang.since >= self._args.wait_seconds
            and cluster.now >= self._tried.until.get(gang.name, 0.0)
            and cluster.now - ended.get(gang.name, 0.0) >= RETRY_SECONDS
        ]


def _is_open(plan: MovePlan, cluster: ClusterView) -> bool:
    """Whether the pods of a plan are where they were: its members wait, and the others have not moved."""
    return all(
        (known := cluster.pod_by_uid.get(pod.uid)) is not None and known.node == pod.node
        for pod in (*plan.members, *plan.pods)
    )
