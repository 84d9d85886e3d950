"""Preemption for all pending members of a job at once, tried on the columns.

Source: scheduler-core spec, 8.10; `plugins.gang.preemption` has the plan
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from koordcore.values.allocation import is_reservation

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.framework.post_filter import JobRules
from koord_scheduler.domain.loop.preempt.nominating import is_being_emptied
from koord_scheduler.domain.loop.state.cycle_view import CycleView, tried
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.preemption import (
    JobPreemption,
    JobVictim,
    TopologyRules,
    plan_job_preemption,
    possible_victim,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRoom:
    """The result of a job preemption: a node for each member, and the pods that must leave."""

    nominations: Mapping[str, str]  # Uid of a member -> name of its node
    victims: tuple[tuple[PodRecord, str], ...]  # (pod that must leave, its node)
    examined: int  # Number of candidate nodes


@dataclass(eq=False)
class JobSearch:
    """Searches nodes and victims that make room for a pod and all pending members of its job at once."""

    state: SchedulerState
    pod: PodRecord
    cycle_view: CycleView
    plugin: JobRules
    within: Rows | None  # Positions of the nodes that may be candidates; None for all

    def __post_init__(self) -> None:
        # The members in the order in which they are placed.
        self.members = [
            record
            for uid in self.plugin.members(self.pod)
            if (record := self.state.pods.get(uid)) is not None and record.subject is not None and not record.work_node
        ]
        # Pods that stay for now, because their evictions have failed repeatedly. Uid -> Unix seconds from which the pod
        # may be evicted.
        self.spared: dict[str, float] = {}
        self._by_uid = {member.uid: member for member in self.members}
        self._occupants: dict[str, dict[str, PodInfo]] = {}

    def awaits_victims(self) -> bool:
        """Return whether a victim of an earlier preemption is still leaving a node that a member is nominated to."""
        nodes = {self.state.nominator.wished(member) for member in self.members} - {""}
        return any(is_being_emptied(self.state, node, self.pod.priority) for node in nodes)

    def run(self) -> JobRoom | str:
        """Return nodes and victims for all members of the job, or a sentence about why there are none."""
        state = self.state
        rules = self._rules()
        rows = sorted(row_list(self._candidates(rules is not None)), key=state.nodes.names.__getitem__)
        victims = {state.nodes.names[row]: self._victims(row) for row in rows}
        kinds: dict[Subject | None, int] = {}
        found = plan_job_preemption(
            [member.uid for member in self.members],
            [kinds.setdefault(member.subject, len(kinds)) for member in self.members],
            victims,
            self._fits,
            rules,
        )
        if not isinstance(found, JobPreemption):
            return found.message
        going = [(state.pods[each.uid], node) for node, pods in found.victims.items() for each in pods]
        return JobRoom(nominations=found.nominations, victims=tuple(going), examined=len(victims))

    def _candidates(self, has_rules: bool) -> Rows:
        """Return the candidate rows. These are rows that refuse the pod but may accept it if pods leave, and rows that
        accept a member.
        """
        state, engine = self.state, self.state.engine_of(self.pod)
        resolvable = self.cycle_view.resolvable(engine)
        lowest = state.cluster.priorities.lowest(state.nodes.capacity)
        found = [resolvable[lowest[resolvable] < self.pod.priority]]
        found += [
            state.frameworks.engine_of(subject).feasible(subject)
            for subject in {member.subject for member in self.members}
            if subject is not None and (has_rules or subject != self.cycle_view.subject)
        ]
        rows = np.unique(np.concatenate(found))
        return rows if self.within is None else np.intersect1d(rows, self.within, assume_unique=True)

    def _victims(self, row: int) -> list[JobVictim]:
        state, node = self.state, self.state.nodes.names[row]
        possible: list[JobVictim] = []
        self._occupants[node] = {}
        for pod_info in state.assumed.ledgers.pod_infos(node):
            other = state.pods.get(pod_info.uid)
            if other is None or other.pod is None or other.uid in self._by_uid:
                continue
            if is_reservation(other.uid, pod_info.allocation):
                continue
            is_settled = other.is_settled or other.uid in state.assumed.waiting
            name = f"{other.namespace}/{other.name}"
            victim = possible_victim(other.uid, name, other.priority, other.pod.metadata.labels, self.pod.priority)
            if victim is None or not is_settled:
                continue
            until = state.nominator.spared_until(other.uid)
            if until <= state.queue.now:
                possible.append(victim)
                self._occupants[node][other.uid] = pod_info
            else:
                self.spared[other.uid] = until
        return possible

    def _fits(self, node: str, kept: Sequence[JobVictim], members: Sequence[str]) -> bool:
        """Return whether these members fit on the node if only the pods in `kept` stay of the possible victims."""
        state, row = self.state, self.state.nodes.row(node)
        assert row is not None, f"node {node} has no row"
        staying = {victim.uid for victim in kept}
        with tried(state) as (take, give):
            for uid, pod_info in self._occupants[node].items():
                if uid not in staying:
                    give(row, pod_info)
            for rival in state.nominator.rivals_on(node, self.pod):
                if rival.uid not in self._by_uid:
                    take(row, rival)
            for uid in members:
                member = self._by_uid[uid]
                assert member.subject is not None, f"pod {uid} has no spec"
                if not state.engine_of(member).passes(member.subject, row):
                    return False
                take(row, member.pod_info())
        return True

    def _rules(self) -> TopologyRules | None:
        gangs, topology = self.state.books.gangs, self.state.books.gang.topology
        gang = gangs.roster.gang_of(self.pod.uid)
        gather = gang.parameters.gather if gang is not None and gang.parameters is not None else None
        if not gangs.args.aware_network_topology or gather is None or topology is None:
            return None
        return TopologyRules(topology, gather, self.plugin.peers_of(self.pod))
