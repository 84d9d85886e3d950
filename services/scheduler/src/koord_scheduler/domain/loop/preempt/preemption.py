"""Preemption for a pod without a feasible node.

    candidates   nodes that refuse the pod but may accept it if pods leave
    dry run      the victims on each of them (`dry_run`)
    choice       the node whose victims cost least (`pick`)

Source: scheduler-core spec, 6 and 10.8
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows, row_list, text_hash
from koord_scheduler.domain.framework.extension_points import POST_FILTER
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.post_filter import JobRules, NoPreemption, PodVictim, Preemption, VictimRules
from koord_scheduler.domain.loop.preempt.dry_run import Candidate, DryRuns, VictimCost, pick_candidate, started_at
from koord_scheduler.domain.loop.preempt.job_preemption import JobSearch
from koord_scheduler.domain.loop.preempt.nominating import is_being_emptied
from koord_scheduler.domain.loop.state.cycle_view import CycleView
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.round import JobAttempt

NEVER: Final = "Never"


def preempt(
    state: SchedulerState,
    pod: PodRecord,
    cycle_view: CycleView,
    rejection: Rejection | None,
    within: Rows | None = None,
) -> Preemption | NoPreemption:
    """Call the PostFilter plugins of the pod's profile until one of them finds a preemption. `rejection`: before nodes
    were filtered; None if none was feasible. `within`: nodes that were candidates; None for all. Source: scheduler-core
    spec, 1 (step 7), 6.
    """
    refusal = _not_eligible(state, pod, cycle_view)
    if refusal is not None:
        return refusal
    message, notes, ends = "", list[str](), list[float]()
    search = _Searches(state, pod, cycle_view, rejection, within)
    for plugin in state.frameworks.framework_of(pod).plugins_for(pod).at(POST_FILTER):
        found = plugin.post_filter(pod, rejection, search)
        if found is None:
            continue
        if isinstance(found, Preemption) or found.ends:
            return found
        message = found.message or message
        notes += [found.notes] if found.notes else []
        ends += [] if found.retry_at is None else [found.retry_at]
    return NoPreemption(message, notes=" ".join(notes), retry_at=min(ends, default=None))


@dataclass(frozen=True, slots=True)
class _Searches:
    """Implements `PreemptionSearch` for one attempt."""

    state: SchedulerState
    pod: PodRecord
    view: CycleView
    rejection: Rejection | None
    within: Rows | None

    def on_one_node(self, rules: VictimRules) -> Preemption | NoPreemption:
        search = _Search(self.state, self.pod, self.view, rules)
        return search.run(self.within, everywhere=self.rejection is not None)

    def for_job(self, rules: JobRules) -> Preemption | NoPreemption:
        return _for_job(self.state, self.pod, self.view, rules, self.within)


def _not_eligible(state: SchedulerState, pod: PodRecord, cycle_view: CycleView) -> NoPreemption | None:
    """Return why the pod may not preempt at all, or None if it may. It need not wait for victims on its nominated node
    if the node is gone, or refuses the pod whoever leaves. Source: scheduler-core spec, 6 (1).
    """
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    if pod.pod.spec.preemption_policy == NEVER:
        return NoPreemption("not eligible due to preemptionPolicy=Never.")
    node = state.nominator.wished(pod)
    row = state.nodes.row(node) if node else None
    if row is None or not is_being_emptied(state, node, pod.priority):
        return None
    if any(row in each.rows and not each.is_resolvable for _, each in cycle_view.refusals(state.engine_of(pod))):
        return None
    return NoPreemption("not eligible due to a terminating pod on the nominated node.", keeps_nomination=True)


def _for_job(
    state: SchedulerState, pod: PodRecord, cycle_view: CycleView, plugin: JobRules, within: Rows | None
) -> Preemption | NoPreemption:
    """Find room for the whole job. Its waiting members lose their nodes and get nodes again with the others, or none.
    Source: scheduler-core spec, 8.10.
    """
    outcome = plugin.outcome(pod)
    if outcome:
        return NoPreemption(outcome, keeps_nomination=True, ends=True)
    search = JobSearch(state, pod, cycle_view, plugin, within)
    if search.awaits_victims():
        message = "not eligible due to a terminating pod on the nominated node of a member."
        return NoPreemption(message, keeps_nomination=True, ends=True)
    room = search.run()
    state.reports.job_attempts.append(
        JobAttempt(_job_of(state, pod), is_preemption=True, succeeded=not isinstance(room, str))
    )
    waiting = {uid: state.assumed.waiting.node_of(uid) for uid in plugin.waiting(pod) if uid in state.assumed.waiting}
    if isinstance(room, str):
        plugin.remember(pod, room)
        retry_at = min(search.spared.values(), default=None)
        if not plugin.is_job(pod):
            return NoPreemption(room, retry_at=retry_at)
        return NoPreemption(room, ends=True, unhelpful=search.members, job=plugin, retry_at=retry_at)
    message = f"preempt success, alreadyWaitingForBound: {len(waiting)}/{len(waiting) + len(search.members)}"
    plugin.remember(pod, message)
    return Preemption(
        plugin=plugin.name,
        node=room.nominations[pod.uid],
        victims=tuple(PodVictim(victim, violates_budget=False, node=node) for victim, node in room.victims),
        examined=room.examined,
        nominations={**room.nominations, **waiting},
        message=message,
        job=plugin,
    )


def _job_of(state: SchedulerState, pod: PodRecord) -> str:
    gang = state.books.gangs.roster.gang_of(pod.uid)
    return gang.id if gang is not None else f"{pod.namespace}/{pod.name}"


class _Search:
    """Search of one plugin for pods that can be preempted for one pod."""

    def __init__(self, state: SchedulerState, pod: PodRecord, cycle_view: CycleView, plugin: VictimRules) -> None:
        self._state = state
        self._pod = pod
        self._cycle_view = cycle_view
        self._plugin = plugin
        self._engine = state.frameworks.framework_of(pod).engine
        self._dry_runs: dict[Subject, DryRuns] = {}

    def run(self, within: Rows | None, *, everywhere: bool) -> Preemption | NoPreemption:
        """Search for the node whose victims cost least, and return it or the reason why there is none. `within`: rows
        that may be candidates. None: all rows. `everywhere`: whether to examine all nodes, because a plugin refused the
        pod before any node was filtered. Otherwise only nodes where a pod's leaving can help are examined.
        """
        state, nodes = self._state, self._state.nodes
        rows = np.flatnonzero(nodes.alive) if everywhere else self._cycle_view.resolvable(self._engine)
        if within is not None:
            rows = np.intersect1d(rows, within, assume_unique=True)
        possible = rows[state.cluster.priorities.lowest(nodes.capacity)[rows] < self._pod.priority]
        if self._plugin.spares_everyone(self._pod):
            return NoPreemption(_found_nothing(len(nodes), without_victims=len(nodes)))
        without_victims = len(rows) - len(possible)
        if len(possible) == 0:
            return NoPreemption(_found_nothing(len(nodes), without_victims))
        most = self._plugin.most_candidates(len(nodes))
        found: dict[str, Candidate] = {}
        victims_of: dict[str, tuple[PodVictim, ...]] = {}
        examined = 0
        for row in self._in_turn(possible):
            if examined >= most or len(found) >= most:
                break
            examined += 1
            victims = self._dry_runs_of(self._cycle_view.at(row)).victims(row)
            if victims:
                name = nodes.names[row]
                victims_of[name] = victims
                found[name] = _candidate(victims)
        chosen = pick_candidate(found)
        if chosen is None:
            spared = {uid: end for each in self._dry_runs.values() for uid, end in each.spared.items()}
            message = _found_nothing(len(nodes), without_victims, len(spared))
            return NoPreemption(message, retry_at=min(spared.values(), default=None))
        return Preemption(plugin=self._plugin.name, node=chosen, victims=victims_of[chosen], examined=examined)

    def _dry_runs_of(self, subject: Subject) -> DryRuns:
        known = self._dry_runs.get(subject)
        if known is None:
            known = self._dry_runs[subject] = DryRuns(self._state, self._pod, subject, self._plugin)
        return known

    def _in_turn(self, rows: Rows) -> Iterable[int]:
        """Return all rows in the order of the hashes of their names, starting at a place that depends only on the pod.
        The positions of nodes depend on the history of the process: after a restart they are others.
        """
        by_hash = rows[np.argsort(self._state.nodes.name_hash[rows])]
        offset = text_hash(self._pod.uid) % len(rows)
        return row_list(np.roll(by_hash, -offset))


def _found_nothing(nodes: int, without_victims: int, spared: int = 0) -> str:
    """Return kube-scheduler's message that preemption finds no node. `without_victims`: number of nodes on which no pod
    has a lower priority. On the others, no victim would help. `spared`: number of pods that stay for now, because their
    evictions have failed repeatedly.
    """
    counts = {
        "No preemption victims found for incoming pod": without_victims,
        "Preemption is not helpful for scheduling": nodes - without_victims,
    }
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    told = f" {spared} pod(s) stay for now, because their evictions have failed repeatedly." if spared else ""
    return f"0/{nodes} nodes are available: {', '.join(reasons)}.{told}"


def _candidate(victims: Sequence[PodVictim]) -> Candidate:
    costs = [VictimCost(each.pod.priority, started_at(each.pod.pod, each.pod.placed_at)) for each in victims]
    return Candidate(costs, sum(each.violates_budget for each in victims))
