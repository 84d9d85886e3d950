"""One attempt to find a node for a pod. Its result is a node, or an explanation why there is none.

Source: scheduler-core spec, 1 (steps 3 to 9), 1.3, 6, 13
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np
from koordcore.events.envelope import BasedOn
from koordcore.events.explanations import Diagnosis
from koordcore.events.pod import PlacementExplanation, PluginExclusion
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.engine.amounts import Needs, needs_of, only_amounts_refuse, suffices
from koord_scheduler.domain.engine.decision import UNRESTRICTED, Decision, Placed, Restriction, ScoredAs
from koord_scheduler.domain.framework.extension_points import BEFORE_FILTER, BEFORE_SCORE, FIND_ONE_NODE
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.framework.plugin import fault_of
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption
from koord_scheduler.domain.loop.cycle.diagnosis import diagnosis_of
from koord_scheduler.domain.loop.preempt.preemption import preempt
from koord_scheduler.domain.loop.state.cycle_view import CycleView, NodeOffers, seen
from koord_scheduler.domain.loop.state.node_refusals import PLUGIN as NODE_REFUSALS
from koord_scheduler.domain.loop.state.state import SchedulerState


class Found(NamedTuple):
    placed: Placed  # The node and its explanation
    # The pod with the resources that a ResizePod plugin gave it on this node; None if they stay.
    resized: Pod | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    message: str  # One sentence for the user
    explanation: PlacementExplanation  # Which plugin refused how many nodes
    # Details of the refusals. None if the pod was rejected before nodes were filtered without details, if it did not
    # fit its node after a plugin had resized it, or if the attempt might not preempt.
    diagnosis: Diagnosis | None
    # The rejection by a plugin before nodes were filtered; None if nodes were filtered and none was feasible.
    rejection: Rejection | None = None
    is_fault: bool = False  # Whether a plugin raised an exception. The pod is then retried after a back-off.
    preemption: Preemption | NoPreemption | None = None  # The outcome of preemption; None if it was not tried


@dataclass(frozen=True, slots=True)
class WholeJob:
    """The attempt planned a node for each member of the pod's job, with the gate for batches on. The caller places all
    members in this cycle, or none. Source: scheduler-core spec, 12.1.
    """

    plugin: str  # The one that planned the job
    nodes: Mapping[str, str]  # Uid of a member -> name of its node


class Attempt:
    """One attempt to find a node for a pod. It reads the scheduler's state, and changes only state inside plugins.

    Args:
        pod: The pod. Its object must be known.
        now: Present time in Unix seconds.
        may_preempt: Whether preemption is tried if no node is feasible.
    """

    def __init__(
        self, state: SchedulerState, pod: PodRecord, subject: Subject, now: float, *, may_preempt: bool = True
    ) -> None:
        self._may_preempt = may_preempt
        self._within: Rows | None = None
        self._state = state
        self._pod = pod
        self._own = pod
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        self._cycle_view = CycleView(pod.pod, subject)
        self._now = now
        self._needs: dict[Subject, Needs | None] = {}
        self.framework = state.frameworks.framework_of(pod)
        self._plugins = self.framework.plugins_for(pod)
        self._engine = self.framework.engine

    def run(self, based_on: BasedOn) -> Found | NotFound | WholeJob:
        """Run the attempt: PreFilter, plan, Filter, Score, choice. If no node is feasible, search preemption victims.
        Nothing is assumed or evicted: the caller does that. An exception of an installed plugin gives `NotFound` with
        `is_fault`; any other exception is raised. `based_on`: positions of the log that were folded when the attempt
        began.
        """
        try:
            return self._run(based_on)
        except Exception as error:
            own = self._own
            fault = fault_of(error, self._state.frameworks.packages, f"{own.namespace}/{own.name}")
            if fault is None:
                raise
        self._engine.forget()
        self._state.reports.plugin_faults.append(fault)
        return replace(self._rejected(Rejection(plugin=fault.plugin, message=fault.message), based_on), is_fault=True)

    def _run(self, based_on: BasedOn) -> Found | NotFound | WholeJob:
        if not self._plugins.is_plain:
            return self._run_changed(based_on)
        answer = self.framework.pre_filter(self._pod, self._now)
        if isinstance(answer, Rejection):
            return self._rejected(answer, based_on)
        restriction = self._restriction(answer)
        self._within = restriction.rows
        return self._looked(restriction, based_on)

    def _run_changed(self, based_on: BasedOn) -> Found | NotFound | WholeJob:
        """Run a cycle that plugins may change or plan."""
        pod = self.framework.before_pre_filter(self._pod, self._now)
        if isinstance(pod, Rejection):
            return self._rejected(pod, based_on)
        if pod is not self._pod:
            assert pod.pod is not None and pod.subject is not None, f"the copy of pod {pod.uid} has no subject"  # noqa: PT018
            self._pod, self._cycle_view = pod, CycleView(pod.pod, pod.subject)
            self._plugins = self.framework.plugins_for(pod)
        answer = self.framework.pre_filter(self._pod, self._now)
        if isinstance(answer, Rejection):
            return self._rejected(answer, based_on)
        refusal = self.framework.after_pre_filter(self._pod, answer)
        if refusal is not None:
            return self._rejected(refusal, based_on)
        restriction = self._restriction(answer)
        planner = self._plugins.one_at(FIND_ONE_NODE)
        if planner is not None:
            plan = planner.find_one_node(self._pod, NodeOffers(self._state, self._pod, restriction, self._now))
            if isinstance(plan, Rejection):
                return self.refused_by_nodes(plan, based_on)
            if plan is not None:
                if plan.job and self._state.frameworks.gates.enable_inline_batch_schedule:
                    return WholeJob(planner.name, plan.job)
                restriction = self._restriction([*answer, (planner.name, plan)])
        self._within = restriction.rows
        if not self._plugins.at(BEFORE_FILTER):
            return self._looked(restriction, based_on)
        rows = np.flatnonzero(self._state.nodes.alive) if restriction.rows is None else restriction.rows
        with seen(self._state, self._pod, rows) as cycle_view:
            if isinstance(cycle_view, Rejection):
                return self._rejected(cycle_view, based_on)
            self._cycle_view = cycle_view
            return self._looked(restriction, based_on)

    def _looked(self, restriction: Restriction, based_on: BasedOn) -> Found | NotFound:
        """Filter and score nodes, and choose one."""
        barred = tuple(self._barred()) if len(self._state.nominator) else ()
        if barred:
            restriction = replace(restriction, barred=barred)
        uid, cycle_view = self._pod.uid, self._cycle_view
        decision: Decision | Rejection
        if not self._plugins.is_plain and (bool(cycle_view.apart) or bool(self._plugins.at(BEFORE_SCORE))):
            parts = cycle_view.parts(np.flatnonzero(self._state.nodes.alive))
            decision = self._engine.decide_in_parts(
                cycle_view.subject, parts, uid, based_on, restriction, self._scored_as
            )
        else:
            decision = self._engine.decide(cycle_view.subject, uid, based_on, restriction)
        if isinstance(decision, Placed):
            return self._found(decision)
        if isinstance(decision, Rejection):
            return self._rejected(decision, based_on)
        return self._not_found(decision.message, decision.explanation, None)

    def _scored_as(self, rows: Rows) -> ScoredAs | Rejection:
        return self.framework.before_score(self._pod, rows)

    def _found(self, placed: Placed) -> Found | NotFound:
        """Resize the pod for its node, if a plugin does so and the pod still fits there. Source: scheduler-core spec, 1
        (step 10).
        """
        if not self._state.frameworks.gates.resize_pod:
            return Found(placed)
        resized = self.framework.resized(self._own, placed.node)
        if resized is None:
            return Found(placed)
        if isinstance(resized, Rejection):
            message = resized.message
        else:
            subject = self.framework.subject_of(_with_resources_of(resized, self._cycle_view.pod_at(placed.row)))
            if self._engine.passes(subject, placed.row) and not self._is_barred(placed.node, placed.row, subject):
                return Found(placed, resized)
            message = "the pod does not fit with what it is to ask for"
        return NotFound(message=f"node {placed.node}: {message}", explanation=placed.explanation, diagnosis=None)

    def refused_by_nodes(self, rejection: Rejection, based_on: BasedOn) -> NotFound:
        """The failure of a planned job as if each node had refused the pod, so that it is retried when any node has
        more room.
        """
        return replace(self._rejected(rejection, based_on), rejection=None)

    def _rejected(self, rejection: Rejection, based_on: BasedOn) -> NotFound:
        count = len(self._state.nodes)
        explanation = PlacementExplanation(
            nodes_considered=count,
            nodes_feasible=0,
            exclusions=[PluginExclusion(plugin=rejection.plugin, excluded=count, reasons={rejection.message: count})],
            policy_version=self._engine.policy_version,
            based_on=based_on,
        )
        message = f"0/{count} nodes are available: {rejection.message}."
        if rejection.resolvable:
            return self._not_found(message, explanation, rejection)
        diagnosis = None
        if rejection.details:
            diagnosis = diagnosis_of(self._state, self._pod, self._cycle_view, None, rejection)
        return NotFound(message=message, explanation=explanation, diagnosis=diagnosis, rejection=rejection)

    def _not_found(self, message: str, explanation: PlacementExplanation, rejection: Rejection | None) -> NotFound:
        if not self._may_preempt:
            return NotFound(message=message, explanation=explanation, diagnosis=None, rejection=rejection)
        found = preempt(self._state, self._pod, self._cycle_view, rejection, self._within)
        if isinstance(found, Preemption):
            gone = f"{found.node} is free once {len(found.victims)} pod(s) are gone."
            message = f"{message} preemption: {found.message + ': ' if found.message else ''}{gone}"
        else:
            message = f"{message} preemption: {found.message}" if found.message else message
            message = f"{message} {found.notes}" if found.notes else message
        diagnosis = diagnosis_of(self._state, self._pod, self._cycle_view, found, rejection)
        return NotFound(
            message=message, explanation=explanation, diagnosis=diagnosis, rejection=rejection, preemption=found
        )

    # --- which nodes come into question ------------------------------------------------------------------------------

    def _restriction(self, found: list[tuple[str, Candidates]]) -> Restriction:
        nominated = self._state.nominator.wished(self._pod)
        refusals = self._state.refusals
        without = refusals.without(self._pod.uid, self._now) if len(refusals) else None
        if without is not None:
            found = [*found, (NODE_REFUSALS, without)]
        if not found and not nominated:
            return UNRESTRICTED
        rows: Rows | None = None
        preferred: list[str] = [nominated] if nominated else []
        plugins: list[str] = []
        reasons: list[str] = []
        first: list[str] = []
        for plugin, candidates in found:
            first += candidates.first if plugin in self.framework.profile.outranking else ()
            preferred += candidates.preferred
            if candidates.names is not None or candidates.without:
                rows = np.flatnonzero(self._state.nodes.alive) if rows is None else rows
                if candidates.names is not None:
                    rows = np.intersect1d(rows, self._rows(candidates.names), assume_unique=True)
                rows = np.setdiff1d(rows, self._rows(candidates.without), assume_unique=True)
                plugins.append(plugin)
                reasons += [f": {candidates.reason}"] if candidates.reason else []
        known = (self._state.nodes.row(name) for name in preferred)
        return Restriction(
            rows=rows,
            preferred=tuple(row for row in known if row is not None),
            first=tuple(row for name in first if (row := self._state.nodes.row(name)) is not None),
            plugin=", ".join(plugins),
            reason="".join(reasons),
        )

    def _rows(self, names: Iterable[str]) -> Rows:
        known = (self._state.nodes.row(name) for name in names)
        return np.array(sorted(row for row in known if row is not None), np.intp)

    def _barred(self) -> Iterable[int]:
        """Yield rows on which the pod would not fit beside the pods nominated there that it may not preempt. Source:
        scheduler-core spec, 1.3 (pass 1).
        """
        state = self._state
        for node in state.nominator.nodes():
            row = state.nodes.row(node)
            if row is not None and self._is_barred(node, row, self._cycle_view.at(row)):
                yield row

    def _is_barred(self, node: str, row: int, subject: Subject) -> bool:
        state, accounting = self._state, self._state.cluster.accounting
        rivals = state.nominator.rivals_on(node, self._pod)
        if not rivals:
            return False
        if subject not in self._needs:
            sums_decide = only_amounts_refuse(self._engine, subject, accounting)
            self._needs[subject] = needs_of(self._engine, subject) if sums_decide else None
        sums = self._needs[subject]
        if sums is not None:
            return not suffices(sums.left(state.nodes, row, rivals))
        with accounting.trial():
            for rival in rivals:
                accounting.take(row, rival)
            try:
                return not self._engine.passes(subject, row)
            finally:
                for rival in rivals:
                    accounting.give(row, rival)


def _with_resources_of(resized: Pod, judged: Pod) -> Pod:
    """Return the copy of the pod that a node sees, with the resources of the resized pod."""
    own = resized.spec
    spec = msgspec.structs.replace(
        judged.spec,
        containers=own.containers,
        init_containers=own.init_containers,
        overhead=own.overhead,
        resources=own.resources,
    )
    return msgspec.structs.replace(judged, spec=spec)
